"""Two logs are compared below the point where one is cut."""

from pathlib import Path

import pytest

from appliance.group.copies.common_point import (
    COMPARED,
    CommonPoint,
    cuts_something,
    decode_point,
    differs,
    encode_point,
    point_of,
)
from appliance.group.links.frames import LinkFrameDecoder, encode_frame
from storage_driver.consensus.messages import Match, Synced
from storage_driver.store import open_store
from tests.storage_driver.test_store import Clock, message, put_all, small
from uplink_spark.errors import ProtocolError


def test_only_a_match_that_makes_a_follower_cut_is_one() -> None:
    match = Match(2, 1, 900, 400, (), (), 900)
    assert cuts_something(match) is match
    assert cuts_something(match._replace(start=900)) is None
    assert cuts_something(match._replace(start=0)) is None, "there is nothing below"
    assert cuts_something(Synced(1, 5)) is None


async def test_logs_with_the_same_bytes_agree_and_others_do_not(tmp_path: Path) -> None:
    for name, differing in (("a", b"same"), ("b", b"same"), ("c", b"diff")):
        async with open_store(small(tmp_path / name), now_ms=Clock()) as store:
            await put_all(store, [message(b"x" * 30_000) for _ in range(8)] + [message(differing)])
            point = point_of(store, store.end)
            if name == "a":
                of_a, small_part = point, point_of(store, store.segment_bytes)
                assert small_part.length == COMPARED
                assert 0 < point.length <= COMPARED
                assert point.log_offset - point.length >= store.segment_bytes, "of one segment"
                assert point_of(store, store.end + 1).length == 0, "it is not on the disk"
            assert differs(store, of_a) == (name == "c")
            assert not differs(store, CommonPoint(point.log_offset, 0, 0)), "the leader has deleted what is below"


def test_a_point_goes_over_the_link_and_a_strange_one_is_refused() -> None:
    decoder = LinkFrameDecoder(most_record_bytes=0, with_bytes=frozenset())
    point = CommonPoint(1 << 40, 5, 7)
    [frame] = decoder.feed(encode_point(point))
    assert decode_point(frame) == point
    [frame] = decoder.feed(encode_frame(frame.kind, {"log_offset": 1, "length": COMPARED + 1, "crc": 2}))
    with pytest.raises(ProtocolError):
        decode_point(frame)
