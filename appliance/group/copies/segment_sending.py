"""A leader sends what is left of a segment from its file, in a thread: the loop has nothing to do with its bytes."""

import time
from collections.abc import Callable
from math import inf
from typing import Final

import trio

from appliance.group.copies.feed import Read
from appliance.group.copies.segment_frames import PIECE, PIECE_HEAD, SegmentFetch
from appliance.group.copies.segment_offers import FetchState
from appliance.group.links.thread_stream import ThreadStream
from storage_driver.crc import crc32

CREDIT_S: Final = 0.5  # of a rate that may be used at once: who sends frames is asked again within that time
BESIDE_CLIENTS: Final = (
    64 << 20
)  # bytes a second; with 128 MiB the p99 of 64 senders doubles, where both boxes share a disk
RECENT_S: Final = 0.5
REST_S: Final = 0.1  # how soon a thread that waits hears that nobody wants it any more


class SegmentGone(Exception):
    """What was offered is not to be had any more."""


class SendingRate:
    """How many bytes a second a follower is sent from the disk: `most`, 0: what it takes, but less beside clients.

    Clients wait for the disk and the processor that a copy takes, too. Whatever is written to the log counts as
    theirs, the box's own tables, too. It is always more than what is written: a follower comes level. For threads, too.
    """

    def __init__(self, most: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self._most, self._now_s, self._written_s = most, now_s, -inf
        self._looked_s, self._looked_end, self._clients_bytes_s = -inf, 0, 0

    def written(self, end: int) -> None:
        """Somebody has something written to the log now, which ends here then."""
        self._written_s = now_s = self._now_s()
        if (passed_s := now_s - self._looked_s) >= RECENT_S:
            self._clients_bytes_s = int((end - self._looked_end) / passed_s)
            self._looked_s, self._looked_end = now_s, end

    def bytes_s(self) -> int:
        """Return the rate of this moment, 0: no limit."""
        if self._most or self._now_s() - self._written_s >= RECENT_S:
            return self._most
        return max(BESIDE_CLIENTS, 2 * self._clients_bytes_s)


class SendingPace:
    """Keeps what one follower is sent from the disk, in frames and in segments, to a rate. For threads, too."""

    def __init__(self, rate: SendingRate, now_s: Callable[[], float]) -> None:
        self._rate, self._now_s, self._due_s = rate, now_s, 0.0

    def rest_s(self) -> float:
        """Return how long to wait now."""
        return max(0.0, self._due_s - self._now_s())

    def sent(self, count: int) -> None:
        """Count bytes."""
        if count and (rate := self._rate.bytes_s()):
            self._due_s = max(self._due_s, self._now_s() - CREDIT_S) + count / rate

    def pause(self, seconds: float) -> None:
        """Send nothing for so long."""
        self._due_s = self._now_s() + seconds


class SegmentSending:
    """One transfer: `send` blocks until all is sent. Raises SegmentGone, OSError, trio.Cancelled."""

    def __init__(
        self,
        fetch: SegmentFetch,
        served: FetchState,
        *,
        read: Read,
        stands: Callable[[], bool],
        pace: SendingPace,
    ) -> None:
        self._fetch, self._served, self._read, self._stands = fetch, served, read, stands
        self._pace = pace

    def send(self, stream: ThreadStream) -> None:
        """Send what the follower does not have; the CRC is that of all that was offered."""
        crc, at = self._crc_before(), self._fetch.at
        while at < self._fetch.end:
            while (rest_s := self._pace.rest_s()) > 0:
                self._check()
                time.sleep(min(REST_S, rest_s))
            data = self._bytes(at, self._fetch.end)
            crc = crc32(data, crc)
            at += len(data)
            if at == self._fetch.end:
                self._served.crc = crc  # not later: the follower may answer before this thread goes on
            stream.send(PIECE_HEAD.pack(len(data), crc), data)
            self._served.moved = True
            self._pace.sent(len(data))

    def _crc_before(self) -> int:
        crc, at = 0, self._fetch.start
        while at < self._fetch.at:
            data = self._bytes(at, self._fetch.at)
            crc = crc32(data, crc)
            at += len(data)
            self._served.moved = True
        return crc

    def _bytes(self, at: int, end: int) -> bytes:
        self._check()
        data = self._read(at, min(PIECE, end - at))
        if not data:
            raise SegmentGone(f"the log at {at} is deleted")
        return data

    def _check(self) -> None:
        trio.from_thread.check_cancelled()
        if not self._stands():
            raise SegmentGone(f"the rest of the segment at {self._fetch.start} is not offered any more")
