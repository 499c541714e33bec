"""From any bytes in the folder to a log that can be appended to: scan, cut the tail, cover damage, complete the queues.

Nothing acknowledged is given up: bytes that cannot be read as records are copied aside before they are covered.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from storage_driver.checkpoint import CheckpointFile, Position, PositionFile
from storage_driver.consume_queue import ConsumeQueue, QueueFiles
from storage_driver.disk import Disk, data_pieces, zero_fill
from storage_driver.dispatch import is_queued
from storage_driver.errors import StoreRefused
from storage_driver.named_tuple import NamedTuple
from storage_driver.quarantine import quarantine_range
from storage_driver.queue_recovery import QueueRecovery
from storage_driver.queue_table import QueueTable, load_table, table_file
from storage_driver.record import DELAY_LEVELS_MS, Entry, MessageQueue
from storage_driver.scan import Bad, Blank, fill, intact, is_filler, next_good, walk
from storage_driver.segment import Segment, segment_name
from storage_driver.shapes import is_segment_name, set_aside

MOST_BRIDGED = 64
MOST_LOG_OFFSET = 1 << 63
SYNC_SINGLY = 32  # with more files written one sync of the file system is cheaper


class Damage(NamedTuple):
    """A range of the log that held no good records and was covered."""

    start: int
    end: int
    reason: str
    aside: str | None  # name in quarantine/ of the bytes found

    def to_json(self) -> dict[str, Any]:
        """Return the verdict's form."""
        return {"from": self.start, "to": self.end, "reason": self.reason, "aside": self.aside}


class RecoveryVerdict:
    """What recovery found and did."""

    def __init__(self) -> None:
        self.verdict = "clean"  # clean_tail: torn tail cut; repaired: see reasons; salvaged: damage, foreign records
        self.first = self.end = 0
        self.scanned_from = self.scanned_bytes = self.torn_bytes = 0
        self.quarantined: list[Damage] = []
        self.moved = 0  # files that were set aside
        self.foreign_records = False  # in one of them
        self.queues_rebuilt = self.queues_cut = self.index_rebuilt = 0
        self.reasons: list[str] = []
        self.seconds = 0.0

    def judge(self) -> None:
        """Set the verdict from what was found."""
        if self.quarantined or self.foreign_records:
            self.verdict = "salvaged"
        elif self.queues_rebuilt or self.moved:
            self.verdict = "repaired"
        elif self.torn_bytes:
            self.verdict = "clean_tail"

    def to_json(self) -> dict[str, Any]:
        """Return what the verdict file holds of it."""
        log = {
            "first": self.first,
            "from": self.scanned_from,
            "end": self.end,
            "scanned_bytes": self.scanned_bytes,
            "torn_bytes": self.torn_bytes,
            "quarantined": [damage.to_json() for damage in self.quarantined],
        }
        return {
            "verdict": self.verdict,
            "seconds": round(self.seconds, 3),
            "log": log,
            "queues": {"rebuilt": self.queues_rebuilt, "cut": self.queues_cut},
            "index": {"rebuilt": self.index_rebuilt},
            "reasons": self.reasons[:50],
            "salvage": self.quarantined[0].aside if self.quarantined else None,
        }


class Recovered(NamedTuple):
    """The state to go on from."""

    segments: list[Segment]
    end: int
    segment_bytes: int
    queues: dict[Any, ConsumeQueue]
    position: Position | None
    last_stored_ms: int
    verdict: RecoveryVerdict
    trusted: list[MessageQueue]  # queues whose files were not looked at
    uncommitted: list[Entry]  # records of a shared log above what it knew committed: in no queue


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
    ) -> None:
        """committed: of a log that others share, below which all was committed; None: all that is there is."""
        self._delays_ms, self._trust_above = delays_ms, trust_above
        self.verdict = RecoveryVerdict()
        self._disk, self._root, self._segment_bytes, self._files, self._progress = (
            disk,
            root,
            segment_bytes,
            files,
            progress,
        )
        self._log = root / "commitlog"
        self._last_stored_ms = 0
        self._committed, self._uncommitted = committed, list[Entry]()
        self._protected = dict[int, PermissionError]()  # by base: segments that are only read

    def run(self) -> Recovered:
        """Recover and return the state; everything kept is on stable storage then."""
        began = time.perf_counter()
        verdict = self.verdict
        position_file = PositionFile(self._disk, self._root / "rocketbox" / "position")
        position = position_file.load()
        if position_file.damage is not None:
            verdict.reasons.append(f"rocketbox/{position_file.damage}")
        segments = self._load_segments(position)
        self._bridge(segments, position)
        position = self._confirmed(segments, position)
        start = self._start(segments, position)
        verdict.first = segments[0].base if segments else 0
        queues = QueueRecovery(
            self._disk, self._root, self._files, segments, verdict.reasons.append, delays_ms=self._delays_ms
        )
        table, start = self._table(segments, position, start)
        if self._may_trust(table, segments, position):
            start = table.as_of
            queues.trust(table)
        else:
            queues.load(start, [(damage.start, damage.end) for damage in verdict.quarantined], table)
        end = self._scan(segments, start, queues)
        segments = [segment for segment in segments if segment.base <= end]
        queues.finish(end, [(damage.start, damage.end) for damage in verdict.quarantined])
        verdict.queues_rebuilt, verdict.queues_cut = queues.rebuilt, queues.cut
        self._sync(queues)
        verdict.end, verdict.scanned_from, verdict.scanned_bytes = end, start, end - start
        verdict.judge()
        verdict.seconds = time.perf_counter() - began
        return Recovered(
            segments,
            end,
            self._segment_bytes,
            queues.queues,
            position,
            self._last_stored_ms or (position.stored_ms if position is not None else 0),
            verdict,
            list(queues.trusted),
            self._uncommitted,
        )

    def _sync(self, queues: QueueRecovery) -> None:
        if queues.touched > SYNC_SINGLY:
            self._disk.sync_all(self._root)
            queues.synced()
        else:
            queues.sync()

    def _set_aside(self, path: Path, why: str) -> None:
        name = set_aside(self._disk, self._root, path)
        self.verdict.moved += 1
        self.verdict.reasons.append(f"{path.parent.name}/{path.name}: {why}, moved to quarantine/{name}")

    def _load_segments(self, position: Position | None) -> list[Segment]:
        """Open the log's files; foreign ones are set aside, lengths put right, missing ones replaced by a blank."""
        sizes: dict[int, int] = {}
        for facts in self._disk.list(self._log):
            path = self._log / facts.name
            if facts.is_folder or not is_segment_name(facts.name):
                self._set_aside(path, "not a segment's name")
            elif facts.size == 0:
                self._disk.remove(path)
            else:
                sizes[int(facts.name)] = facts.size
        if not sizes:
            return []
        size = self._segment_bytes = self._true_size(sizes)
        segments: list[Segment] = []
        for base in self._reached(sizes, position):
            if segments and segments[-1].end < base and not self._has_record(base, sizes[base]):
                self._set_aside(self._log / segment_name(base), "holds no record, and no file before it is the log's")
                continue
            while segments and segments[-1].end < base:
                segments.append(self._open_segment(segments[-1].end, size, None))
            segments.append(self._open_segment(base, size, sizes[base]))
        while len(segments) > 1 and next(data_pieces(segments[-1].file, 0, size), None) is None:
            self._disk.remove(segments.pop().path)  # prepared, never written
        if segments and segments[-1].base in self._protected:
            raise self._protected[segments[-1].base]  # it is to be written
        return segments

    def _reached(self, sizes: dict[int, int], position: Position | None) -> list[int]:
        """Return where the log's files begin; what is no part of it is set aside, not reached by blanks.

        A gap of many files tells two logs apart. This box's is the one with the position, without one the larger.
        """
        size = self._segment_bytes
        logs: list[list[int]] = [[]]
        for base in sorted(sizes):
            if base % size:
                self._set_aside(self._log / segment_name(base), f"begins at no multiple of {size}")
            elif base + size > MOST_LOG_OFFSET:
                self._set_aside(self._log / segment_name(base), "no log reaches so far")
            else:
                if logs[-1] and base - logs[-1][-1] > (MOST_BRIDGED + 1) * size:
                    logs.append([])
                logs[-1].append(base)
        own = max(logs, key=len)
        if position is not None:
            own = next((log for log in logs if log and log[0] <= position.queues_to <= log[-1] + size), own)
        for base in [base for log in logs if log is not own for base in log]:
            self.verdict.foreign_records |= self._has_record(base, sizes[base])
            self._set_aside(self._log / segment_name(base), f"far from the log, which begins at {own[0]}")
        return own

    def _has_record(self, base: int, found: int) -> bool:
        path = self._log / segment_name(base)
        return next(intact(Segment(base, found, path, self._disk.open(path, read_only=True))), None) is not None

    def _true_size(self, sizes: dict[int, int]) -> int:
        """The segment size that most files have, the configured one when they do not tell."""
        votes: dict[int, int] = {}
        for base, size in sizes.items():
            if base % size == 0:
                votes[size] = votes.get(size, 0) + 1
        if not votes:
            return self._segment_bytes
        best = max(votes.values())
        winners = [size for size, count in votes.items() if count == best]
        return self._segment_bytes if self._segment_bytes in winners else max(winners)

    def _open_segment(self, base: int, size: int, found: int | None) -> Segment:
        path = self._log / segment_name(base)
        try:
            file = self._disk.open(path, create=found is None)
        except PermissionError as exc:
            if found != size:
                raise
            file = self._disk.open(path, read_only=True)
            self._protected[base] = exc
            self.verdict.reasons.append(f"commitlog/{path.name}: only read, it cannot be written: {exc.strerror}")
        segment = Segment(base, size, path, file)
        if found != size:
            self.verdict.reasons.append(f"commitlog/{path.name}: {found or 0} bytes, expected {size}")
            if found is not None and found > size:
                self._copy_aside(segment, base + size, base + found)
            file.resize(size)
        if found is None:
            fill(segment, base, base + size, 0)
            self.verdict.quarantined.append(Damage(base, base + size, "segment missing", None))
        return segment

    def _bridge(self, segments: list[Segment], position: Position | None) -> None:
        """Put blank segments where the newest ones are gone, so that no log offset is given out twice."""
        if (
            not segments
            or position is None
            or position.queues_to - segments[-1].end > MOST_BRIDGED * self._segment_bytes
        ):
            return
        while segments[-1].end < position.queues_to:
            segments.append(self._open_segment(segments[-1].end, self._segment_bytes, None))

    def _confirmed(self, segments: list[Segment], position: Position | None) -> Position | None:
        """The stored position when it lies within the log."""
        if position is None or not segments:
            return position
        if not segments[0].base <= position.queues_to <= segments[-1].end:
            self.verdict.reasons.append(f"position {position.queues_to} lies outside the log")
            return None
        return position

    def _table(self, segments: list[Segment], position: Position | None, start: int) -> tuple[QueueTable, int]:
        """Return the table of queues and where to scan from: behind its `as_of` only the log tells where queues end.

        Entries that were lost from the end of a file would go unseen otherwise, and their numbers be given out anew.
        """
        table = load_table(table_file(self._disk, self._root))
        if position is not None and segments:
            start = max(segments[0].base, min(start, table.as_of))
        return table, start

    def _may_trust(self, table: QueueTable, segments: list[Segment], position: Position | None) -> bool:
        """Tell whether the queues can be taken from their table: so many that looking at each takes long."""
        if len(table.rows) <= self._trust_above or position is None or not segments or self.verdict.quarantined:
            return False
        return segments[0].base <= table.as_of <= position.queues_to

    def _start(self, segments: list[Segment], position: Position | None) -> int:
        if position is not None:
            if segments:
                return position.queues_to
            return (
                -(-position.queues_to // self._segment_bytes) * self._segment_bytes
            )  # the whole log is gone: go on behind it
        if not segments:
            return 0
        times = CheckpointFile(self._disk, self._root / "checkpoint").load()
        if times is not None:
            for segment in reversed(segments):
                head = next(walk(segment, segment.base))
                if isinstance(head, Entry) and 0 < head.stored_ms <= times.restart_ms:
                    return segment.base
        return segments[0].base

    def _scan(self, segments: list[Segment], start: int, queues: QueueRecovery) -> int:
        """Walk from start to the end of the log, cutting the torn tail and covering damage; return the end."""
        at = start
        for number, segment in enumerate(segments):
            if segment.end <= start:
                continue
            is_last = number == len(segments) - 1
            at = max(at, segment.base)
            while at < segment.end:
                at, bad = self._scan_run(segment, at, queues)
                if bad is None:
                    break
                behind = next_good(segment, at + 1)
                if behind is None and is_last:
                    return self._cut(segment, at)
                at = self._cover(segment, bad, behind if behind is not None else segment.end, queues)
            segment.file.sync()
            self._progress(segment.end - start, segments[-1].end - start)
        return at

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
        segment.file.sync()
        return at

    def _cover(self, segment: Segment, bad: Bad, end: int, queues: QueueRecovery) -> int:
        name = self._copy_aside(segment, bad.log_offset, end)
        if bad.lost is not None and is_queued(bad.lost.sys_flag):
            queues.lose(bad.lost)
        queues.damaged_bytes += end - bad.log_offset
        covered = fill(segment, bad.log_offset, end, self._last_stored_ms)
        segment.file.sync()
        self.verdict.quarantined.append(Damage(bad.log_offset, covered, bad.reason, name))
        return covered

    def _copy_aside(self, segment: Segment, start: int, end: int) -> str | None:
        """Keep a copy of log range [start, end); None when the disk has no room for it."""
        try:
            return quarantine_range(self._disk, segment, start, end)
        except OSError as exc:
            self.verdict.reasons.append(f"bytes {start} to {end} were not kept: {exc}")
            return None


def refuse_small_segments(segment_bytes: int, max_message_bytes: int) -> None:
    """Raise StoreRefused unless the largest record and a blank fit into one segment."""
    if segment_bytes < max_message_bytes + 65544:
        raise StoreRefused(
            f"segments of {segment_bytes} bytes cannot hold a message of {max_message_bytes}: "
            f"set store.segment_mib to at least {(max_message_bytes + 65544 + (1 << 20) - 1) >> 20}"
        )
