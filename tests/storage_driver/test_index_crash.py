"""An index file that ends between two keys of one record, and the process or the power that ends there too."""

import random
from collections import Counter

import pytest

from storage_driver.config import StoreConfig
from storage_driver.index.index_file import UNIT, IndexSize
from storage_driver.index.index_keys import key_hash
from storage_driver.index.index_slots import HEADER
from storage_driver.record import Message, encode_properties, index_keys
from storage_driver.store import open_store
from storage_driver.testing import MemoryDisk
from tests.power_cut.harness import FOLDERS, HOST, config, deterministic

SIZE = IndexSize(8, 10)  # nine keys a file, of records with four each
SETTINGS = config(index_size=SIZE, position_every_bytes=4000)
INDEX = str(SETTINGS.root / "index")


def indexed(disk: MemoryDisk) -> Counter[tuple[int, int]]:
    """Return how often each (hash, log offset) stands in the index files."""
    found: Counter[tuple[int, int]] = Counter()
    for name, inode in disk.names.items():
        if name.startswith(f"{INDEX}/"):
            raw = bytes(disk.inodes[inode].bytes)
            units = raw[HEADER.size + 4 * SIZE.slots + UNIT.size :][: UNIT.size * (HEADER.unpack_from(raw)[5] - 1)]
            found.update((value, log_offset) for value, log_offset, _, _ in UNIT.iter_unpack(units))
    return found


class Sender:
    """Sends messages with four keys each, notes what the index must hold."""

    def __init__(self, disk: MemoryDisk, settings: StoreConfig, count: int) -> None:
        self.keys: dict[int, list[str]] = {}  # log offset -> keys
        self.end = 0
        self._disk, self._settings, self._count = disk, settings, count

    async def run(self) -> None:
        async with open_store(
            self._settings, now_ms=lambda: 1_700_000_000_000, disk=self._disk, new_id=lambda: 9
        ) as store:
            for number in range(self._count):
                properties = encode_properties({"UNIQ_KEY": f"u{number}", "KEYS": f"a{number} b{number} c{number}"})
                placed = store.put(Message("T", 0, bytes(300), properties, 0, 0, 1, HOST))
                self.keys[placed.log_offset] = index_keys("T", properties)
                await store.wait_committed(placed.end)
                if number % 5 == 0:
                    await store.prove()
            await store.prove()
            self.end = store.committed


def check(disk: MemoryDisk, sent: Sender) -> list[str]:
    """Start the store on what is left and compare its index with the log's records."""
    again = Sender(disk, SETTINGS, 0)
    deterministic(again.run, 1)
    must = Counter(
        (key_hash(key), log_offset) for log_offset, keys in sent.keys.items() if log_offset < again.end for key in keys
    )
    found = indexed(disk)
    lost, more = must - found, found - must
    return [f"{sum(lost.values())} keys lost, {sum(more.values())} too many"] if lost or more else []


@pytest.mark.slow
def test_no_key_is_lost_or_doubled_by_an_end_at_any_step_of_the_index() -> None:
    disk, pick, wrong, tried = MemoryDisk(folders=FOLDERS), random.Random(1), [], 0
    sent = Sender(disk, SETTINGS, 24)
    deterministic(sent.run, 1)
    live, index = MemoryDisk(folders=FOLDERS), set()
    for number, step in enumerate(disk.steps):
        live.apply(step)
        index |= {inode for name, inode in live.names.items() if name.startswith(INDEX) and inode}
        if step.inode in index or any(name.startswith(INDEX) for name, _ in step.names):
            killed = live.copy()  # the page cache outlives the process
            killed.boot = disk.boot
            for how, left in ((f"killed at {number}", killed), (f"cut at {number}", live.after_power_cut(pick))):
                tried += 1
                wrong += [f"{how} ({step.kind}): {text}" for text in check(left, sent)]
    assert tried > 100
    assert wrong == []


def test_a_key_of_every_record_can_be_counted() -> None:
    """What the test above counts is there when nothing fails."""
    disk = MemoryDisk(folders=FOLDERS)
    sent = Sender(disk, SETTINGS, 24)
    deterministic(sent.run, 1)
    assert sum(indexed(disk).values()) == 24 * 4
    assert check(disk.restarted(), sent) == []
