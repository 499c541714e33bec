"""A copy is given up whole or not at all, wherever the power goes; what the member promised stays."""

import errno
import random
from pathlib import Path

import pytest

from appliance.group.member_files import MemberFiles
from appliance.group.replacing import CopyReplacing, give_up_begun
from storage_driver.consensus.hard_state import HardState
from storage_driver.consensus.members import Members
from storage_driver.consensus.vote_file import VoteFile
from storage_driver.errors import StoreRefused
from storage_driver.files.disk import RealDisk, Usage
from storage_driver.testing import DiskStep, MemoryDisk

ROOT = Path("/store")
MEMBERS = Members(("a", "b"), ("w",))
OLD = {
    "commitlog/00000000000000000000": b"log 0",
    "commitlog/00000000000000001024": b"log 1",
    "consumequeue/T": b"queue",
    "config/topics.json": b"{}",
    "rocketbox/identity.json": b"{}",
    "rocketbox/terms.json": b"{}",
    "rocketbox/pop.journal": b"taken",
    "rocketbox/losses.json": b"told",
    "abort": b"",
}
PROMISED = HardState(7, "b")


class FolderDisk(MemoryDisk):
    """One that renames folders, too."""

    def rename(self, source: Path, target: Path) -> None:
        changes: list[tuple[str, int | None]] = []
        for name, number in self.names.items():
            if name == str(source) or name.startswith(f"{source}/"):
                changes += [(name, None), (str(target) + name.removeprefix(str(source)), number)]
        self.do(DiskStep("name", 0, 0, b"", tuple(changes)))


def disk() -> MemoryDisk:
    """Return a member's store."""
    one = FolderDisk(folders=("/", "/store", "/store/rocketbox"))
    VoteFile(one, ROOT / "rocketbox" / "vote").create(PROMISED)
    for name, content in OLD.items():
        path = ROOT / name
        one.make_folder(path.parent)
        file = one.open(path, create=True)
        file.write([content], 0)
        file.sync()
    one.sync_all(ROOT)
    one.steps.clear()
    return one


def content(one: MemoryDisk, path: Path) -> bytes | None:
    return one.open(path).read(100, 0) if one.exists(path) else None


def check(one: MemoryDisk, *, discard: bool) -> None:
    """Look at a store whose copy was given up."""
    hard, table = MemberFiles(one, ROOT).open(Members(("a",)), first=0, end=0)
    assert hard == PROMISED._replace(filling=True)
    assert (table.rows, table.configs[-1].members) == ((), MEMBERS)
    assert [name for name in OLD if one.exists(ROOT / name)] == ["rocketbox/terms.json", "rocketbox/losses.json"]
    for name, old in OLD.items():
        if name != "rocketbox/losses.json":
            assert content(one, ROOT / "replaced-5" / name) == (None if discard else old), name
    assert CopyReplacing(one, ROOT).finish() is None


@pytest.mark.parametrize("discard", [False, True])
def test_a_copy_is_moved_aside_or_deleted_and_promises_stay(discard: bool) -> None:
    one = disk()
    assert CopyReplacing(one, ROOT).finish() is None
    CopyReplacing(one, ROOT).begin(MEMBERS, discard=discard, now_ms=5)
    assert CopyReplacing(one, ROOT).finish() is not None
    check(one, discard=discard)


@pytest.mark.parametrize("discard", [False, True])
def test_wherever_it_is_interrupted_the_next_start_ends_it_or_nothing_was_begun(discard: bool) -> None:
    whole = disk()
    CopyReplacing(whole, ROOT).begin(MEMBERS, discard=discard, now_ms=5)
    CopyReplacing(whole, ROOT).finish()
    outcomes = set()
    for fail_at in range(len(whole.steps) + 1):
        one = disk()
        one.fail_at, one.keep_failing = fail_at, True
        try:
            CopyReplacing(one, ROOT).begin(MEMBERS, discard=discard, now_ms=5)
            CopyReplacing(one, ROOT).finish()
        except OSError:
            pass
        left = one.after_power_cut(random.Random(fail_at)) if discard else one.restarted()  # no folders in its journal
        left.__class__ = FolderDisk
        done = CopyReplacing(left, ROOT).finish()
        if done is None and content(left, ROOT / "commitlog/00000000000000001024") is not None:
            assert all(content(left, ROOT / name) == old for name, old in OLD.items())
            assert VoteFile(left, ROOT / "rocketbox" / "vote").load() == PROMISED
            outcomes.add("not begun")
        else:
            check(left, discard=discard)
            outcomes.add("done")
    assert outcomes == {"not begun", "done"}


def test_two_copies_need_room_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    one = disk()
    monkeypatch.setattr(one, "usage", lambda path: Usage(95, 5))
    with pytest.raises(OSError, match="the disk is too full") as full:
        CopyReplacing(one, ROOT).begin(MEMBERS, discard=False, now_ms=5)
    assert full.value.errno == errno.ENOSPC
    assert CopyReplacing(one, ROOT).finish() is None
    CopyReplacing(one, ROOT).begin(MEMBERS, discard=True, now_ms=5)
    assert CopyReplacing(one, ROOT).finish() is not None


def test_a_store_that_another_process_uses_stays(tmp_path: Path) -> None:
    (tmp_path / "rocketbox").mkdir()
    real = RealDisk()
    VoteFile(real, tmp_path / "rocketbox" / "vote").create(PROMISED)
    CopyReplacing(real, tmp_path).begin(MEMBERS, discard=True, now_ms=5)
    lock = real.lock(tmp_path / "lock")
    with pytest.raises(StoreRefused, match="cannot be given up"):
        give_up_begun(tmp_path)
    lock.release()
    give_up_begun(tmp_path)
    assert VoteFile(real, tmp_path / "rocketbox" / "vote").load().filling
