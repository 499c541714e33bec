"""Which logs may be one: same layout and segments, same origin unless one is empty."""

from appliance.group.links.frames import HELLO, LinkFrameDecoder, MemberHello, decode_hello
from appliance.group.links.greeting import refusal_of
from storage_driver.log.lineage import rising

OWN = MemberHello("press", "a", b"session1", 1 << 20, ((5, 0), (6, 900)), (), (), 0, 1000)
OTHER = OWN._replace(member="b", session=b"session2", synced=700)


def code(hello: MemberHello, own: MemberHello = OWN) -> str:
    refused = refusal_of(own, hello)
    return refused.code if refused is not None else ""


def test_copies_of_one_log_and_empty_ones_are_welcome() -> None:
    other_origin = ((9, 0),)
    assert code(OTHER) == ""
    assert code(OTHER._replace(epochs=((5, 0),))) == "", "the later epoch begins above what it has"
    assert code(OTHER._replace(epochs=other_origin, synced=0)) == ""
    assert code(OTHER._replace(epochs=other_origin, first=1 << 20, synced=1 << 20)) == ""
    assert code(OTHER, OWN._replace(epochs=other_origin, synced=0)) == ""


def test_what_cannot_be_one_log_is_refused_before_a_byte_moves() -> None:
    assert code(OTHER._replace(epochs=((9, 0),))) == "unrelated"
    assert code(OTHER._replace(segment_bytes=1 << 21)) == "segments"
    assert code(OTHER._replace(version=2)) == code(OTHER._replace(layout=2)) == "version"


def test_a_start_whose_log_was_cut_below_the_one_before_is_greeted_all_the_same() -> None:
    runs = [(7, 0), (8, 4869), (9, 4242)]  # killed, started, told to cut: as a walk of docs/replication.md left it
    assert rising(runs) == ((7, 0), (9, 4242))
    assert rising([*runs, (10, 4242), (11, 100)]) == ((7, 0), (11, 100))
    decoder = LinkFrameDecoder(most_record_bytes=0, with_bytes=frozenset())
    (frame,) = decoder.feed(OWN._replace(runs=rising(runs)).encode(HELLO))
    assert decode_hello(frame).runs == ((7, 0), (9, 4242))
