"""From any bytes in the folder to a log that can be appended to: scan, cut the tail, cover damage, complete the queues.

No acknowledged message is discarded: bytes that are not records are copied to quarantine/ before they are covered.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from storage_driver.errors import StoreRefused
from storage_driver.files.checkpoint import CheckpointFile, CheckpointValues, PositionFile
from storage_driver.files.disk import Disk, data_pieces, zero_fill
from storage_driver.files.unreadable import BLOCK, only_unreadable, plain, unreadable_in, zero_unreadable
from storage_driver.log.scan import Bad, Blank, fill, is_filler, next_good, walk, why_unreadable
from storage_driver.log.segment import Segment
from storage_driver.log.unwritable import note_unwritable
from storage_driver.named_tuple import NamedTuple
from storage_driver.queues.consume_queue import ConsumeQueue, QueueFiles
from storage_driver.queues.dispatch import is_queued
from storage_driver.queues.queue_table import QueueTable, load_table, table_file
from storage_driver.record import DELAY_LEVELS_MS, DispatchEntry, MessageQueue
from storage_driver.recovery.log_files import MOST_MISSING, LogFiles
from storage_driver.recovery.losing import Losing
from storage_driver.recovery.losses import Losses
from storage_driver.recovery.lost_numbers import LostNumbers
from storage_driver.recovery.odd_numbers import OddNumbers
from storage_driver.recovery.queue_recovery import QueueRecovery
from storage_driver.recovery.verdict import Damage, RecoveryVerdict
from storage_driver.recovery.witnesses import ENTRIES, Witnesses, whole_from

SYNC_SINGLY = 32  # with more files written one sync of the file system is cheaper


class Recovered(NamedTuple):
    """The state to continue from."""

    segments: list[Segment]
    end: int
    segment_bytes: int
    queues: dict[Any, ConsumeQueue]
    position: CheckpointValues | None
    last_stored_ms: int
    verdict: RecoveryVerdict
    trusted: list[MessageQueue]  # queues whose files were not looked at
    uncommitted: list[DispatchEntry]  # records of a shared log above what it knew committed: in no queue
    wrong_numbers: dict[int, int | None]  # of these, by log offset: their numbers are damaged; what they were, if known


class Recovery:
    """One recovery of one folder; every method may raise OSError when the disk cannot be read."""

    def __init__(
        self,
        disk: Disk,
        root: Path,
        segment_bytes: int,
        *,
        files: QueueFiles,
        progress: Callable[[int, int], None],
        delays_ms: tuple[int, ...] = DELAY_LEVELS_MS,
        trust_above: int = 1000,
        committed: int | None = None,
        losses: Losses,
        others: Mapping[str, int] = MappingProxyType({}),
        first: int | None = None,
        copies: bool = False,
        now_ms: int = 0,
    ) -> None:
        """committed: of a log that others share, below which all was committed; None: all that is there is.

        copies: the log is a copy, so that what is torn is cut although records follow it.
        others: who else knows how far the log was durable, by name; first: below it the log was deleted on purpose.
        """
        self._delays_ms, self._trust_above = delays_ms, trust_above
        self.verdict = RecoveryVerdict()
        self._disk, self._root, self._files, self._progress = disk, root, files, progress
        self._losing = Losing(losses, Witnesses(losses.known_to), LostNumbers(files), now_ms)
        self._log_files = LogFiles(disk, root, segment_bytes, verdict=self.verdict, losing=self._losing.note)
        self._others, self._known_to, self._first, self._copies = others, losses.known_to, first, copies
        self._last_stored_ms = 0
        self._committed, self._uncommitted = committed, list[DispatchEntry]()

    def run(self) -> Recovered:
        """Recover and return the state; everything kept is on stable storage then."""
        began = time.perf_counter()
        verdict = self.verdict
        position_file = PositionFile(self._disk, self._root / "rocketbox" / "position")
        position = position_file.load()
        if position_file.damage is not None:
            verdict.reasons.append(f"rocketbox/{position_file.damage}")
        table = load_table(table_file(self._disk, self._root))
        self._losing.witnesses.add_all(position, table, self._others)
        reach = self._losing.witnesses.reach
        segments = self._log_files.load(position, reach, self._first)
        self._bridge(segments)
        position = self._confirmed(segments, position)
        start = self._start(segments, position, table)
        verdict.first = segments[0].base if segments else 0
        queues = self._load_queues(segments, position, start, table)
        end = self._scan(segments, start, queues)
        segments = [segment for segment in segments if segment.base <= end]
        queues.finish(end, [(damage.start, damage.end) for damage in verdict.quarantined])
        wrong_numbers = queues.misnumbered(self._uncommitted)
        verdict.end, verdict.scanned_from, verdict.scanned_bytes = end, start, end - start
        self._judge(queues)
        verdict.seconds = time.perf_counter() - began
        return Recovered(
            [segment._replace(file=plain(segment.file)) for segment in segments],
            end,
            self._log_files.segment_bytes,
            queues.queues,
            position,
            self._last_stored_ms or (position.stored_ms if position is not None else 0),
            verdict,
            list(queues.noted.trusted),
            self._uncommitted,
            wrong_numbers,
        )

    def _judge(self, queues: QueueRecovery) -> None:
        """Complete losses and verdict, and make durable what was written."""
        verdict, misnumbered = self.verdict, self._losing.misnumbered(queues.odd.wrong)
        verdict.reasons += misnumbered
        self._tell_unread()
        verdict.lost = self._losing.finish()
        verdict.queues_rebuilt, verdict.queues_cut = queues.rebuilt, queues.files.cut
        self._sync(queues)
        verdict.judge(salvaged=bool(misnumbered))

    def _tell_unread(self) -> None:
        """List what a rebuild of queues could not read below the scan: its messages have no entries any more."""
        losing, end = self._losing, self.verdict.end
        for bad, stop in [(bad, min(stop, end)) for bad, stop in losing.numbers.unread if bad.log_offset < end]:
            losing.unreadable(bad.log_offset, stop, f"bytes {bad.log_offset} to {stop}: {bad.reason}", bad.lost)

    def _sync(self, queues: QueueRecovery) -> None:
        if queues.files.touched > SYNC_SINGLY:
            try:
                self._disk.sync_all(self._root)
            except OSError:
                queues.sync()  # one by one, so that the next start knows which file it was
                raise
            queues.synced()
        else:
            queues.sync()

    def _confirmed(self, segments: list[Segment], position: CheckpointValues | None) -> CheckpointValues | None:
        """The stored position when it is within the log."""
        if position is None or not segments:
            return position
        if not segments[0].base <= position.queues_to <= segments[-1].end:
            self.verdict.reasons.append(f"position {position.queues_to} is outside the log")
            return None
        return position

    def _load_queues(
        self, segments: list[Segment], position: CheckpointValues | None, start: int, table: QueueTable
    ) -> QueueRecovery:
        note, lost = self.verdict.reasons.append, self._losing.numbers
        queues = QueueRecovery(
            self._disk,
            self._root,
            self._files,
            segments,
            note,
            delays_ms=self._delays_ms,
            lost=lost,
            odd=OddNumbers(),
        )
        queues.damaged_bytes = sum(end - begin for begin, end in lost.ranges)
        if start == table.as_of and self._may_trust(table, segments, position):
            queues.trust(table)
        else:
            queues.load(start, [(damage.start, damage.end) for damage in self.verdict.quarantined], table)
        if not segments:
            self._losing.note(self._first or 0, self._losing.witnesses.reach, "commitlog/ holds no file of the log")
            self._losing.count_all(queues.queues.values())
        elif self._first is not None and self._first < segments[0].base:
            self._losing.count_all(queues.queues.values(), segments[0].base)
        return queues

    def _may_trust(self, table: QueueTable, segments: list[Segment], position: CheckpointValues | None) -> bool:
        """Tell whether the queues can be taken from their table: so many that looking at each takes long."""
        if len(table.rows) <= self._trust_above or position is None or not segments or self.verdict.quarantined:
            return False
        return segments[0].base <= table.as_of <= position.queues_to

    def _start(self, segments: list[Segment], position: CheckpointValues | None, table: QueueTable) -> int:
        """Return where to scan from: behind the table's `as_of` only the log tells where queues end.

        Entries that were lost from the end of a file would go unseen otherwise, and their numbers be given out again.
        Where the log is not what it was before, the scan begins there.
        """
        if not segments:  # the whole log is gone, or it holds nothing yet: continue behind it
            known = max(self._first or 0, self._losing.witnesses.reach, self._known_to)
            known = max(known, position.queues_to if position is not None else 0)
            return -(-known // self._log_files.segment_bytes) * self._log_files.segment_bytes
        first, suspect = segments[0].base, self._log_files.suspect
        if position is None:
            return first if table.rows else self._apache_start(segments)
        start = max(first, min(position.queues_to, table.as_of))
        if suspect is not None:
            start = min(start, max(first, suspect))
        newest = max((row.last_log_offset for row in table.rows if row.last_log_offset < start), default=-1)
        return whole_from(segments, start, newest)

    def _apache_start(self, segments: list[Segment]) -> int:
        times = CheckpointFile(self._disk, self._root / "checkpoint").load()
        if times is not None:
            for segment in reversed(segments):
                head = next(walk(segment, segment.base))
                if isinstance(head, DispatchEntry) and 0 < head.stored_ms <= times.restart_ms:
                    return segment.base
        return segments[0].base

    def _scan(self, segments: list[Segment], start: int, queues: QueueRecovery) -> int:
        """Walk from start to the end of the log, cutting the torn tail and covering damage; return the end."""
        at = start
        for number, segment in enumerate(segments):
            if segment.end <= start:
                continue
            at = max(at, segment.base)
            while at < segment.end:
                at, bad = self._scan_run(segment, at, queues)
                if bad is None:
                    break
                stop = self._end_of_damage(segments, number, at, queues)
                if stop is None:
                    return self._cut(segment, at)
                at = self._cover(segment, bad, stop, queues)
            self._sync_segment(segment, at)
            self._progress(segment.end - start, segments[-1].end - start)
            if number == len(segments) - 1:
                self._went_on(segments, at, queues)
        return at

    def _end_of_damage(self, segments: list[Segment], number: int, at: int, queues: QueueRecovery) -> int | None:
        """Return how far what is no record goes that begins at a log offset, None when the log ends there."""
        segment, is_last = segments[number], number == len(segments) - 1
        behind = next_good(segment, at + 1)
        if behind is not None and self._copies and is_last and not self._is_known_beyond(segments, at, queues):
            self._log_files.quarantine_range(segment, at, segment.end)  # whole records, should no other copy be
            behind = None  # what was not synced comes again from where it was copied, whole
        if behind is not None or not is_last:
            return behind or segment.end
        return segment.end if self._went_on(segments, at, queues) else self._unreadable_to(segment, at)

    def _unreadable_to(self, segment: Segment, at: int) -> int | None:
        """Return where to continue behind what cannot be read above the last record, None when there is nothing.

        It may be what was acknowledged last, so it is no torn tail; a copy gets it again from where it was copied.
        """
        start, size = at - segment.base, segment.size
        if self._copies or not (unreadable := unreadable_in(segment.file, start, size)):
            return None
        dirty = [place + len(data.rstrip(b"\0")) for place, data in data_pieces(segment.file, start, size)]
        stop = segment.base + max([unreadable[-1][1], *dirty])
        return stop if segment.end - stop > BLOCK else segment.end

    def _is_known_beyond(self, segments: list[Segment], at: int, queues: QueueRecovery) -> bool:
        """Tell whether anybody knows the log to have been on this disk beyond a log offset."""
        witnesses = self._losing.witnesses
        witnesses.add(ENTRIES, queues.reach(at, segments[-1].end))
        return witnesses.reach > at

    def _went_on(self, segments: list[Segment], end: int, queues: QueueRecovery) -> bool:
        """Tell whether the log continued after what is left of it; then blank segments fill the range."""
        losing, far = self._losing, MOST_MISSING * self._log_files.segment_bytes
        losing.witnesses.add(ENTRIES, queues.reach(end, max(segments[-1].end + far, self._reach(segments))))
        reach = losing.witnesses.reach
        if reach <= end:
            return False
        losing.note(end, reach, f"the log ends at {end}, {' and '.join(losing.witnesses.beyond(end))} knew of more")
        self._bridge(segments)
        return True

    def _bridge(self, segments: list[Segment]) -> None:
        """Put blank segments up to where the log reached."""
        if segments:
            self._log_files.bridge(segments, self._reach(segments))

    def _reach(self, segments: list[Segment]) -> int:
        """Return how far the log reached, as seen from the end of what is left."""
        far = MOST_MISSING * self._log_files.segment_bytes
        return self._losing.witnesses.reach_from(segments[-1].end, far)

    def _scan_run(self, segment: Segment, at: int, queues: QueueRecovery) -> tuple[int, Bad | None]:
        for item in walk(segment, at):
            if isinstance(item, Blank):
                return segment.end, None
            if isinstance(item, Bad):
                return item.log_offset, item
            self._last_stored_ms = item.stored_ms
            if self._committed is not None and item.log_offset >= self._committed:
                self._uncommitted.append(item)
            elif is_queued(item.sys_flag) and not is_filler(item):
                queues.add(item)
        return at, None

    def _cut(self, segment: Segment, at: int) -> int:
        self.verdict.torn_bytes = zero_fill(segment.file, at - segment.base, segment.size)
        zero_unreadable(segment.file, at - segment.base, segment.size)
        self._sync_segment(segment, at)
        return at

    def _sync_segment(self, segment: Segment, log_offset: int) -> None:
        """Sync a segment; what its disk did not take has the next start copy it. Raises OSError."""
        try:
            segment.file.sync()
        except OSError as exc:
            only_unreadable(exc)
            note_unwritable(self._disk, self._root, log_offset, segment.base)
            raise

    def _cover(self, segment: Segment, bad: Bad, end: int, queues: QueueRecovery) -> int:
        why = f"bytes {bad.log_offset} to {end}: {bad.reason}"
        self._losing.note(bad.log_offset, end, why)
        if why_unreadable(segment, bad.log_offset, end) is not None:
            self._losing.unreadable(bad.log_offset, end, why, bad.lost)
            if bad.lost is None and not self._copies:
                self._losing.numbers.headless.append((bad.log_offset, end))
        name = self._log_files.quarantine_range(segment, bad.log_offset, end)
        if bad.lost is not None and is_queued(bad.lost.sys_flag):
            queues.lose(bad.lost)
        queues.damaged_bytes += end - bad.log_offset
        covered = fill(segment, bad.log_offset, end, self._last_stored_ms)
        zero_unreadable(segment.file, bad.log_offset - segment.base, covered - segment.base)
        self._sync_segment(segment, bad.log_offset)
        self.verdict.quarantined.append(Damage(bad.log_offset, covered, bad.reason, name))
        return covered


def refuse_small_segments(segment_bytes: int, max_message_bytes: int) -> None:
    """Raise StoreRefused unless the largest record and a blank fit into one segment."""
    if segment_bytes < max_message_bytes + 65544:
        raise StoreRefused(
            f"segments of {segment_bytes} bytes cannot hold a message of {max_message_bytes}: "
            f"set store.segment_mib to at least {(max_message_bytes + 65544 + (1 << 20) - 1) >> 20}"
        )
