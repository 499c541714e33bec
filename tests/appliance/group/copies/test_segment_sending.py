"""A segment leaves its file in pieces with digests, at a rate, as long as it is offered."""

import time

import pytest
import trio

from appliance.group.copies.segment_frames import PIECE, PIECE_HEAD, SegmentFetch
from appliance.group.copies.segment_offers import FetchState
from appliance.group.copies.segment_sending import CREDIT_S, SegmentGone, SegmentSending, SendingPace
from appliance.group.links.thread_stream import ThreadStream
from storage_driver.crc import crc32

LOG = bytes(range(256)) * (2 * PIECE // 256 + 3)
FETCH = SegmentFetch("press", "b", 100, len(LOG), 100)


class Stream(ThreadStream):
    """What was sent."""

    def __init__(self) -> None:
        self.pieces: list[tuple[int, bytes]] = []  # CRC, bytes

    def send(self, *parts: bytes) -> None:
        head, data = parts
        length, crc = PIECE_HEAD.unpack(head)
        assert length == len(data)
        self.pieces.append((crc, data))


def read(start: int, count: int) -> bytes:
    return LOG[start : start + count]


async def sent(fetch: SegmentFetch, stands: list[bool]) -> tuple[Stream, FetchState]:
    """Send until `stands` is used up."""
    stream, served = Stream(), FetchState()
    left = iter(stands)
    pace = SendingPace(time.monotonic)
    sending = SegmentSending(fetch, served, read=read, stands=lambda: next(left, True), pace=pace, rate=0)
    await trio.to_thread.run_sync(sending.send, stream)
    return stream, served


@pytest.mark.parametrize("at", [100, 5000, PIECE + 7])
async def test_the_digest_is_that_of_all_that_was_offered_wherever_it_goes_on(at: int) -> None:
    stream, served = await sent(FETCH._replace(at=at), [])
    assert b"".join(data for _, data in stream.pieces) == LOG[at:]
    end = at
    for crc, data in stream.pieces:
        end += len(data)
        assert crc == crc32(LOG[100:end])
    assert served.crc == crc32(LOG[100:])
    assert served.moved


async def test_what_is_not_offered_any_more_is_not_sent() -> None:
    with pytest.raises(SegmentGone, match="not offered any more"):
        await sent(FETCH, [True, False])


async def test_what_was_deleted_meanwhile_ends_it() -> None:
    with pytest.raises(SegmentGone, match="is deleted"):
        await sent(FETCH._replace(end=len(LOG) + 1), [])


def test_a_rate_is_kept_with_some_credit() -> None:
    now = [100.0]
    pace = SendingPace(lambda: now[0])
    for _ in range(100):
        now[0] += pace.rest_s()
        pace.sent(100, 1000)
    assert 10 - CREDIT_S - 0.2 <= now[0] - 100 <= 10
    without = SendingPace(lambda: now[0])
    without.sent(100, 0)
    assert without.rest_s() == 0.0
