"""Where a hole begins and ends, and what is shipped around it: a log in memory whose blocks may be unreadable."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest

from uplink_spark.box.cutting.cutter import CutOrder, Taken
from uplink_spark.box.cutting.holes import MOST_BAD, Hole, find_hole, take_around
from uplink_spark.testing import SOURCE, MadeRecord, encode_log

BLOCK, MIB = 4096, 1 << 20
BODY = 900
SIZE = 91 + BODY + len("T")


def log_of(count: int) -> bytes:
    return encode_log([MadeRecord(queue_offset=number, body=b"x" * BODY) for number in range(count)])


class Reader:
    """Reads a log; whatever touches a bad block fails, all of it when `gone`."""

    def __init__(self, raw: bytes, bad: Sequence[int] = ()) -> None:
        self.raw, self.bad, self.gone = raw, set(bad), False

    def __call__(self, start: int, count: int) -> bytes:
        end = min(start + count, len(self.raw))
        if self.gone or any(at // BLOCK in self.bad for at in (*range(start, end, BLOCK), end - 1)):
            raise OSError(errno.EIO, "Input/output error")
        return self.raw[start:end]


def order(start: int, limit: int, file_end: int = MIB) -> CutOrder:
    return CutOrder(SOURCE, start, limit, file_end, MIB, "none")


def around(read: Reader) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Ship all of a log; return ranges that were taken, and holes."""
    at, taken, holes = 0, list[tuple[int, int]](), list[tuple[int, int]]()
    while at < len(read.raw):
        found = take_around(read, order(at, len(read.raw)))
        if isinstance(found, Hole):
            assert found.start == at
            holes.append((at, found.end))
            at = found.end
        else:
            assert found.damage is None
            taken.append((at, found.contents.end))
            at = found.contents.end
    return taken, holes


@pytest.mark.parametrize("block", range(0, 25, 3))
def test_a_hole_is_the_records_that_a_bad_block_touches(block: int) -> None:
    raw = log_of(100)
    _, holes = around(Reader(raw, [block]))
    first, last = block * BLOCK // SIZE * SIZE, -(-min(len(raw), (block + 1) * BLOCK) // SIZE) * SIZE
    assert holes == [(first, last)]


def test_bad_blocks_far_apart_are_holes_of_their_own() -> None:
    taken, holes = around(Reader(log_of(1000), [3, 90, 91]))
    assert len(holes) == 2
    assert sum(end - start for start, end in taken + holes) == 1000 * SIZE


def test_a_hole_behind_which_no_record_is_goes_to_the_end() -> None:
    raw = log_of(8)
    assert find_hole(Reader(raw, [1]), order(4 * SIZE, len(raw))) == Hole(4 * SIZE, len(raw))


def test_a_blank_before_the_bad_block_ends_its_file() -> None:
    raw = log_of(4)
    blank = (MIB - len(raw)).to_bytes(4, "big") + (0xCBD43194).to_bytes(4, "big")
    found = take_around(Reader((raw + blank).ljust(MIB, b"\0"), [20]), order(0, MIB))
    assert isinstance(found, Taken)
    assert (found.contents.end, found.damage) == (MIB, None)


def test_what_can_be_read_again_is_no_hole() -> None:
    assert find_hole(Reader(log_of(8)), order(0, 8 * SIZE)) is None


def test_where_nothing_can_be_read_the_error_goes_on() -> None:
    read = Reader(log_of(100))
    read.gone = True
    with pytest.raises(OSError, match="Input"):
        take_around(read, order(50 * SIZE, 100 * SIZE))


def test_a_hole_has_no_more_blocks_than_a_disk_can_be_asked_for() -> None:
    raw, reads = bytes(4 * MIB), 0
    inner = Reader(raw, range(len(raw) // BLOCK))

    def read(start: int, count: int) -> bytes:
        nonlocal reads
        reads += 1
        if start == 0 and count == 1:
            return b"x"
        return inner(start, count)

    def behind(start: int, count: int) -> bytes:
        return read(start, count) if start >= BLOCK else raw[start : start + count]

    found = find_hole(behind, order(BLOCK, len(raw), len(raw)))
    assert found == Hole(BLOCK, (MOST_BAD + 1) * BLOCK)
    assert reads <= 2 * MOST_BAD + 4
