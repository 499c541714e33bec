"""The index is brought up to the log: few or many records at once, from the log where the backlog was lost."""

import pytest
import trio

from storage_driver.index.index_writer import EVERY_S, FEW, MANY
from storage_driver.record import Message, encode_properties
from storage_driver.store import MessageStore, open_store
from storage_driver.testing import MemoryDisk
from tests.power_cut.harness import FOLDERS, HOST, config

SETTINGS = config(position_every_bytes=1, flush_every_s=600.0)


async def put_key(store: MessageStore, key: str) -> int:
    """Send a message with a key, return its bytes in the log."""
    placed = store.put(Message("T", 0, b"x", encode_properties({"KEYS": key}), 0, 0, 1, HOST))
    await store.wait_committed(placed.end)
    return placed.size


async def test_an_index_made_anew_from_all_of_the_log_lets_others_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage_driver.index.index_writer.CATCH_UP_S", -1.0)
    monkeypatch.setattr("storage_driver.index.indexing.CATCH_UP_BYTES", 1)
    async with open_store(SETTINGS, now_ms=lambda: 1, disk=MemoryDisk(folders=FOLDERS)) as store:
        for number in range(5):
            size = await put_key(store, f"k{number}")
        await store.prove()
        flusher = store._flusher
        assert flusher.indexer.upto == store.committed
        async with flusher.guard:
            flusher.indexer.upto, flusher._dispatcher.backlog_lost = 0, True
            for number in range(1, 6):
                await flusher.round()
                assert flusher.indexer.upto == number * size, "a piece in each round"
                assert (flusher.indexer.far_behind, flusher._dispatcher.backlog_lost) == ((number < 5,) * 2)
        assert len(await store.find_by_key("T", "k4", 9, 0, 1 << 62)) == 1


async def test_keys_are_found_although_a_round_was_cancelled_before_it_indexed_them() -> None:
    async with open_store(SETTINGS, now_ms=lambda: 1, disk=MemoryDisk(folders=FOLDERS)) as store:
        await put_key(store, "k")
        with trio.CancelScope() as hung_up:
            hung_up.cancel()
            await store._flusher.indexer.write(0.0)
        assert store._flusher.indexer.reads_log
        await store.prove()
        assert len(await store.find_by_key("T", "k", 9, 0, 1 << 62)) == 1


async def test_few_records_and_many_are_indexed_at_once_and_others_after_two_seconds() -> None:
    async with open_store(SETTINGS, now_ms=lambda: 1, disk=MemoryDisk(folders=FOLDERS)) as store:
        indexer, dispatcher = store._flusher.indexer, store._flusher._dispatcher
        await put_key(store, "k")
        await indexer.write(100.0)
        due = []
        for waiting in (FEW, FEW + 1, MANY - 1, MANY):
            dispatcher.backlog_records = waiting
            due.append((indexer.due(100.0 + EVERY_S), indexer.due(100.1 + EVERY_S)))
        dispatcher.backlog_records = 0
        assert due == [(True, True), (False, True), (False, True), (True, True)]


async def test_an_index_that_rests_reads_nothing_and_has_all_keys_some_time_after_it_rested() -> None:
    async with open_store(SETTINGS, now_ms=lambda: 1, disk=MemoryDisk(folders=FOLDERS)) as store:
        size = await put_key(store, "before")
        await store.prove()
        store.pause_index(True)
        for number in range(3):
            store.pause_index(True)
            await put_key(store, f"k{number}")
            await store.prove()
        indexer = store._flusher.indexer
        assert (indexer.upto, indexer.due(1e9), indexer.far_behind) == (size, False, False)
        store.pause_index(False)
        await store.prove()
        assert indexer.upto == store.committed
        for key in ("before", "k0", "k2"):
            assert len(await store.find_by_key("T", key, 9, 0, 1 << 62)) == 1
