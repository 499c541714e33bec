import errno
from pathlib import Path

from storage_driver.files.disk import Usage
from storage_driver.files.reserve import Reserve
from storage_driver.testing import MemoryDisk

ROOT = Path("/data/store")
GIB = 1 << 30


def full_to(percent: int) -> Usage:
    return Usage(percent * GIB, (100 - percent) * GIB)


def test_the_reserve_is_let_go_when_the_disk_is_almost_full_and_taken_again_below_the_resume_mark() -> None:
    disk = MemoryDisk(folders=("/", "/data", "/data/store"))
    reserve, seen = Reserve(disk, ROOT, 4096), []
    for percent in (40, 94, 95, 89, 88, 87):
        disk.space = full_to(percent)
        reserve.look()
        seen.append(disk.exists(ROOT / "reserve"))
    assert seen == [True, True, False, False, False, True]
    assert disk.open(ROOT / "reserve").size() == 4096


def test_a_reserve_that_finds_no_room_leaves_nothing_behind() -> None:
    disk = MemoryDisk(folders=("/", "/data", "/data/store"))
    disk.space = full_to(10)
    disk.fail_at, disk.fail_with = 1, errno.ENOSPC
    assert Reserve(disk, ROOT, 4096).look() == disk.space
    assert not disk.exists(ROOT / "reserve")
