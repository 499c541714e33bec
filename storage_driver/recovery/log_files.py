"""The files of a log as they are found: which are the log's, which are foreign, cut short or missing."""

from collections.abc import Callable
from pathlib import Path

from storage_driver.files.checkpoint import CheckpointValues
from storage_driver.files.disk import Disk, data_pieces
from storage_driver.files.layout_repair import is_segment_name, set_aside
from storage_driver.log.quarantine import quarantine_range
from storage_driver.log.scan import fill, intact
from storage_driver.log.segment import Segment, segment_name
from storage_driver.recovery.verdict import Damage, RecoveryVerdict

PAGE = 4096
MOST_MISSING = 64  # files between two parts of one log
MOST_BRIDGED = 4096  # files behind its end; each is 4 KiB of the disk
MOST_LOG_OFFSET = 1 << 63


class LogFiles:
    """Opens the segments of one recovery; `losing` hears of what is missing before it is covered."""

    def __init__(
        self,
        disk: Disk,
        root: Path,
        segment_bytes: int,
        *,
        verdict: RecoveryVerdict,
        losing: "Callable[..., None]",
    ) -> None:
        self.segment_bytes = segment_bytes  # what the files say, once they are loaded
        self.suspect: int | None = None  # where the first file begins that is not what it was
        self._disk, self._root, self._log = disk, root, root / "commitlog"
        self._verdict, self._losing = verdict, losing
        self._protected = dict[int, PermissionError]()  # by base: segments that are only read

    def _set_aside(self, path: Path, why: str) -> None:
        name = set_aside(self._disk, self._root, path)
        self._verdict.moved += 1
        self._verdict.reasons.append(f"{path.parent.name}/{path.name}: {why}, moved to quarantine/{name}")

    def load(self, position: CheckpointValues | None, reach: int, first: int | None = None) -> list[Segment]:
        """Open the log's files; foreign ones are set aside, lengths repaired, missing ones replaced by a blank.

        reach: how far the log went at least; first: below it files were deleted on purpose.
        """
        sizes: dict[int, int] = {}
        for facts in self._disk.list(self._log):
            path = self._log / facts.name
            if facts.is_folder or not is_segment_name(facts.name):
                self._set_aside(path, "its name is not that of a segment")
            elif facts.size == 0:
                self._disk.remove(path)
            else:
                sizes[int(facts.name)] = facts.size
        if not sizes:
            return []
        size = self.segment_bytes = self._true_size(sizes, reach)
        segments: list[Segment] = []
        own = self._reached(sizes, position)
        if first is not None and own[0] > first:
            self._losing(first, own[0], f"commitlog/ begins at {own[0]}, it began at {first}", sure=True)
        for base in own:
            if segments and segments[-1].end < base and not self._has_record(base, sizes[base]):
                self._set_aside(self._log / segment_name(base), "has no record, and no earlier file belongs to the log")
                continue
            while segments and segments[-1].end < base:
                segments.append(self._open_segment(segments[-1].end, size, None, sure=True))
            segments.append(self._open_segment(base, size, sizes[base], sure=base != own[-1]))
        while len(segments) > 1 and next(data_pieces(segments[-1].file, 0, size), None) is None:
            self._disk.remove(segments.pop().path)  # prepared, never written
        if segments and segments[-1].base in self._protected:
            raise self._protected[segments[-1].base]  # it is to be written
        return segments

    def _reached(self, sizes: dict[int, int], position: CheckpointValues | None) -> list[int]:
        """Return where the log's files begin; what is no part of it is set aside, not reached by blanks.

        A gap of many files tells two logs apart. This box's is the one with the position, without one the larger.
        """
        size = self.segment_bytes
        logs: list[list[int]] = [[]]
        for base in sorted(sizes):
            if base % size:
                self._set_aside(self._log / segment_name(base), f"its offset is not a multiple of {size}")
            elif base + size > MOST_LOG_OFFSET:
                self._set_aside(self._log / segment_name(base), "its offset is too large")
            else:
                if logs[-1] and base - logs[-1][-1] > (MOST_MISSING + 1) * size:
                    logs.append([])
                logs[-1].append(base)
        own = max(logs, key=len)
        if position is not None:
            own = next((log for log in logs if log and log[0] <= position.queues_to <= log[-1] + size), own)
        for base in [base for log in logs if log is not own for base in log]:
            self._verdict.foreign_records |= self._has_record(base, sizes[base])
            self._set_aside(self._log / segment_name(base), f"far from the log, which begins at {own[0]}")
        return own

    def _has_record(self, base: int, found: int) -> bool:
        path = self._log / segment_name(base)
        return next(intact(Segment(base, found, path, self._disk.open(path, read_only=True))), None) is not None

    def _true_size(self, sizes: dict[int, int], reach: int) -> int:
        """The segment size that most files have, the configured one when they do not tell.

        The newest file does not when it was cut short: at no page's end, or before what is known of the log.
        """
        votes: dict[int, int] = {}
        for base, size in sizes.items():
            was_cut = size % PAGE or base + size < reach
            if base % size == 0 and not (base == max(sizes) and size < self.segment_bytes and was_cut):
                votes[size] = votes.get(size, 0) + 1
        if not votes:
            return self.segment_bytes
        best = max(votes.values())
        winners = [size for size, count in votes.items() if count == best]
        return self.segment_bytes if self.segment_bytes in winners else max(winners)

    def _open_segment(self, base: int, size: int, found: int | None, *, sure: bool = False) -> Segment:
        """Open a file of `found` bytes, make it when None; sure: a later one is there, and was begun behind a whole."""
        path = self._log / segment_name(base)
        if found is None or found < size:  # noted before the file has its length again
            at = base + (found or 0)
            self._suspect(base)
            what = "missing" if found is None else f"cut short at {found} bytes"
            self._losing(at, base + size, f"commitlog/{path.name} is {what}", sure=sure)
        try:
            file = self._disk.open(path, create=found is None)
        except PermissionError as exc:
            if found != size:
                raise
            file = self._disk.open(path, read_only=True)
            self._protected[base] = exc
            self._verdict.reasons.append(f"commitlog/{path.name}: read-only, it cannot be written: {exc.strerror}")
        segment = Segment(base, size, path, file)
        if found != size:
            self._verdict.reasons.append(f"commitlog/{path.name}: {found or 0} bytes, expected {size}")
            if found is not None and found > size:
                self.quarantine_range(segment, base + size, base + found)
            file.resize(size)
        if found is None:
            fill(segment, base, base + size, 0)
            self._verdict.quarantined.append(Damage(base, base + size, "segment missing", None))
        return segment

    def _suspect(self, base: int) -> None:
        self.suspect = base if self.suspect is None else min(self.suspect, base)

    def bridge(self, segments: list[Segment], reach: int) -> None:
        """Put blank segments where the newest ones are gone, so that no log offset is given out twice."""
        size, start = self.segment_bytes, segments[-1].end if segments else reach
        if not start < reach <= start + MOST_BRIDGED * size:
            return
        end = start + -(-(reach - start) // size) * size
        self._suspect(start)
        self._losing(start, end, f"commitlog/ has no file from {start} to {end}")  # once: there may be thousands
        for base in range(start, end, size):
            path = self._log / segment_name(base)
            segment = Segment(base, size, path, self._disk.open(path, create=True))
            segment.file.resize(size)
            fill(segment, base, base + size, 0)
            segments.append(segment)
        self._verdict.quarantined.append(Damage(start, end, "segments missing", None))

    def quarantine_range(self, segment: Segment, start: int, end: int) -> str | None:
        """Keep a copy of log range [start, end); None when the disk has no room for it."""
        try:
            return quarantine_range(self._disk, segment, start, end)
        except OSError as exc:
            self._verdict.reasons.append(f"bytes {start} to {end} were not copied: {exc}")
            return None
