"""Frames around a segment that goes as a whole: what comes back is what went, and hostile values are refused."""

import pytest

from appliance.group.copies.segment_frames import (
    HERE,
    PIECE,
    PIECE_HEAD,
    REFUSED,
    SegmentFetch,
    SegmentOffer,
    SegmentSeen,
    decode_fetch,
    decode_offer,
    decode_seen,
    read_head,
)
from appliance.group.links.frames import FETCH, SEGMENT, SEGMENT_SEEN, LinkFrame, LinkFrameDecoder, encode_frame
from uplink_spark.errors import ProtocolError


def frame_of(data: bytes) -> LinkFrame:
    [frame] = LinkFrameDecoder(most_record_bytes=1, with_bytes=frozenset()).feed(data)
    return frame


def test_frames_come_back_as_they_were() -> None:
    offer = SegmentOffer(5, 100)
    assert decode_offer(frame_of(offer.encode())) == offer
    fetch = SegmentFetch("press", "b", 5, 100, 60)
    assert decode_fetch(frame_of(fetch.encode())) == fetch
    for seen in (SegmentSeen(5, 100, HERE, 1 << 31), SegmentSeen(5, 100, REFUSED, reason="x" * 9000)):
        found = decode_seen(frame_of(seen.encode()))
        assert found == seen._replace(reason=seen.reason[:500])


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        (SEGMENT, {"start": 5, "end": 5}),
        (SEGMENT, {"start": 5}),
        (SEGMENT, {"start": -1, "end": 5}),
        (FETCH, {"group": "g", "member": "b", "start": 5, "end": 100, "at": 100}),
        (FETCH, {"group": "g", "member": "b", "start": 5, "end": 100, "at": 4}),
        (SEGMENT_SEEN, {"start": 5, "end": 100, "what": 4, "crc": 0, "reason": ""}),
        (SEGMENT_SEEN, {"start": 5, "end": 100, "what": 1, "crc": 1 << 32, "reason": ""}),
    ],
)
def test_what_no_member_sends_is_refused(kind: int, head: dict[str, object]) -> None:
    decode = {SEGMENT: decode_offer, FETCH: decode_fetch, SEGMENT_SEEN: decode_seen}[kind]
    with pytest.raises(ProtocolError):
        decode(frame_of(encode_frame(kind, head)))


def test_a_piece_is_no_larger_than_allowed_and_no_larger_than_what_is_left() -> None:
    assert read_head(PIECE_HEAD.pack(PIECE, 7), PIECE) == (PIECE, 7)
    for length, left in ((0, 10), (11, 10), (PIECE + 1, PIECE * 2)):
        with pytest.raises(ProtocolError, match=f"a piece of {length} bytes"):
            read_head(PIECE_HEAD.pack(length, 7), left)
