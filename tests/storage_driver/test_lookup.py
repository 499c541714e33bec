"""Finding messages over several runs of a store, in what retention left, behind damage, by key within limits."""

import threading
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_driver.config import StoreConfig
from storage_driver.index.index_file import IndexSize
from storage_driver.lookup import search_spans
from storage_driver.reading import FoundStatus, ReadRequest
from storage_driver.record import Message, MessageQueue, decode_record, encode_host, encode_properties
from storage_driver.retention.rules import RetentionClass, RetentionRules
from storage_driver.store import MessageStore, open_store
from storage_driver.testing import DiskStep, MemoryDisk
from tests.power_cut.harness import FOLDERS
from tests.power_cut.harness import config as small

HOST = encode_host("127.0.0.1", 10911)
QUEUE = MessageQueue("T", 0)
SEGMENT = 128 * 1024
ALL = (0, 1 << 62)
SMALL = small(index_size=IndexSize(50, 200))


def config(root: Path, **changes: Any) -> StoreConfig:
    settings: dict[str, Any] = {
        "segment_bytes": SEGMENT,
        "max_message_bytes": 32 * 1024,
        "queue_file_entries": 50,
        "index_size": IndexSize(50, 200),
        "scrub_mib_per_h": 0,
    }
    return StoreConfig(root / "store", HOST, **settings | changes)


async def put(store: MessageStore, *bodies: bytes, topic: str = "T", **properties: str) -> list[int]:
    raw = encode_properties(properties)
    placed = [store.put(Message(topic, 0, body, raw, 0, 0, 1, HOST)) for body in bodies]
    await store.wait_committed(placed[-1].end)
    return [each.log_offset for each in placed]


stretches = st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=4).map(sorted), min_size=1, max_size=4)


@settings(max_examples=60)
@given(stretches, st.integers(-1, 14))
def test_a_search_by_time_gives_a_message_that_lies_at_the_boundary_asked_for(
    epochs: list[list[int]], time_ms: int
) -> None:
    times, spans = [ms for epoch in epochs for ms in epoch], list[tuple[int, int]]()
    for epoch in epochs:
        begin = spans[-1][1] if spans else 0
        spans.append((begin, begin + len(epoch)))

    def ask(boundary: str) -> int:
        return search_spans(times.__getitem__, spans, time_ms, boundary)

    near, high = ask("nearest"), len(times)
    assert abs(times[near] - time_ms) == min(abs(each - time_ms) for each in times)
    lower, upper = ask("lower"), ask("upper")
    if times == sorted(times):  # the clock never stepped: there is one answer
        assert lower == next((n for n in range(high) if times[n] >= time_ms), high)
        assert upper == next((n for n in reversed(range(high)) if times[n] <= time_ms), 0)
    else:
        assert lower == high or times[lower] >= time_ms
        assert upper == 0 or times[upper] <= time_ms


async def test_a_time_between_two_runs_leads_to_the_first_message_of_the_second(tmp_path: Path) -> None:
    for began in (1_000_000, 5_000_000):
        now = [began]
        async with open_store(config(tmp_path), now_ms=lambda now=now: now[0]) as store:  # type: ignore[misc]
            for _ in range(5):
                await put(store, b"x")
                now[0] += 1000
            if began > 1_000_000:
                between = [await store.offset_by_time(QUEUE, 3_000_000, boundary=b) for b in ("lower", "upper")]
                assert between == [5, 4]
                edges = (999_999, 1_000_000, 1_004_000, 1_004_001, 5_000_000, 5_004_000, 5_004_001)
                assert [await store.offset_by_time(QUEUE, ms, boundary="lower") for ms in edges] == [
                    0,
                    0,
                    4,
                    5,
                    5,
                    9,
                    10,
                ]
                assert [await store.offset_by_time(QUEUE, ms, boundary="upper") for ms in edges] == [
                    0,
                    0,
                    4,
                    4,
                    5,
                    9,
                    9,
                ]


async def test_a_queue_whose_last_messages_were_lost_keeps_those_before_them(tmp_path: Path) -> None:
    async with open_store(config(tmp_path), now_ms=lambda: 1) as store:
        places = await put(store, b"first" * 20, b"second" * 20, b"third" * 20)
        await store.prove()
        path = store._log.segments[0].path
        raw = bytearray(path.read_bytes())
        for place in places[1:]:
            raw[place + 100] ^= 0xFF
        path.write_bytes(bytes(raw))
        for number in (1, 2):
            assert (await store.read(QUEUE, number, max_count=1, max_bytes=1)).records == 0
    async with open_store(config(tmp_path), now_ms=lambda: 1) as store:
        found = await store.read(QUEUE, 0, max_count=9, max_bytes=1 << 20)
        assert [decode_record(chunk).body for chunk in found.chunks] == [b"first" * 20]
        assert (store.min_offset(QUEUE), store.max_offset(QUEUE), found.next_offset) == (0, 3, 3)


async def test_a_deleted_segment_moves_the_queues_begin_and_what_asks_below_it_is_sent_there(tmp_path: Path) -> None:
    async with open_store(config(tmp_path), now_ms=lambda: 1) as store:
        places = await put(store, *[b"%d " % n + bytes(30_000) for n in range(10)])
        await put(store, b"other", topic="Later")
        assert store.min_offset(QUEUE) == 0
        assert await store.drop_first(0)
        low = next(n for n, place in enumerate(places) if place >= SEGMENT)
        assert low == 4
        hot = store.read_hot(ReadRequest(QUEUE, 0, 1, 1))
        assert hot is None or hot.status is FoundStatus.OFFSET_TOO_SMALL
        found = await store.read(QUEUE, 0, max_count=1, max_bytes=1)
        assert (found.status, found.next_offset, found.min_offset) == (FoundStatus.OFFSET_TOO_SMALL, low, low)
        assert store.min_offset(QUEUE) == low
        assert await store.stored_ms_at(QUEUE, low - 1) is None
        assert await store.stored_ms_at(QUEUE, low) == 1
        assert await store.record_at(places[0]) is None
        assert store.min_offset(MessageQueue("Later", 0)) == 0
        assert [await store.offset_by_time(QUEUE, ms) for ms in (0, 1 << 61)] == [low, 9]


async def test_a_topic_that_does_not_exist_is_answered_everywhere(tmp_path: Path) -> None:
    async with open_store(config(tmp_path), now_ms=lambda: 1) as store:
        nothing = MessageQueue("None", 3)
        assert (await store.read(nothing, 0, max_count=1, max_bytes=1)).status is FoundStatus.NO_MATCHED_LOGIC_QUEUE
        assert await store.offset_by_time(nothing, 5) == 0
        assert await store.stored_ms_at(nothing, 0) is None
        assert (store.min_offset(nothing), store.max_offset(nothing), store.has_queue(nothing)) == (0, 0, False)


async def test_what_is_not_durable_yet_is_no_record(tmp_path: Path) -> None:
    async with open_store(config(tmp_path), now_ms=lambda: 1) as store:
        placed = store.put(Message("T", 0, b"x", b"", 0, 0, 1, HOST))
        assert await store.record_at(placed.log_offset) is None or store.committed >= placed.end
        await store.wait_committed(placed.end)
        assert await store.record_at(placed.log_offset) is not None


@pytest.mark.slow
async def test_a_key_is_found_as_soon_as_its_message_is_durable_however_many_come_with_it(tmp_path: Path) -> None:
    async with open_store(config(tmp_path), now_ms=lambda: 1) as store:
        for number in range(4):  # rounds leave some hundreds to the index for later
            await put(store, *[b"many"] * 300, KEYS=f"k{number}")
            assert len(await store.find_by_key("T", f"k{number}", 64, *ALL)) == 64


@pytest.mark.slow
async def test_a_search_by_key_waits_for_no_index_that_is_being_made_anew_from_the_log() -> None:
    disk, may_go_on, begun = MemoryDisk(folders=FOLDERS), threading.Event(), threading.Event()
    async with open_store(SMALL, now_ms=lambda: 1, disk=disk) as store:
        await put(store, *[b"old"] * 30, KEYS="old")
        await store.prove()
    disk = disk.restarted()
    disk.remove_folder(SMALL.root / "index")

    def hold(step: DiskStep) -> None:
        if any(name == f"{SMALL.root}/index.tmp" for name, _ in step.names):
            begun.set()
            may_go_on.wait(30)

    disk.before = hold
    async with open_store(SMALL, now_ms=lambda: 1, disk=disk) as store:
        try:
            await trio.to_thread.run_sync(begun.wait, 30)
            with trio.fail_after(25):
                assert await store.find_by_key("T", "old", 64, *ALL) == []
        finally:
            may_go_on.set()
        await store.prove()
        assert len(await store.find_by_key("T", "old", 64, *ALL)) == 30


async def test_keys_are_found_in_their_topic_and_time_alone_and_within_what_was_asked(tmp_path: Path) -> None:
    now = [10_000]
    async with open_store(config(tmp_path), now_ms=lambda: now[0]) as store:
        await put(store, b"mine", KEYS="same other")
        await put(store, b"foreign", topic="U", KEYS="same")
        now[0] = 20_000
        await put(store, *[b"late%d" % n for n in range(70)], KEYS="same")
        await store.prove()

        async def bodies(key: str, most: int, begin: int, end: int) -> list[bytes]:
            return [decode_record(raw).body for raw in await store.find_by_key("T", key, most, begin, end)]

        assert await bodies("same", 9, 0, 10_000) == [b"mine"]
        assert await bodies("other", 9, *ALL) == [b"mine"]
        assert await bodies("sam", 9, *ALL) == []
        assert await bodies("same", 9, 11_000, 19_000) == []
        assert await bodies("same", 9, 20_000, 10_000) == [], "an end before the begin"
        assert len(await bodies("same", 3, *ALL)) == 3
        assert len(await bodies("same", 1000, *ALL)) == 64
        assert await bodies("same", 0, *ALL) == []


@pytest.mark.parametrize("kept", ["long", "short"])
async def test_the_longest_age_of_the_topics_in_a_range_counts(tmp_path: Path, kept: str) -> None:
    rules = RetentionRules(50, (RetentionClass(("Long*",), 900), RetentionClass(("Short",), 5)))
    async with open_store(config(tmp_path, retention=rules), now_ms=lambda: 1) as store:
        await put(store, bytes(9000), topic="LongAgo" if kept == "long" else "Short")
        await put(store, bytes(9000), topic="Short")
        end = store.end
        await put(store, bytes(9000), topic="Other")
        assert await store._lookup.longest_kept(0, end) == (900 if kept == "long" else 5)
        assert await store._lookup.longest_kept(end, store.end) == 50
        assert await store._lookup.longest_kept(store.end, store.end + 100) == 0
