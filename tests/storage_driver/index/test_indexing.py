"""What the index is given of records: the same for those of a batch as for single ones."""

from pathlib import Path

import pytest

from storage_driver.index.index_file import Index, IndexSize
from storage_driver.index.indexing import index_records
from storage_driver.queues.consume_queue import ConsumeQueue
from storage_driver.queues.pending import PendingRecord, PendingRun
from storage_driver.record import MessageQueue, encode_properties, encode_topic
from storage_driver.testing import MemoryDisk

ROOT, NOW_MS, PREPARED, ROLLED_BACK = Path("/s"), 1_750_000_000_000, 0x4, 0xC
QUEUE = ConsumeQueue(MessageQueue("T", 0), encode_topic("T"))
ONE_CLIENT = [encode_properties({"UNIQ_KEY": f"7F0000012A2B18B4AAC2{n:04X}", "TAGS": "a"}) for n in range(40)]
MIXED = [*ONE_CLIENT[:3], encode_properties({"KEYS": "a b"}), b"", encode_properties({"UNIQ_KEY": "other"})]


def index_of(records: list[PendingRecord | PendingRun]) -> tuple[Index, bytes]:
    disk = MemoryDisk(folders=("/", "/s"))
    index = Index(disk, ROOT, IndexSize(50, 100))
    index_records(index, records, NOW_MS)
    file = index.files[0].file
    return index, file.read(file.size(), 0)


@pytest.mark.parametrize("properties", [ONE_CLIENT, MIXED])
def test_a_batch_makes_the_entries_of_its_messages(properties: list[bytes]) -> None:
    places = [100 * number for number in range(len(properties))]
    run = PendingRun(QUEUE, 0, 0, 0, NOW_MS, places, [100] * len(places), properties)
    singles = [
        PendingRecord(QUEUE, at, 100, at // 100, 0, NOW_MS, one) for at, one in zip(places, properties, strict=True)
    ]
    index, raw = index_of([run])
    assert raw == index_of([*singles])[1]
    assert index.find("T#7F0000012A2B18B4AAC20002", 9, 0, NOW_MS) == [200]


def test_the_end_of_a_transaction_taken_back_has_no_entries() -> None:
    halves = [
        PendingRecord(QUEUE, at, 100, 0, flag, NOW_MS, ONE_CLIENT[0])
        for at, flag in ((0, PREPARED), (100, ROLLED_BACK))
    ]
    index, _ = index_of([*halves])
    assert index.find("T#7F0000012A2B18B4AAC20000", 9, 0, NOW_MS) == [0]
