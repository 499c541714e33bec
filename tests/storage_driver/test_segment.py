from pathlib import Path

from storage_driver.segment import ZEROS_AT_ONCE, SegmentWriter
from storage_driver.testing import MemoryDisk

FOLDER = Path("/data/store/commitlog")


def zeros_written(zero_ahead: bool) -> tuple[int, int]:
    """Prepare a spare of three and a half pieces; return its length and how much of it was written."""
    disk = MemoryDisk(folders=("/", "/data", "/data/store", str(FOLDER)))
    size = 3 * ZEROS_AT_ONCE + ZEROS_AT_ONCE // 2
    SegmentWriter(disk, FOLDER, size, None, zero_ahead=zero_ahead).prepare_spare()
    assert disk.steps[-1].kind == "sync"
    return disk.open(FOLDER.parent / "spare.tmp").size(), sum(len(s.data) for s in disk.steps if s.kind == "write")


def test_the_spare_is_written_with_zeros_only_where_that_is_asked_for() -> None:
    size = 3 * ZEROS_AT_ONCE + ZEROS_AT_ONCE // 2
    assert zeros_written(False) == (size, 0)
    assert zeros_written(True) == (size, size)
