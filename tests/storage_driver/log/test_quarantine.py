import errno
from pathlib import Path

import pytest

from storage_driver.files.disk import Usage
from storage_driver.log.quarantine import quarantine_range
from storage_driver.log.segment import Segment, segment_name
from storage_driver.testing import MemoryDisk

LOG = Path("/store/commitlog") / segment_name(1000)


def segment(disk: MemoryDisk) -> Segment:
    return Segment(1000, 1000, LOG, disk.open(LOG))


def disk() -> MemoryDisk:
    return MemoryDisk({str(LOG): bytes(range(250)) * 4}, folders=("/", "/store", "/store/commitlog"))


def test_a_range_of_the_log_is_copied_beside_it_and_stays_after_a_power_cut() -> None:
    one = disk()
    name = quarantine_range(one, segment(one), 1100, 1130)
    assert name == f"log-{1100:020d}-{1130:020d}"
    number = one.stable_names[f"/store/quarantine/{name}"]
    assert one.inodes[number].stable == bytes(range(100, 130))


def test_the_oldest_make_room_for_new_ones() -> None:
    one = disk()
    one.space = Usage(1000, 1000)  # 5 % are 100 bytes
    names = [quarantine_range(one, segment(one), at, at + 60) for at in (1001, 1101)]
    assert [facts.name for facts in one.list(Path("/store/quarantine"))] == names[1:]


def test_more_than_quarantine_may_hold_is_refused_with_both_numbers() -> None:
    one = disk()
    one.space = Usage(1000, 1000)
    with pytest.raises(OSError, match=r"101 bytes, quarantine/ may hold 100") as raised:
        quarantine_range(one, segment(one), 1001, 1102)
    assert raised.value.errno == errno.ENOSPC
