from pathlib import Path

import pytest
import trio

from storage_driver.config import StoreConfig
from storage_driver.errors import LogFailed
from storage_driver.record import Message, MessageQueue, Parts, encode_host
from storage_driver.store import MessageStore, open_store

HOST = encode_host("127.0.0.1", 10911)


class Clock:
    """A wall clock that stands still."""

    def __call__(self) -> int:
        return 1_700_000_000_000


def small(tmp_path: Path) -> StoreConfig:
    return StoreConfig(
        tmp_path / "store", HOST, segment_bytes=128 * 1024, max_message_bytes=32 * 1024, queue_file_entries=100
    )


def message(body: bytes = b"hello", queue_id: int = 0) -> Message:
    return Message("T", queue_id, body, b"", 0, 0, 1, HOST)


async def put_all(store: MessageStore, messages: list[Message]) -> None:
    placed = [store.put(each) for each in messages]
    await store.wait_committed(placed[-1].end)


async def test_statistics_and_evidence_count_syncs(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        await put_all(store, [message() for _ in range(64)])
        s = store.statistics()
        assert (s.messages, s.syncs, sum(s.sync_us), s.bytes) == (64, s.syncs, s.syncs, store.committed)
        assert s.syncs <= 2
        assert store.evidence().failure is None
        before = trio.current_time()
        await store.prove()
        assert store.evidence().synced_age_s <= trio.current_time() - before
        assert store.statistics().position == store.committed


async def test_a_batch_counts_as_its_messages_and_lies_where_its_facts_say(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        batch = store.put_batch(message(), Parts.of([(0, b"%d" % n * 7, b"") for n in range(5)]))
        single = store.put(message(b"behind"))
        await store.wait_committed(single.end)
        assert (single.queue_offset, single.log_offset, single.end) == (5, batch.end, batch.end + single.size)
        facts = store.statistics()
        assert (facts.messages, facts.queues, facts.first, facts.end) == (6, 1, 0, single.end)
        for log_offset in batch.log_offsets:
            assert await store.record_at(log_offset) is not None
        assert store.max_offset(MessageQueue("T", 0)) == 6


async def test_a_snapshot_does_not_change_when_the_store_does(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        before = store.statistics()
        buckets = before.sync_us
        await put_all(store, [message(), message(queue_id=1)])
        assert (before.messages, before.queues, before.end, before.sync_us) == (0, 0, 0, buckets)
        assert sum(buckets) == 0


async def test_a_sealed_log_is_evidence_against_the_store_and_nothing_waits_without_messages(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        assert (store.evidence().failure, store.evidence().waiting_s) == (None, 0.0)
        store.seal("the disk is gone")
        assert store.evidence().failure == "the disk is gone"
        with pytest.raises(LogFailed):
            store.put(message())
        assert store.statistics().messages == 0
