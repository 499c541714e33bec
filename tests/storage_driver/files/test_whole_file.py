"""A file that is replaced: the old one or the new one, wherever the power goes."""

import random
from pathlib import Path

import pytest

from storage_driver.files.whole_file import put_whole
from storage_driver.testing import MemoryDisk

PATH = Path("/d/a")


@pytest.mark.parametrize("steps", range(8))
def test_a_power_cut_at_any_step_leaves_the_old_file_or_the_new_one(steps: int) -> None:
    disk = MemoryDisk({"/d/a": b"old", "/d/a.tmp": b"what an earlier one left"}, ["/", "/d"])
    put_whole(disk, PATH, [b"n", b"ew"])
    live = MemoryDisk({"/d/a": b"old", "/d/a.tmp": b"what an earlier one left"}, ["/", "/d"])
    for step in disk.steps[:steps]:
        live.apply(step)
    for seed in range(20):
        left = live.after_power_cut(random.Random(seed))
        found = left.open(PATH).read(99, 0)
        assert found in (b"old", b"new")
        assert found == b"new" or steps < len(disk.steps)


def test_what_is_done_before_the_name_changes_sees_both() -> None:
    disk, seen = MemoryDisk({"/d/a": b"old"}, ["/", "/d"]), list[bytes]()
    paths = PATH, Path("/d/a.tmp")
    put_whole(disk, PATH, [b"new"], before=lambda: seen.extend(disk.open(path).read(9, 0) for path in paths))
    assert (seen, disk.open(PATH).read(9, 0), disk.exists(paths[1])) == ([b"old", b"new"], b"new", False)
