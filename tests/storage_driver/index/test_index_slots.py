"""Slots of an index file in rounds: what each unit has before it is what a dict says, whichever way they are kept."""

from pathlib import Path
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_driver.files.disk import DiskFile
from storage_driver.index.index_slots import HEADER, UNKNOWN, HashSlots, KeptSlots, slot_in
from storage_driver.testing import MemoryDisk

SLOTS = 11
Kind = type[HashSlots]
BOTH = pytest.mark.parametrize("kind", [HashSlots, KeptSlots])


def index_file() -> DiskFile:
    file = MemoryDisk(folders=("/",)).open(Path("/i"), create=True)
    file.write([bytes(HEADER.size + 4 * SLOTS)], 0)
    return file


@BOTH
@given(rounds=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=20), max_size=6))
def test_each_unit_gets_the_newest_one_of_its_slot_before_it(kind: Kind, rounds: list[list[int]]) -> None:
    file, newest, first = index_file(), dict[int, int](), 1
    for values in rounds:
        slots = kind(file, SLOTS)
        slots.begin(values, first)
        middle = len(values) // 2
        befores = [*(slots.put(0, middle) if middle else ()), *slots.put(middle, len(values))]
        slots.write()
        for number, (value, before) in enumerate(zip(values, befores, strict=True), first):
            assert before == newest.get(value % SLOTS, 0)
            newest[value % SLOTS] = number
        first += len(values)
        assert [slot_in(file, slot) for slot in range(SLOTS)] == [newest.get(slot, 0) for slot in range(SLOTS)]


@BOTH
@pytest.mark.parametrize("left", [7, 1000, -3], ids=["another unit of this round", "no unit yet", "less than none"])
def test_a_slot_that_a_power_cut_left_ahead_of_its_units_makes_what_was_before_unknown(kind: Kind, left: int) -> None:
    file = index_file()
    file.write([pack(">i", left)], HEADER.size + 4 * 3)  # units end at 4: what is here was never written
    slots = kind(file, SLOTS)
    slots.begin([3, 14, 5], 5)  # 3 and 14 share a slot
    assert slots.put(0, 3) == [UNKNOWN, 5, 0]
    slots.write()
    assert slot_in(file, 3) == 6


@BOTH
def test_a_round_that_is_put_again_after_a_power_cut_finds_what_it_had_written(kind: Kind) -> None:
    file = index_file()
    for _ in range(2):
        slots = kind(file, SLOTS)
        slots.begin([3, 14], 5)
        befores = slots.put(0, 2)
        slots.write()
    assert befores == [UNKNOWN, 5]  # the slot says 6, which is of this round: what was before 5 is gone
