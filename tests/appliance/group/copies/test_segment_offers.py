"""Which follower gets whole segments: one that can, that has all before, while enough of a sealed segment is left."""

from appliance.group.copies import segment_offers
from appliance.group.copies.segment_frames import HERE, READ, REFUSED, WORKING, SegmentFetch, SegmentOffer, SegmentSeen
from appliance.group.copies.segment_offers import AGAIN_S, SILENT_S, FetchStep, SegmentOffers

SIZE = 1000
FRAMES, WAITS = FetchStep(False), FetchStep(True)


def offers(synced: int = 5000) -> SegmentOffers:
    made = SegmentOffers(SIZE, lambda: synced)
    made.begin("b")
    return made


def sent(made: SegmentOffers, start: int, end: int, crc: int) -> None:
    """Have all that was offered sent."""
    served = made.sends(SegmentFetch("press", "b", start, end, start))
    assert served is not None
    served.crc = crc


def test_what_is_left_of_a_sealed_segment_of_one_term_is_offered_to_who_has_all_before() -> None:
    assert segment_offers.LEAST == 32 << 20
    assert offers().turn("b", (300, 5000), 300, 0.0) == FetchStep(True, SegmentOffer(300, 1000))
    assert offers().turn("b", (300, 5000), 200, 0.0) == WAITS, "what is on its way comes first"
    assert offers().turn("b", (300, 999), 300, 0.0) == FRAMES, "another term begins within it"
    assert offers(999).turn("b", (300, 5000), 300, 0.0) == FRAMES, "it is not sealed"
    assert offers().turn("b", (501, 5000), 501, 0.0) == FRAMES, "less than half of it is left"
    assert offers().turn("c", (300, 5000), 300, 0.0) == FRAMES, "it cannot"


def test_frames_wait_until_all_records_were_read() -> None:
    made = offers()
    made.turn("b", (300, 5000), 300, 0.0)
    assert made.turn("b", (300, 5000), 300, 1.0) == WAITS
    sent(made, 300, 1000, 7)
    assert not made.seen("b", SegmentSeen(0, 0, WORKING), 2.0)
    assert made.seen("b", SegmentSeen(300, 1000, HERE, 7), 3.0)
    assert made.turn("b", (1000, 5000), 1000, 4.0) == FetchStep(True, SegmentOffer(1000, 2000))
    sent(made, 1000, 2000, 8)
    assert made.seen("b", SegmentSeen(1000, 2000, HERE, 8), 5.0)
    assert made.turn("b", (2000, 2500), 2000, 6.0) == WAITS
    assert not made.seen("b", SegmentSeen(0, 0, READ), 7.0)
    assert made.turn("b", (2000, 2500), 2000, 8.0) == FRAMES


def test_a_follower_that_comes_back_with_records_to_read_gets_no_frames_before() -> None:
    made = offers()
    made.seen("b", SegmentSeen(0, 0, WORKING), 0.0)
    assert made.turn("b", (900, 950), 900, 1.0) == WAITS
    made.seen("b", SegmentSeen(0, 0, READ), 2.0)
    assert made.turn("b", (900, 950), 900, 3.0) == FRAMES


def test_who_refuses_has_other_bytes_or_says_nothing_gets_frames_for_a_while() -> None:
    for seen in (SegmentSeen(300, 1000, REFUSED, reason="no room"), SegmentSeen(300, 1000, HERE, 8)):
        made = offers()
        made.turn("b", (300, 5000), 300, 0.0)
        sent(made, 300, 1000, 7)
        assert not made.seen("b", seen, 1.0)
        assert made.turn("b", (300, 5000), 300, AGAIN_S) == FRAMES
        assert made.turn("b", (300, 5000), 300, AGAIN_S + 1).offer == SegmentOffer(300, 1000)
    made = offers()
    made.turn("b", (300, 5000), 300, 0.0)
    assert made.turn("b", (300, 5000), 300, SILENT_S) == WAITS
    assert made.turn("b", (300, 5000), 300, SILENT_S + 1) == FRAMES


def test_what_was_sent_whole_before_a_link_ended_is_taken_after_it_unless_another_leads() -> None:
    for leads_on in (True, False):
        made = offers()
        made.turn("b", (300, 5000), 300, 0.0)
        sent(made, 300, 1000, 7)
        made.forget("b")
        assert not made.knows("b")
        if not leads_on:
            made.clear()
        made.begin("b")
        assert made.knows("b")
        assert made.turn("b", (300, 5000), 300, 1.0).offer == SegmentOffer(300, 1000)
        assert made.seen("b", SegmentSeen(300, 1000, HERE, 7), 2.0) is leads_on


def test_as_long_as_bytes_are_sent_nobody_is_silent() -> None:
    made = offers()
    made.turn("b", (300, 5000), 300, 0.0)
    served = made.sends(SegmentFetch("press", "b", 300, 1000, 300))
    assert served is not None
    for now_s in range(1, 200):
        served.moved = True
        assert made.turn("b", (300, 5000), 300, float(now_s)) == WAITS


def test_only_what_is_offered_is_sent_and_only_as_long_as_it_is() -> None:
    made, fetch = offers(), SegmentFetch("press", "b", 300, 1000, 600)
    assert made.sends(fetch) is None
    made.turn("b", (300, 5000), 300, 0.0)
    served = made.sends(fetch)
    assert served is not None
    assert made.sends(fetch._replace(start=0)) is None
    assert made.stands(fetch, served)
    made.clear()
    assert not made.stands(fetch, served)
    made.turn("b", (300, 5000), 300, 1.0)
    made.turn("b", (400, 5000), 400, 2.0)
    assert made.sends(fetch) is None, "the follower is elsewhere now"
    made.forget("b")
    assert made.turn("b", (300, 5000), 300, 3.0) == FRAMES
    assert not made.seen("b", SegmentSeen(300, 1000, HERE, 7), 3.0)
