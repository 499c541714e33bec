"""A segment leaves its file in pieces with digests, at a rate, as long as it is offered."""

import time

import pytest
import trio

from appliance.group.copies.segment_frames import PIECE, PIECE_HEAD, SegmentFetch
from appliance.group.copies.segment_offers import FetchState
from appliance.group.copies.segment_sending import (
    BESIDE_CLIENTS,
    CREDIT_S,
    RECENT_S,
    SegmentGone,
    SegmentSending,
    SendingPace,
    SendingRate,
)
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
    pace = SendingPace(SendingRate(0), time.monotonic)
    sending = SegmentSending(fetch, served, read=read, stands=lambda: next(left, True), pace=pace)
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
    pace = SendingPace(SendingRate(1000), lambda: now[0])
    for _ in range(100):
        now[0] += pace.rest_s()
        pace.sent(100)
    assert 10 - CREDIT_S - 0.2 <= now[0] - 100 <= 10
    without = SendingPace(SendingRate(0), lambda: now[0])
    without.sent(100)
    assert without.rest_s() == 0.0


def test_beside_clients_a_follower_gets_less_unless_a_rate_is_set() -> None:
    now = [100.0]
    usual, fixed = SendingRate(0, lambda: now[0]), SendingRate(10 * BESIDE_CLIENTS, lambda: now[0])
    assert (usual.bytes_s(), fixed.bytes_s()) == (0, 10 * BESIDE_CLIENTS)
    for rate in (usual, fixed):
        rate.written(1000)
    now[0] += RECENT_S / 2
    assert (usual.bytes_s(), fixed.bytes_s()) == (BESIDE_CLIENTS, 10 * BESIDE_CLIENTS)
    now[0] += RECENT_S
    assert usual.bytes_s() == 0


def test_beside_clients_who_write_a_lot_a_follower_gets_more_than_they_write() -> None:
    now, end = [100.0], 7 << 30
    rate = SendingRate(0, lambda: now[0])
    rate.written(end)
    assert rate.bytes_s() == BESIDE_CLIENTS
    for _ in range(100):
        now[0] += 0.1
        end += BESIDE_CLIENTS // 10
        rate.written(end)
    assert 1.7 * BESIDE_CLIENTS < rate.bytes_s() < 2.3 * BESIDE_CLIENTS
