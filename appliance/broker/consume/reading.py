"""What a read finds: the messages of a queue from an offset on that a filter accepts, now or once they come. No wire.

What is in memory is found at once, the rest is read by a thread. A wait may be for several queues. Each read reserves
room with its reader, who may have left much of what it was given unread.
Source: RocketMQ 4.9.8 DefaultReading.getMessage, PullRequestHoldService.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Final, Protocol

import trio

from appliance.broker.filter.subscriptions import AcceptsRecord, split_records
from appliance.broker.tables.arrivals import UNMATCHED_S, Arrivals
from storage_driver.interfaces import Reading
from storage_driver.reading import FoundStatus, ReadRequest, ReadResult

MOST_SCANNED: Final = 800  # queue entries per read, as RocketMQ's 16000 bytes of them
MAX_COUNT: Final = 32  # RocketMQ maxTransferCountOnMessageInMemory
MAX_BYTES: Final = 262_144  # RocketMQ maxTransferBytesOnMessageInMemory; one larger message is still delivered
LARGEST_BYTES: Final = 4 << 20  # of one message: what a read from the disk may become


class Room(Protocol):
    """The receiver of what is read."""

    async def reserve(self, size: int, /) -> None: ...
    def give_back(self, size: int, /) -> None: ...


class FilteredReader:
    """Reads for whoever consumes; one object per broker, whatever doors it has."""

    def __init__(self, store: Reading, arrivals: Arrivals) -> None:
        self._store, self._arrivals = store, arrivals

    def in_memory(self, wanted: ReadRequest) -> ReadResult | None:
        """Return what tags alone select in memory, None when it is not all there."""
        return self._store.read_hot(wanted)

    async def read(self, wanted: ReadRequest, room: Room) -> ReadResult:
        """Read when there is room: one message may have 4 MiB, whatever was asked."""
        await room.reserve(MAX_BYTES)
        try:
            found = await self._from_memory(wanted)
        finally:
            room.give_back(MAX_BYTES)
        if found is not None:
            return found
        await room.reserve(LARGEST_BYTES)
        try:
            return await self._from_disk(wanted)
        finally:
            room.give_back(LARGEST_BYTES)

    async def wait(
        self, wanted: Sequence[ReadRequest], room: Room, *, group: str, timeout_s: float
    ) -> tuple[int, ReadResult]:
        """Wait for a match in one of several different queues; return which one, and what is there, also nothing.

        What a filter of records refuses ends the wait within UNMATCHED_S, so that the reader's offset moves on.
        """
        start, deadline_s = wanted[0].queue_offset, trio.current_time() + timeout_s
        while True:
            await self._arrivals.wait_match(wanted, group=group, timeout_s=deadline_s - trio.current_time())
            results = []
            for number, each in enumerate(wanted):
                found = await self.read(each, room)
                if found.status is FoundStatus.FOUND:
                    return number, found
                results.append(found)
            if not any(map(_is_passed, wanted, results)):
                break
            deadline_s = min(deadline_s, trio.current_time() + UNMATCHED_S)
            wanted = tuple(map(_after, wanted, results))
            if trio.current_time() >= deadline_s:
                break
        if wanted[0].queue_offset != start:
            return 0, results[0]._replace(status=FoundStatus.NO_MATCHED, next_offset=wanted[0].queue_offset)
        return 0, results[0]

    async def _from_memory(self, wanted: ReadRequest) -> ReadResult | None:
        if wanted.accepts_record is None:
            return self.in_memory(wanted)
        return await self._filtered(wanted, wanted.accepts_record)

    async def _from_disk(self, wanted: ReadRequest) -> ReadResult:
        return await self._store.read(
            wanted.queue,
            wanted.queue_offset,
            max_count=wanted.max_count,
            max_bytes=wanted.max_bytes,
            accepts=wanted.accepts,
            accepts_record=wanted.accepts_record,
        )

    async def _filtered(self, wanted: ReadRequest, accepts: AcceptsRecord) -> ReadResult | None:
        """Return what matches among the next messages in memory, None when they are not; others run in between."""
        at, scanned = wanted.queue_offset, 0
        picked: list[bytes] = []
        most, room = max(wanted.max_count, 1), wanted.max_bytes
        while True:
            found = self.in_memory(wanted._replace(queue_offset=at))
            if found is None or found.status is not FoundStatus.FOUND:
                break
            for record in chain.from_iterable(map(split_records, found.chunks)):
                if len(picked) >= most or (picked and room < len(record)):
                    following = int.from_bytes(record[20:28], "big")  # its own queue offset
                    return found._replace(chunks=picked, records=len(picked), next_offset=following)
                if accepts(record):
                    picked.append(bytes(record))
                    room -= len(record)
            at, scanned = found.next_offset, scanned + found.records
            if at >= found.max_offset or scanned >= MOST_SCANNED:
                break
            await trio.lowlevel.checkpoint()
        if picked:
            edges = self._store.min_offset(wanted.queue), self._store.max_offset(wanted.queue)
            return ReadResult(FoundStatus.FOUND, picked, len(picked), at, *edges)
        if found is not None and at != wanted.queue_offset:
            return found._replace(status=FoundStatus.NO_MATCHED, chunks=[], records=0, next_offset=at)
        return found


def _is_passed(wanted: ReadRequest, found: ReadResult) -> bool:
    """Tell whether messages came that the filter refused."""
    return wanted.accepts_record is not None and found.status is FoundStatus.NO_MATCHED


def _after(wanted: ReadRequest, found: ReadResult) -> ReadRequest:
    return wanted._replace(queue_offset=found.next_offset) if _is_passed(wanted, found) else wanted
