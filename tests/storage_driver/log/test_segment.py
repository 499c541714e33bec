from collections.abc import Sequence
from pathlib import Path

import pytest

from storage_driver.log.segment import (
    AHEAD,
    FAR_AHEAD,
    FEW_ZEROS,
    MANY_ZEROS,
    SMALL_BATCH,
    Segment,
    SegmentWriter,
    Write,
)
from storage_driver.testing import MemoryDisk

FOLDER = Path("/data/store/commitlog")
SIZE = FAR_AHEAD + AHEAD


def written(batches: Sequence[int], *, zero_ahead: bool = False) -> list[int]:
    """Write batches of so many bytes one after the other, return how many bytes each put on the disk."""
    disk = MemoryDisk(folders=("/", "/data", "/data/store", str(FOLDER)))
    writer = SegmentWriter(disk, FOLDER, SIZE, None, zero_ahead=zero_ahead)
    counts, at, segments = [], 0, list[Segment]()
    for count in batches:
        before = len(disk.steps)
        segments += writer.write_and_sync([Write(at, [b"x" * count])]).begun
        counts.append(sum(len(step.data) for step in disk.steps[before:] if step.kind == "write"))
        assert segments[-1].file.read(SIZE, at % SIZE).rstrip(b"\0") == b"x" * count
        at += count
    return counts


def test_small_batches_overwrite_zeros_that_the_first_of_them_brought() -> None:
    assert written([1000, 1000, AHEAD - 2000, 1, 10]) == [AHEAD, 1000, AHEAD - 2000, AHEAD, 10]


def test_a_batch_that_ends_behind_the_zeros_brings_more() -> None:
    assert written([1000, AHEAD - 1500, 1000, 1000]) == [AHEAD, AHEAD - 1500, AHEAD + 500, 1000]


@pytest.mark.parametrize(("batch", "piece"), [(1000, FEW_ZEROS), (FEW_ZEROS, FEW_ZEROS), (10_000, MANY_ZEROS)])
def test_zeros_come_in_pieces_that_are_larger_where_many_send(batch: int, piece: int) -> None:
    disk = MemoryDisk(folders=("/", "/data", "/data/store", str(FOLDER)))
    SegmentWriter(disk, FOLDER, SIZE, None).write_and_sync([Write(0, [b"x" * batch])])
    sizes = [len(step.data) for step in disk.steps if step.kind == "write"]
    assert sizes == [batch, *[piece - batch] * (batch < piece), *[piece] * (AHEAD // piece - 1)]


@pytest.mark.parametrize("zero_ahead", [False, True])
def test_large_batches_bring_zeros_only_where_that_is_asked_for(zero_ahead: bool) -> None:
    more = FAR_AHEAD if zero_ahead else SMALL_BATCH + 1
    assert written([SMALL_BATCH + 1, 10 * SMALL_BATCH], zero_ahead=zero_ahead) == [more, 10 * SMALL_BATCH]


def test_zeros_end_with_the_file() -> None:
    assert written([SIZE - 5000, 1000, 1000]) == [SIZE - 5000, 5000, 1000]


def test_a_new_file_begins_with_zeros_of_its_own() -> None:
    assert written([SIZE, 1000, 1000]) == [SIZE, AHEAD, 1000]


class RacingDisk(MemoryDisk):
    """A disk on which the next spare is begun at the very moment the one before takes its place."""

    racer: SegmentWriter | None = None

    def rename(self, source: Path, target: Path) -> None:
        writer, self.racer = self.racer, None
        if writer is not None and writer.wants_spare:
            writer.prepare_spare()
        super().rename(source, target)


def test_a_spare_begun_during_a_roll_does_not_take_the_place_of_the_file_that_is_written() -> None:
    disk = RacingDisk(folders=("/", "/data", "/data/store", str(FOLDER)))
    writer = SegmentWriter(disk, FOLDER, SIZE, None)
    writer.prepare_spare()
    disk.racer = writer
    writer.write_and_sync([Write(0, [b"acknowledged"])])
    assert disk.open(FOLDER / f"{0:020d}").read(12, 0) == b"acknowledged"
