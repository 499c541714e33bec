"""`open_store` and `MessageStore`: put, read, look up; owns every other object of the package."""

import os
from collections.abc import AsyncIterator, Callable, Container, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType

import trio

from storage_driver.composition import Hooks, compose, make_maintenance
from storage_driver.config import StoreConfig
from storage_driver.errors import StoreUnwritable
from storage_driver.files.checkpoint import CommittedFile
from storage_driver.files.disk import Disk, RealDisk
from storage_driver.files.journal_file import JournalFile
from storage_driver.files.state_file import StateFile
from storage_driver.interfaces import Policies
from storage_driver.log.commit_log import Writing
from storage_driver.log.cut_history import CutDone
from storage_driver.log.lineage import Lineage
from storage_driver.log.marks import Mark
from storage_driver.log.scan import covered
from storage_driver.log.segment import SegmentFacts
from storage_driver.log.truncation import Truncation
from storage_driver.log.unwritable import note_unwritable
from storage_driver.queues.dispatch import Arrival
from storage_driver.reader import read_log
from storage_driver.reading import ReadRequest, ReadResult
from storage_driver.record import MessageQueue
from storage_driver.recovery.opening import (
    Opened,
    known_damage,
    open_folder,
    state_path,
    topics_since,
    with_room,
)
from storage_driver.recovery.verdict import RecoveryVerdict
from storage_driver.segment_copies import SegmentCopies
from storage_driver.statistics import AppendResult, StoreStatistics, SyncEvidence


def ignore(arrival: Arrival) -> None:
    """Nobody wants to know of arrivals."""


def _may_go(base: int, end: int) -> bool:
    return True


class MessageStore:
    """The messages of one box. All methods are called in the trio loop unless they say otherwise."""

    policies: Policies | None = None  # of topics; set by the group of this box, if it is in one

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        opened: Opened,
        *,
        now_ms: Callable[[], int],
        arrived: Callable[[Arrival], None],
        watched: Container[MessageQueue] | None,
        clock_trusted: Callable[[], bool],
    ) -> None:
        self.verdict: RecoveryVerdict = opened.recovered.verdict
        self.lineage: Lineage = opened.lineage
        self.losses = opened.losses
        self.config = config
        self.retain: Callable[[int, int], bool] = _may_go  # may segment [base, end) go? set by the uplink
        self.trouble: str | None = None  # the last error of maintenance
        self._state_files: list[StateFile | JournalFile] = []
        self._opened, self._disk = opened, disk
        hooks = Hooks(
            now_ms,
            arrived,
            watched,
            clock_trusted,
            may_go=lambda base, end: self.retain(base, end),
            note_trouble=self.note_trouble,
            state_file=lambda name: self.state_file(name, folder="rocketbox"),
        )
        self._parts = parts = compose(config, disk, opened, hooks)
        self._maintenance = make_maintenance(config, disk, parts, hooks)
        self._maintenance.trusted = opened.recovered.trusted
        self._log, self._flusher, self._lookup, self._queues = parts.log, parts.flusher, parts.lookup, parts.queues
        self.put, self.put_batch = parts.appender.put, parts.appender.put_batch  # no call in between: 0.1 µs each
        self.when_committed, self.when_synced = parts.log.when_committed, parts.log.when_synced
        self.wait_committed, self.when_acknowledged = parts.log.wait_committed, parts.log.when_answered
        self.append_raw = parts.raw.append
        self.delete_topic, self.drop_first = parts.deletion.delete_topic, parts.deletion.drop_first
        if opened.committed is not None:
            self._begin_shared(opened.committed)

    def damaged(self) -> list[tuple[int, int]]:
        """Return the ranges of the log that this recovery or an earlier one found damaged and covered. Blocks.

        A verdict of an earlier one has no checksum: what of its ranges is covered counts, and no message.
        """
        known = known_damage(self.config, self._disk, (run for run, _ in self.lineage.runs))
        found = {(damage.start, damage.end) for damage in self.verdict.quarantined}
        for start, end in known:
            with suppress(OSError):  # a bad sector: it is shipped, or told, as any other
                found.update(covered(self._log.segments, start, min(end, self._log.committed)))
        return sorted(found)

    # ---- a log that others share

    def _begin_shared(self, file: CommittedFile) -> None:
        recovered = self._opened.recovered
        uncommitted = [self._parts.raw.pending(each, recovered.wrong_numbers) for each in recovered.uncommitted]
        self._log.begin_shared(uncommitted, uncommitted[0].log_offset if uncommitted else recovered.end)
        self._flusher.restart.committed_file = file

    def share(self, synced_to: Callable[[int], None], writing: Writing | None = None) -> None:
        """From now on `commit` alone moves `committed`; synced_to(log_offset) is called after each sync.

        writing(writes, end) is called as a batch begins to be written.
        """
        self._log.share(synced_to, writing)

    def bound_answers(self) -> Mark:
        """Let clients wait at a mark of their own from now on, so that their wait can end early; return it."""
        return self._log.bound_answers()

    @property
    def copies(self) -> SegmentCopies:
        """Where whole segments of another log become part of this one."""
        return self._parts.copies

    def pause_index(self, rests: bool) -> None:
        """Let the index rest while this copy is far behind its log, or have it catch up."""
        self._flusher.indexer.pause(rests)

    def only_copies(self, reason: str | None) -> None:
        """Take nothing but records of another log, for a reason; None: take messages again."""
        self._parts.appender.only_copies(reason)

    def commit(self, log_offset: int) -> None:
        """Let what is below a log offset be seen and acknowledged, as far as it is synced; never falls."""
        self._log.commit(log_offset)

    def commit_alone(self) -> None:
        """What is on this disk is committed, now and from now on."""
        self._log.commit_alone()

    async def begin_at(self, log_offset: int) -> None:
        """Have a log that never held a record begin at a segment's first byte. Raises ValueError, OSError."""
        await self._parts.deletion.begin_at(log_offset)

    async def restart_queue(self, topic: str, queue_id: int) -> None:
        """Delete a queue whose numbers begin again in the log that this one is a copy of. Raises OSError, LogFailed."""
        await self._parts.deletion.restart_queue(topic, queue_id)

    async def delete_ended(self, topic: str, log_offset: int) -> None:
        """Delete a topic's queues that have nothing at a log offset, where it was deleted, or above. Raises OSError."""
        await self._parts.deletion.delete_ended(topic, log_offset)

    async def truncate(self, log_offset: int, reason: str) -> CutDone | None:
        """Take back what is above a log offset, `committed` or higher, on this disk too; it goes to quarantine/.

        Raises ValueError below `committed` or above `synced`, LogFailed.
        """
        return await self._log.truncate(log_offset, reason, Truncation(self._disk, self.config.root))

    # ---- marks

    @property
    def full(self) -> str | None:
        """Why appends are refused for lack of space, None while they are not."""
        appender = self._parts.appender
        return appender.full if appender.lacks_space else None

    @full.setter
    def full(self, reason: str | None) -> None:
        self._parts.appender.set_full(reason)

    @property
    def synced(self) -> int:
        """Every byte of the log below is on this disk and survives a power cut."""
        return self._log.synced

    @property
    def committed(self) -> int:
        """Every byte of the log below may be acknowledged, pulled and shipped; without replicas that is `synced`."""
        return self._log.committed

    @property
    def dispatched(self) -> int:
        """How many records have been committed since the opening."""
        return self._log.dispatched

    @property
    def end(self) -> int:
        """Where the next record will be appended."""
        return self._log.end

    @property
    def first(self) -> int:
        """The lowest log offset on disk."""
        return self._log.first

    @property
    def truncations(self) -> int:
        """How often the log gave up what was not durable: marks from before mean other records since."""
        return self._log.truncations

    @property
    def failure(self) -> str | None:
        """Why the log was sealed, None while it works."""
        return self._log.failure

    def seal(self, reason: str) -> None:
        """Refuse every append from now on: reads continue, `failure` is the reason."""
        self._log.seal(reason)

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the number the next visible message will have, 0 for a queue that does not exist."""
        found = self._queues.get(queue)
        return found.visible if found is not None else 0

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the first message still in the log, max_offset when there is none."""
        found = self._queues.get(queue)
        return self._lookup.low(found) if found is not None else 0

    def has_queue(self, queue: MessageQueue) -> bool:
        """Tell whether the queue has ever had a message."""
        return queue in self._queues

    def queues(self, topic: str) -> list[int]:
        """Return the ids of the topic's queues."""
        return self._parts.topic_queues.of(topic)

    def topics(self) -> list[str]:
        """Return the topics that have a queue."""
        return self._parts.topic_queues.topics()

    def topics_since(self, log_offset: int) -> dict[str, int]:
        """Return the topics with records at or above a log offset, and their highest queue."""
        return topics_since(self._queues, log_offset)

    # ---- reading

    def read_hot(self, wanted: ReadRequest) -> ReadResult | None:
        """Return messages without waiting for the disk, None when that cannot be done: then use `read`."""
        return self._lookup.read_hot(wanted)

    async def read(
        self,
        queue: MessageQueue,
        queue_offset: int,
        *,
        max_count: int,
        max_bytes: int,
        accepts: Callable[[int], bool] | None = None,
        accepts_record: Callable[[memoryview], bool] | None = None,
    ) -> ReadResult:
        """Return messages, waiting for the disk in a thread if need be; bodies are checked. Raises OSError."""
        wanted = ReadRequest(queue, queue_offset, max_count, max_bytes, accepts, accepts_record)
        return await self._lookup.read(wanted)

    async def record_at(self, log_offset: int, size: int | None = None) -> bytes | None:
        """Return the whole record that begins there, None when there is none. Raises OSError."""
        return await self._lookup.record_at(log_offset, size)

    async def record_of(self, queue: MessageQueue, log_offset: int, size: int) -> bytes:
        """Return the bytes of a record of a queue, none where the disk does not give it back. Raises OSError."""
        return await self._lookup.record_of(queue, log_offset, size)

    def age_ms(self, log_offset: int, stored_ms: int) -> int:
        """Return for how long the box has been running since a record was stored: no step of the clock counts."""
        return self._parts.clock.age_ms(log_offset, stored_ms)

    async def offset_by_time(self, queue: MessageQueue, time_ms: int, *, boundary: str = "nearest") -> int:
        """Return the message stored nearest to a time; "lower": first not before it, "upper": last not after it."""
        return await self._lookup.offset_by_time(queue, time_ms, boundary)

    async def stored_ms_at(self, queue: MessageQueue, queue_offset: int) -> int | None:
        """Return the store time of one message, None when it is not there."""
        return await self._lookup.stored_ms_at(queue, queue_offset)

    async def find_by_key(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> list[bytes]:
        """Return whole records with this key (UNIQ_KEY or one of KEYS), oldest first, at most 64."""
        await self._flusher.index_now()
        return await self._lookup.find_by_key(f"{topic}#{key}", max_count, begin_ms, end_ms)

    def read_log(self, start: int, max_bytes: int, *, synced: bool = False) -> bytes:
        """Return bytes of the log up to a segment's end, none when they are gone. Blocks: for threads.

        synced: also those that are not committed.
        """
        count = min(max_bytes, (self._log.synced if synced else self._log.committed) - start)
        return (read_log(tuple(self._log.segments), start, count) or b"") if count > 0 else b""

    def is_unreadable(self, start: int, end: int) -> bool:
        """Tell whether a range of the log cannot be read although its disk gives back other blocks. Blocks.

        Raises OSError.
        """
        return self._lookup.bad_sectors.is_unreadable(start, end)

    def segments(self) -> list[SegmentFacts]:
        """Return the files of the log, oldest first."""
        end = self._log.committed
        return [SegmentFacts(s.base, min(s.end, end), s.size, s.path) for s in self._log.segments]

    def segment_of(self, log_offset: int) -> SegmentFacts | None:
        """Return the file that holds a log offset."""
        found = self._log.segment_of(log_offset)
        return SegmentFacts(found.base, min(found.end, self._log.committed), found.size, found.path) if found else None

    # ---- tables, maintenance

    @property
    def segment_bytes(self) -> int:
        """The size of this log's files, which may differ from the configured one."""
        return self._log.segment_bytes

    async def check_space(self) -> None:
        """Look at the disk now instead of at the next round; appends resume when there is room. Raises OSError."""
        await self._maintenance.check_space()

    async def check_all(self) -> None:
        """Check every record and its queue entry now, as the scrub does over hours. Raises OSError."""
        await self._maintenance.scrub.whole()

    def note_trouble(self, text: str) -> None:
        """Remember an error that stops nothing."""
        self.trouble = text

    def state_file(self, name: str, *, folder: str = "config") -> StateFile:
        """Return the file of a small table, in `config` (Apache's) or `rocketbox` (ours)."""
        file = StateFile(self._opened.tables, state_path(self.config.root, name, folder))
        self._state_files.append(file)
        return file

    def journal_file(self, name: str) -> JournalFile:
        """Return a journal in `rocketbox`; its owner loads, replaces and appends."""
        file = JournalFile(self._opened.tables, self.config.root / "rocketbox" / name)
        self._state_files.append(file)
        return file

    def unsaved(self) -> list[str]:
        """Return which tables could not be saved the last time, and why."""
        return [
            f"{file.path.parent.name}/{file.path.name}: {file.failure.strerror}"
            for file in self._state_files
            if file.failure is not None
        ]

    def guessed(self) -> list[Path]:
        """Return which tables were damaged at a start and begun anew, until somebody removes their `.damaged`."""
        files = {file.path: file for file in self._state_files if isinstance(file, StateFile)}
        return [path for path, file in files.items() if file.is_guessed()]

    def unreadable(self) -> list[str]:
        """Return which bytes of which files the disk did not give back, to the start or to who reads tables since."""
        return self._opened.tables.told()

    async def prove(self) -> None:
        """Write and sync something small, so that an idle store can show that its disk works. Raises OSError."""
        async with self._flusher.guard:
            await self._flusher.prove()

    def statistics(self) -> StoreStatistics:
        """Return a snapshot of the counts."""
        c, log, upkeep = self._log.counters, self._log, self._maintenance
        return StoreStatistics(
            messages=log.dispatched,
            bytes=c.bytes,
            syncs=c.syncs,
            sync_s=c.sync_s,
            slowest_sync_s=c.slowest_s,
            sync_us=tuple(c.histogram),
            cold_reads=self._lookup.cold_reads,
            queues=len(self._queues),
            end=log.end,
            synced=log.synced,
            committed=log.committed,
            position=self._flusher.restart.values.queues_to,
            index_to=self._flusher.indexer.upto,
            first=log.first,
            deleted_segments=upkeep.deleted_segments,
            damaged_ranges=len(self._parts.damage.ranges),
            scrubbed_bytes=upkeep.scrub.checked_bytes,
            disk_percent=upkeep.space.usage.percent,
            full_in_h=upkeep.space.full_in_h,
            full=self.full,
            trouble=self.trouble,
            scrub_passes=upkeep.scrub.passes,
            scrub_left_s=upkeep.scrub.left_s,
            latest_ms=upkeep.latest_ms(),
        )

    def evidence(self) -> SyncEvidence:
        """Return what the watchdog wants to know."""
        log, failure = self._log, None if self._flusher.lacks_room else self._flusher.failure
        age = trio.current_time() - log.proven_at if log.proven_at is not None else 0.0
        return SyncEvidence(age, log.waiting_s, log.failure or (str(failure) if failure is not None else None))

    def _begin(self) -> None:
        """Save where recovery left off, load the clock's epochs. Blocks. Raises StoreUnwritable, OSError."""
        recovered, boot = self._opened.recovered, self._opened.boot
        try:
            self._flusher.begin(recovered.position, self._log.committed, boot, recovered.last_stored_ms)
            self._maintenance.begin()
        except PermissionError as exc:
            raise StoreUnwritable(exc) from exc

    async def run(self) -> None:
        """Write the log and the tables until cancelled."""
        self._log.proven_at = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_log)
            nursery.start_soon(self._flusher.run)
            nursery.start_soon(self._spares)
            nursery.start_soon(self._maintenance.run)

    async def _run_log(self) -> None:
        """Write the log until it fails; the next start hears where the disk did not take it."""
        await self._log.run()
        if (refused := self._log.refused) is not None:
            await trio.to_thread.run_sync(note_unwritable, self._opened.tables, self.config.root, *refused)

    async def _spares(self) -> None:
        """Have the next segment ready before the log reaches it; half a segment is written in more than a second."""
        while True:
            end = self._log.end
            try:
                await self._log.prepare_spare()
            except OSError:
                pass  # the roll will try itself and tell
            await trio.sleep(0.2 if self._log.end != end else 1.0)


@asynccontextmanager
async def open_store(
    config: StoreConfig,
    *,
    now_ms: Callable[[], int],
    arrived: Callable[[Arrival], None] = ignore,
    watched: Container[MessageQueue] | None = None,
    disk: Disk | None = None,
    new_id: Callable[[], int] = lambda: int.from_bytes(os.urandom(8)) >> 1 | 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
    unreadable: Callable[[int], None] = lambda count: None,
    clock_trusted: Callable[[], bool] = lambda: True,
    retain: Callable[[int, int], bool] = _may_go,
    others: Mapping[str, int] = MappingProxyType({}),
) -> AsyncIterator[MessageStore]:
    """Lock, recover and run the store; ready to append when it yields. Raises StoreRefused, StoreUnwritable.

    `arrived` is told of messages in queues that are `watched` at that moment, None: in all.
    `progress(done, total)` is called in a thread while the log is scanned, `unreadable(number of blocks)` for each that
    the disk does not give back. `retain` is `store.retain` from the first
    round of maintenance on, which comes before the caller sees the store. `others`: who, besides what is in the
    folder, knows up to which log offset the log was durable.
    """
    disk = disk if disk is not None else RealDisk()
    told = partial(open_folder, progress=progress, unreadable=unreadable, others=others)
    opened = await trio.to_thread.run_sync(partial(told, config, disk, now_ms=now_ms, new_id=new_id))
    try:
        store = MessageStore(
            config, disk, opened, now_ms=now_ms, arrived=arrived, watched=watched, clock_trusted=clock_trusted
        )
        store.retain = retain
        await trio.to_thread.run_sync(with_room, disk, config.root, store._begin)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.run)
            yield store
            nursery.cancel_scope.cancel()
    finally:
        opened.lock.release()


__all__ = ["AppendResult", "Arrival", "MessageStore", "StoreConfig", "open_store"]
