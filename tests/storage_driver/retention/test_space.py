"""Space over a real store: what the last look found, and when appends are refused."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from storage_driver.config import StoreConfig
from storage_driver.errors import Full
from storage_driver.files.disk import RealDisk, Usage
from storage_driver.record import Message, encode_host
from storage_driver.retention.rules import DiskState
from storage_driver.store import open_store
from tests.waiting import until

HOST = encode_host("127.0.0.1", 10911)
GIB = 1 << 30


class MeasuredDisk(RealDisk):
    """A disk whose file system is as full as a test says."""

    percent = 50
    available = 0

    def usage(self, path: Path) -> Usage:
        if self.available:
            return Usage(4 * self.available, self.available)
        return Usage(self.percent * GIB, (100 - self.percent) * GIB)


async def test_the_full_mark_is_set_and_cleared_at_different_marks_and_senders_see_it(tmp_path: Path) -> None:
    disk, seen = MeasuredDisk(), []
    async with open_store(StoreConfig(tmp_path / "store", HOST), now_ms=lambda: 5, disk=disk) as store:
        for disk.percent in (50, 90, 91, 90, 89, 88, 90):
            await store.check_space()
            assert store._maintenance.space.usage == DiskState(disk.percent, (100 - disk.percent) * GIB, 100 * GIB)
            seen.append(store.full is not None)
            if store.full is not None:
                with pytest.raises(Full, match="% used"):
                    store.put(Message("T", 0, b"x", b"", 0, 0, 1, HOST))
    assert seen == [False, False, True, True, True, False, False]


async def test_a_small_disk_on_which_the_next_segment_is_ready_takes_messages(tmp_path: Path) -> None:
    disk, body = MeasuredDisk(), bytes(1 << 20)
    config = StoreConfig(tmp_path / "store", HOST, segment_bytes=8 << 20)
    async with open_store(config, now_ms=lambda: 5, disk=disk) as store:
        for _ in range(5):
            store.put(Message("T", 0, body, b"", 0, 0, 1, HOST))
        await store.wait_committed(store.end)
        await until(lambda: (tmp_path / "store/spare.tmp").exists())
        seen = []
        for disk.available in (63 << 20, 71 << 20, 73 << 20):
            await store.check_space()
            seen.append(store.full is not None)
        assert seen == [True, True, False], "8 MiB more than they need alone would never be free"


async def test_a_disk_that_fills_has_its_hours_counted(tmp_path: Path, mock_clock: MockClock) -> None:
    disk = MeasuredDisk()
    async with open_store(StoreConfig(tmp_path / "store", HOST), now_ms=lambda: 5, disk=disk) as store:
        space = store._maintenance.space
        await space.look()
        assert space.full_in_h is None
        disk.percent = 55
        began = trio.current_time()
        mock_clock.jump(1800)
        await space.look()
        assert began + 1800 <= trio.current_time()
        assert space.full_in_h == pytest.approx(3.5, rel=0.05), "5 % in half an hour, 35 % to the mark at 90 %"
