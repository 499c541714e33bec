"""A start with many queues takes them from their table and opens no queue file; lost files are noticed afterwards."""

import json
from pathlib import Path
from typing import Any

import pytest

from storage_driver.config import StoreConfig
from storage_driver.index.index_file import IndexSize
from storage_driver.queues.consume_queue import ENTRY, ENTRY_BYTES, QueueFiles
from storage_driver.queues.queue_table import QueueTable, load_table, table_file
from storage_driver.record import Message, MessageQueue, decode_record, encode_host, encode_properties
from storage_driver.recovery.opening import open_folder
from storage_driver.store import MessageStore, open_store
from storage_driver.testing import MemoryDisk

HOST = encode_host("127.0.0.1", 10911)


def config(root: Path, **changes: Any) -> StoreConfig:
    settings: dict[str, Any] = {
        "segment_bytes": 128 * 1024,
        "max_message_bytes": 32 * 1024,
        "queue_file_entries": 100,
        "index_size": IndexSize(50, 200),
        "scrub_mib_per_h": 0,
        "trust_queues_above": 2,
    }
    return StoreConfig(root, HOST, **settings | changes)


async def send(store: MessageStore, topics: int, count: int) -> None:
    for number in range(count):
        for topic in range(topics):
            key = encode_properties({"UNIQ_KEY": f"{topic}-{number}"})
            placed = store.put(Message(f"T{topic}", 0, b"%d %d" % (topic, number), key, 0, 0, 1, HOST))
    await store.wait_committed(placed.end)


async def bodies(store: MessageStore, topic: int) -> list[bytes]:
    found = await store.read(MessageQueue(f"T{topic}", 0), 0, max_count=32, max_bytes=1 << 20)
    out = []
    for chunk in found.chunks:
        at = 0
        while at < len(chunk):
            record = decode_record(chunk, at)
            out.append(bytes(record.body))
            at += record.size
    return out


def queue_file(root: Path, topic: int) -> Path:
    return root / "consumequeue" / f"T{topic}" / "0" / f"{0:020d}"


async def test_a_start_with_many_queues_opens_no_queue_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    async with open_store(config(root), now_ms=lambda: 1) as store:
        await send(store, 5, 3)
        await store.prove()
    opened: list[MessageQueue] = []
    real = QueueFiles.file

    def file(self: QueueFiles, key: MessageQueue, first_entry: int) -> Any:
        opened.append(key)
        return real(self, key, first_entry)

    monkeypatch.setattr(QueueFiles, "file", file)
    async with open_store(config(root), now_ms=lambda: 1) as store:
        assert opened == []
        assert [store.max_offset(MessageQueue(f"T{topic}", 0)) for topic in range(5)] == [3] * 5
        assert store.topics_since(0) == {f"T{topic}": 0 for topic in range(5)}
        await send(store, 5, 1)
        assert await bodies(store, 4) == [b"4 0", b"4 1", b"4 2", b"4 0"]


async def test_what_was_sent_after_the_table_was_saved_is_there(tmp_path: Path) -> None:
    root = tmp_path / "store"
    async with open_store(config(root), now_ms=lambda: 1) as store:
        await send(store, 5, 3)
        await store.prove()
        table = table_file(store._disk, root).path.read_bytes()
        await send(store, 4, 2)
        await send(store, 6, 1)  # T5 is new
        await store.prove()
    table_file(store._disk, root).path.write_bytes(table)
    async with open_store(config(root), now_ms=lambda: 1) as store:
        assert store.verdict.scanned_bytes > 0
        assert [store.max_offset(MessageQueue(f"T{topic}", 0)) for topic in range(6)] == [6, 6, 6, 6, 4, 1]
        assert (await bodies(store, 5), store.verdict.verdict) == ([b"5 0"], "clean")


@pytest.mark.parametrize("how", ["gone", "zeros"])
async def test_a_queue_file_that_was_lost_is_made_again_from_the_log(tmp_path: Path, how: str) -> None:
    root = tmp_path / "store"
    async with open_store(config(root), now_ms=lambda: 1) as store:
        await send(store, 5, 3)
        await store.prove()
    if how == "gone":
        queue_file(root, 3).unlink()
    else:
        queue_file(root, 3).write_bytes(bytes(100 * ENTRY_BYTES))
    async with open_store(config(root), now_ms=lambda: 1) as store:
        await store._maintenance.verify_trusted()
        assert await bodies(store, 3) == [b"3 0", b"3 1", b"3 2"]
        assert ENTRY.unpack_from(queue_file(root, 3).read_bytes(), 2 * ENTRY_BYTES)[1] > 0


async def test_a_topic_whose_folder_is_gone_is_rebuilt_at_once(tmp_path: Path) -> None:
    root = tmp_path / "store"
    async with open_store(config(root), now_ms=lambda: 1) as store:
        await send(store, 5, 3)
        await store.prove()
    queue_file(root, 3).unlink()
    queue_file(root, 3).parent.rmdir()
    queue_file(root, 3).parent.parent.rmdir()
    async with open_store(config(root), now_ms=lambda: 1) as store:
        assert (store.verdict.verdict, store.verdict.queues_rebuilt) == ("repaired", 1)
        assert await bodies(store, 3) == [b"3 0", b"3 1", b"3 2"]


async def test_a_deleted_topic_is_not_in_the_table(tmp_path: Path) -> None:
    root = tmp_path / "store"
    async with open_store(config(root), now_ms=lambda: 1) as store:
        await send(store, 5, 3)
        await store.prove()
        await store.delete_topic("T3")
        await send(store, 3, 1)
        assert {row.key.topic for row in load_table(table_file(store._disk, root)).rows} == {"T0", "T1", "T2", "T4"}
    async with open_store(config(root), now_ms=lambda: 1) as store:
        assert store.topics() == ["T0", "T1", "T2", "T4"]


@pytest.mark.parametrize("text", ["", "{}", '{"queues":[["T",0]]}', '{"queues":[["T",0,5,"x",1]]}', "[1]"])
def test_a_table_that_makes_no_sense_counts_as_missing(text: str) -> None:
    disk = MemoryDisk({"/data/store/rocketbox/queues.json": text.encode()}, folders=["/", "/data"])
    assert load_table(table_file(disk, Path("/data/store"))) == QueueTable(-1, [])


async def test_a_number_with_a_digit_too_many_is_no_queue_that_long(tmp_path: Path) -> None:
    """A start would make holes up to it, and every later message would have a number behind them."""
    root = tmp_path / "store"
    async with open_store(config(root), now_ms=lambda: 1) as store:
        await send(store, 2, 3)
        await store.prove()
    path = root / "rocketbox" / "queues.json"
    whole = path.read_text()
    path.write_text(whole.replace('["T1",0,3,', '["T1",0,9000000000003,'))
    assert path.read_text() != whole
    async with open_store(config(root), now_ms=lambda: 1) as store:
        assert [store.max_offset(MessageQueue(f"T{topic}", 0)) for topic in range(2)] == [3, 3]


def test_a_table_of_the_version_before_gives_lower_bounds_only() -> None:
    text = json.dumps({"layout": 1, "queues": [["T", 0, 5]]}).encode()
    disk = MemoryDisk({"/data/store/rocketbox/queues.json": text}, folders=["/", "/data"])
    table = load_table(table_file(disk, Path("/data/store")))
    assert (table.as_of, [(row.key, row.end) for row in table.rows]) == (-1, [(MessageQueue("T", 0), 5)])
    opened = open_folder(
        config(Path("/data/store")), disk, now_ms=lambda: 1, new_id=lambda: 1, progress=lambda done, total: None
    )
    assert opened.recovered.trusted == []
