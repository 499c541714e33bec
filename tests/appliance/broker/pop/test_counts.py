"""Counts of POP, before and after it was used."""

from pathlib import Path

from appliance.broker.pop.counts import PopCounts
from appliance.broker.pop.lazy_pop import LazyPop
from storage_driver.files.disk import RealDisk
from storage_driver.files.journal_file import JournalFile


async def test_a_box_that_does_not_use_pop_counts_nothing(tmp_path: Path) -> None:
    lazy = LazyPop(JournalFile(RealDisk(), tmp_path / "pop.journal"), lambda file: None)  # type: ignore[arg-type, return-value]
    assert lazy.counts() == PopCounts(0, 0, 0, 0, 0, 0)
