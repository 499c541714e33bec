"""The losses that this store declared: synced before their bytes go, told until the centre has each."""

from __future__ import annotations

from pathlib import Path

from uplink_spark.box.receipts.doubtful import DoubtfulRanges
from uplink_spark.box.receipts.gaps import KEPT_GAPS, Gap, GapLog
from uplink_spark.wire.intervals import Intervals


class DeclaredGaps:
    """`synced` are the ranges of the log that the gap log has; the ledger saves which gaps were `delivered`."""

    def __init__(self, path: Path) -> None:
        self.log = GapLog(path)
        self.delivered: set[tuple[int, int]] = set()  # gap ids
        self.synced = Intervals()
        self.covered = Intervals()  # by recoveries: nothing there waits to be shipped, a reconcile declares it
        self.doubtful = DoubtfulRanges()

    def open(self) -> None:
        """Read the gap log, once it is known which gaps were delivered. Blocks. Raises OSError."""
        self.log.open()
        for gap in self.log.gaps:
            self.synced.add(gap.start, gap.end)
        self._forget_old()

    def _forget_old(self) -> None:
        """Keep the newest 10,000 and every undelivered one."""
        gaps = self.log.gaps
        if len(gaps) <= KEPT_GAPS + 1000:
            return
        old = {gap.gap_id for gap in gaps[:-KEPT_GAPS]}
        self.log.compact([gap for gap in gaps if gap.gap_id not in old or gap.gap_id not in self.delivered])
        self.delivered -= old - {gap.gap_id for gap in self.log.gaps}

    def declare(self, gap: Gap) -> None:
        """Append and sync a gap. Blocks. Raises OSError.

        One whose id was given away since it was made gets the next: its receipt would count for both.
        """
        run, _ = gap.gap_id
        if any(each.gap_id == gap.gap_id for each in self.log.gaps):
            gap.facts["id"] = [run, self.next_number(run)]
        self.log.append(gap)
        self.synced.add(gap.start, gap.end)

    def next_number(self, run: int) -> int:
        """Return the number above every declared gap's of a run."""
        return max((gap.gap_id[1] for gap in self.log.gaps if gap.gap_id[0] == run), default=0) + 1

    def undelivered(self) -> list[Gap]:
        return [gap for gap in self.log.gaps if gap.gap_id not in self.delivered]

    def note_delivered(self, gap: Gap) -> None:
        """The centre has a gap: it is told no more."""
        self.delivered.add(gap.gap_id)
