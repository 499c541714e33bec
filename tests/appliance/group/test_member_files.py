"""A member's promises and terms: made once, never guessed."""

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from appliance.group.member_files import MemberFiles
from storage_driver.consensus.effects import TermTable
from storage_driver.consensus.hard_state import HardState
from storage_driver.consensus.members import Members, MembersAt
from storage_driver.consensus.terms import Row
from storage_driver.errors import StateDamaged, VoteFileDamaged
from storage_driver.files.disk import RealDisk
from storage_driver.testing import MemoryDisk

PAIR = Members(("a", "b"))
TABLE = TermTable((Row(1, 0), Row(4, 500)), (MembersAt(-1, PAIR), MembersAt(700, Members(("a", "b"), ("w",), ("c",)))))


def make(root: Path) -> MemberFiles:
    (root / "rocketbox").mkdir(exist_ok=True)
    return MemberFiles(RealDisk(), root)


def test_an_empty_log_begins_without_terms_and_one_with_records_in_term_one(tmp_path: Path) -> None:
    for name, first, end, rows in (("empty", 0, 0, ()), ("had", 96, 500, (Row(1, 96),))):
        (tmp_path / name).mkdir()
        expected = HardState(len(rows), filling=True), TermTable(rows, (MembersAt(-1, PAIR),))
        for _ in range(2):
            assert make(tmp_path / name).open(PAIR, first=first, end=end) == expected


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    files = make(tmp_path)
    files.open(PAIR, first=0, end=0)
    files.save_table(TABLE)
    files.save_hard(HardState(4, "b"))
    assert make(tmp_path).open(Members(("x",)), first=0, end=800) == (HardState(4, "b"), TABLE)


def test_a_power_cut_at_any_step_leaves_the_old_or_the_new() -> None:
    first = TermTable((), (MembersAt(-1, PAIR),))
    for seed in range(60):
        disk = MemoryDisk(folders=("/", "/s", "/s/rocketbox"))
        files = MemberFiles(disk, Path("/s"))
        files.open(PAIR, first=0, end=0)
        disk.fail_at, disk.keep_failing = len(disk.steps) + seed % 20, True
        with suppress(OSError):
            files.save_table(TABLE)
            files.save_hard(HardState(4, "b"))
        found = MemberFiles(disk.after_power_cut(Random(seed)).restarted(), Path("/s")).open(PAIR, first=0, end=0)
        assert found in (
            (HardState(filling=True), first),
            (HardState(filling=True), TABLE),
            (HardState(4, "b"), TABLE),
        ), f"seed {seed}"


@pytest.mark.parametrize("lost", ["vote", "terms.json"])
def test_a_file_that_is_missing_or_damaged_stops_the_member(tmp_path: Path, lost: str) -> None:
    files = make(tmp_path)
    files.open(PAIR, first=0, end=0)
    for state in (HardState(2, "b"), HardState(3, "a")):
        files.save_hard(state)
        files.save_table(TABLE)
    path = tmp_path / "rocketbox" / lost
    for damaged in (b"{", None):
        path.unlink()
        if damaged is not None:
            path.write_bytes(damaged)
        with pytest.raises((StateDamaged, VoteFileDamaged), match="let it join under a new id"):
            make(tmp_path).open(PAIR, first=0, end=0)
