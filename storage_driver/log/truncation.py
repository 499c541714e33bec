"""Cutting the log back: what is above a log offset goes to quarantine/, then leaves the disk.

A journal makes the steps one: whatever a power cut leaves, the next opening finishes the cut before it looks at the
log. The bytes above become zeros, so that nothing of a former tail is ever read as records again.
"""

import errno
from collections.abc import Callable, Sequence
from pathlib import Path

from storage_driver.errors import StateDamaged
from storage_driver.files.checkpoint import PositionFile
from storage_driver.files.disk import Disk, zero_fill
from storage_driver.files.state_file import StateFile
from storage_driver.log.clock import wall_ms
from storage_driver.log.cut_history import OWN_TOPICS, CutDone, CutHistory, read_cut
from storage_driver.log.quarantine import quarantine_range, quarantine_segment
from storage_driver.log.scan import walk
from storage_driver.log.segment import Segment, segment_name
from storage_driver.record import DispatchEntry

BEGUN, COPIED = "begun", "copied"
NO_LINKS = (errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP)  # of files there


class Truncation:
    """Cuts one store's log; blocks, so it is for a thread or for the time before the store serves."""

    def __init__(self, disk: Disk, root: Path, *, now_ms: Callable[[], int] = wall_ms) -> None:
        self._disk, self._root, self._now_ms = disk, root, now_ms
        self._journal = StateFile(disk, root / "rocketbox" / "cut.json")

    def begin(self, log_offset: int, end: int, reason: str) -> None:
        """Have the next opening take [log_offset, end) out of the log, committed or not. Raises OSError."""
        self._save(CutDone(log_offset, end, reason, [], self._now_ms()), BEGUN)

    def cut(self, log_offset: int, end: int, reason: str) -> CutDone:
        """Take [log_offset, end) out of the log. Raises OSError; then `finish` has the rest to do."""
        self.begin(log_offset, end, reason)
        done = self.finish()
        assert done is not None, "the journal was just written"
        return done

    def finish(self, erasing: Callable[[CutDone], None] = lambda cut: None) -> CutDone | None:
        """Finish the cut in the journal; None when there is none. Raises OSError.

        erasing(cut) is called, perhaps again after a power cut, when its bytes are in quarantine and still in the log.
        """
        try:
            found = self._journal.load()
        except StateDamaged:  # it was never whole, so nothing has been cut
            found = None
        if found is None:
            return None
        cut = read_cut(found)
        segments = self._segments(cut)
        if found["stage"] == BEGUN:
            cut = cut._replace(quarantined=self._copy(segments, cut), messages=_count(segments, cut))
            self._save(cut, COPIED)
        erasing(cut)
        self._erase(segments, cut)
        self._set_position_back(cut.log_offset)
        CutHistory(self._disk, self._root).note(cut)
        self._journal.remove()
        return cut

    def _save(self, cut: CutDone, stage: str) -> None:
        self._journal.save({**cut._asdict(), "stage": stage})

    def _segments(self, cut: CutDone) -> list[Segment]:
        """Return the files that reach above the cut, oldest first."""
        folder, found = self._root / "commitlog", []
        for facts in self._disk.list(folder):
            if not facts.is_folder and facts.name.isdecimal() and len(facts.name) == len(segment_name(0)):
                base, path = int(facts.name), folder / facts.name
                if base + facts.size > cut.log_offset:
                    found.append(Segment(base, facts.size, path, self._disk.open(path)))
        return sorted(found)

    def _copy(self, segments: Sequence[Segment], cut: CutDone) -> list[str]:
        ranges = [(s, max(s.base, cut.log_offset), min(s.end, cut.end)) for s in segments]
        return [self._keep(s, start, end) for s, start, end in ranges if start < end]

    def _keep(self, segment: Segment, start: int, end: int) -> str:
        """Keep a part of the log whatever its size: a cut that could not keep it would refuse each start."""
        if start == segment.base:
            try:
                return quarantine_segment(self._disk, segment, end)
            except OSError as exc:
                if exc.errno not in NO_LINKS:
                    raise
        return quarantine_range(self._disk, segment, start, end, bounded=False)

    def _erase(self, segments: Sequence[Segment], cut: CutDone) -> None:
        """Newest first: what is left after a power cut is always the beginning of what was there."""
        for segment in reversed(segments):
            if segment.base >= cut.log_offset:
                self._disk.remove(segment.path)
                self._disk.sync_folder(segment.path.parent)
            else:
                zero_fill(segment.file, cut.log_offset - segment.base, segment.size)
                segment.file.sync()

    def _set_position_back(self, log_offset: int) -> None:
        """Recovery starts at the cut, and makes the index again from what it had synced."""
        file = PositionFile(self._disk, self._root / "rocketbox" / "position")
        position = file.load()
        if position is not None and position.queues_to > log_offset:
            index_to = min(position.index_to, log_offset)
            file.save(position._replace(queues_to=log_offset, index_to=index_to, boot=bytes(16)))


def _count(segments: Sequence[Segment], cut: CutDone) -> int:
    """Return how many messages of clients a cut takes."""
    count = 0
    for segment in segments:
        for item in walk(segment, max(segment.base, cut.log_offset), check_crc=False):
            if not isinstance(item, DispatchEntry) or item.log_offset >= cut.end:
                break
            count += not item.topic.startswith(OWN_TOPICS)
    return count
