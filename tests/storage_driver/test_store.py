import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from storage_driver.config import StoreConfig
from storage_driver.errors import Full, MessageIllegal, StoreRefused
from storage_driver.files.disk import DiskFile, RealDisk
from storage_driver.index.index_file import IndexSize
from storage_driver.queues.dispatch import Arrival
from storage_driver.reading import FoundStatus, ReadRequest
from storage_driver.record import Message, MessageQueue, Parts, decode_record, encode_host, encode_properties
from storage_driver.store import MessageStore, open_store

HOST = encode_host("127.0.0.1", 10911)


class Clock:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.ms


def small(tmp_path: Path, **changes: object) -> StoreConfig:
    settings: dict[str, object] = {
        "root": tmp_path / "store",
        "store_host": HOST,
        "segment_bytes": 128 * 1024,
        "max_message_bytes": 32 * 1024,
        "queue_file_entries": 100,
        "index_size": IndexSize(50, 200),
        "flush_every_s": 0.01,
        **changes,
    }
    return StoreConfig(**settings)  # type: ignore[arg-type]


def message(body: bytes = b"hello", topic: str = "T", queue_id: int = 0, **properties: str) -> Message:
    return Message(topic, queue_id, body, encode_properties(properties), 0, 0, 1, HOST)


async def put_all(store: MessageStore, messages: list[Message]) -> list[int]:
    placed = [store.put(m) for m in messages]
    await store.wait_committed(placed[-1].end)
    return [p.queue_offset for p in placed]


async def bodies(store: MessageStore, topic: str = "T", queue_id: int = 0, start: int = 0) -> list[bytes]:
    """Read a queue to its end."""
    queue, found_bodies, at = MessageQueue(topic, queue_id), [], start
    while at < store.max_offset(queue):
        found = await store.read(queue, at, max_count=32, max_bytes=1 << 20)
        for chunk in found.chunks:
            i = 0
            while i < len(chunk):
                m = decode_record(chunk, i)
                found_bodies.append(m.body)
                i += m.size
        assert found.next_offset > at
        at = found.next_offset
    return found_bodies


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(25):
        while not condition():  # noqa: ASYNC110 - what it waits for has no event
            await trio.sleep(0.01)


async def test_what_was_put_is_read_with_its_offsets(tmp_path: Path) -> None:
    arrivals: list[Arrival] = []
    async with open_store(small(tmp_path), now_ms=Clock(), arrived=arrivals.append) as store:
        assert await put_all(store, [message(b"%d" % i) for i in range(50)]) == list(range(50))
        queue = MessageQueue("T", 0)
        assert (store.min_offset(queue), store.max_offset(queue), store.committed == store.end) == (0, 50, True)
        assert await bodies(store) == [b"%d" % i for i in range(50)]
        assert [a.queue_offset for a in arrivals] == list(range(50))
        found = store.read_hot(ReadRequest(queue, 40, 3, 1 << 20))
        if found is None:  # a round has just moved the entries to their file, which nobody has opened yet
            found = await store.read(queue, 40, max_count=3, max_bytes=1 << 20)
        assert (found.status, found.records, found.next_offset) == (FoundStatus.FOUND, 3, 43)


async def test_nothing_can_be_pulled_before_it_is_durable(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        placed = store.put(message())
        queue = MessageQueue("T", 0)
        assert store.max_offset(queue) == 0
        woken: list[tuple[str | None, int]] = []
        store.when_committed(placed.end, lambda reason: woken.append((reason, store.max_offset(queue))))
        await store.wait_committed(placed.end)
        assert woken == [(None, 1)]


async def test_a_second_opening_finds_all_and_goes_on(tmp_path: Path) -> None:
    config = small(tmp_path)
    for start in (0, 30, 60):
        async with open_store(config, now_ms=Clock()) as store:
            assert await bodies(store) == [b"%d" % i for i in range(start)]
            assert await put_all(store, [message(b"%d" % i) for i in range(start, start + 30)]) == list(
                range(start, start + 30)
            )
            assert store.verdict.verdict == "clean"
            assert len(store.lineage.runs) == start // 30 + 1


async def test_the_log_rolls_and_every_file_has_its_full_length(tmp_path: Path) -> None:
    config = small(tmp_path)
    async with open_store(config, now_ms=Clock()) as store:
        for i in range(40):
            await put_all(store, [message(bytes([i]) * 9000)])
    sizes = {path.name: path.stat().st_size for path in (config.root / "commitlog").iterdir()}
    assert sorted(sizes) == ["00000000000000000000", "00000000000000131072", "00000000000000262144"]
    assert set(sizes.values()) == {131072}
    async with open_store(config, now_ms=Clock()) as store:
        assert await bodies(store) == [bytes([i]) * 9000 for i in range(40)]
        assert [s.base for s in store.segments()] == [0, 131072, 262144]
        await put_all(store, [message(b"more")])


async def test_above_the_full_mark_only_the_brokers_own_copies_are_stored(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        store.full = "91 % used"
        with pytest.raises(Full, match="91 % used"):
            store.put(message(b"sent"))
        placed = store.put(message(b"due"), own=True)
        await store.wait_committed(placed.end)
        assert await bodies(store) == [b"due"]


async def test_a_batch_lies_in_one_segment(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        for _ in range(30):
            batch = store.put_batch(message(), Parts.of([(0, b"x" * 3000, b"") for _ in range(5)]))
            assert len({log_offset // 131072 for log_offset in batch.log_offsets}) == 1
            size = batch.log_offsets[1] - batch.log_offsets[0]
            assert [*batch.log_offsets, batch.end] == [batch.log_offsets[0] + n * size for n in range(6)]
        await store.wait_committed(batch.end)
        assert store.max_offset(MessageQueue("T", 0)) == 150


async def test_a_batch_is_stored_as_its_messages_one_by_one_would_be(tmp_path: Path) -> None:
    rows = [(1, b"a", b"UNIQ_KEY\x01U1\x02TAGS\x01red\x02"), (0, b"", b""), (7, b"c" * 2000, b"KEYS\x01k1 k2\x02")]
    parts = Parts.of(rows)
    found = []
    for folder, born_host in (("v4", HOST), ("v6", encode_host("fe80::1", 5))):
        shared = Message("T", 3, b"", b"", 0, 1, 5, born_host, 2)
        singles = [shared._replace(flag=flag, body=body, properties=raw) for flag, body, raw in rows]
        for batched in (True, False):
            async with open_store(small(tmp_path / f"{folder}{batched}"), now_ms=Clock()) as store:
                store.put(message(queue_id=3))
                end = store.put_batch(shared, parts).end if batched else [store.put(one) for one in singles][-1].end
                await store.wait_committed(end)
                await until(lambda: store.statistics().index_to == store.committed)
                keys = [await store.find_by_key("T", key, 9, 0, 1 << 62) for key in ("U1", "k1", "k2")]
                await store.prove()
                entries = (tmp_path / f"{folder}{batched}/store/consumequeue/T/3" / f"{0:020d}").read_bytes()
                found.append((store.read_log(0, end), keys, entries, store.statistics().messages))
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert all(len(one) == 1 for one in found[0][1])


class NoNewFiles(RealDisk):
    """A disk that makes no file any more."""

    code: int | None = None

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> DiskFile:
        if create and self.code is not None and not path.exists():
            raise OSError(self.code, os.strerror(self.code))
        return super().open(path, create=create, read_only=read_only)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
async def test_a_disk_without_room_for_a_table_is_no_broken_disk(tmp_path: Path, code: int) -> None:
    """The watchdog would restart the box for the one, which cures nothing; for the other it should."""
    disk = NoNewFiles()
    async with open_store(small(tmp_path), now_ms=Clock(), disk=disk) as store:
        await store.wait_committed(store.put(message()).end)
        await store.prove()
        disk.code = code
        await store.wait_committed(store.put(message(topic="New")).end)
        await trio.sleep(0.05)
        if code == errno.EIO:
            with pytest.raises(OSError, match="Input/output"):
                await store.prove()
            assert "Input/output" in str(store.evidence().failure)
            return
        before = store.evidence().synced_age_s
        await store.prove()
        assert store.evidence().synced_age_s < before
        assert store.evidence().failure is None
        disk.code = None
        await store.prove()
        assert await bodies(store, "New") == [b"hello"]


async def test_queue_files_are_what_the_log_says(tmp_path: Path) -> None:
    config = small(tmp_path)
    async with open_store(config, now_ms=Clock()) as store:
        placed = [store.put(message(b"x", TAGS="TagA")) for _ in range(150)]
        await store.wait_committed(placed[-1].end)
        await store.prove()
    folder = config.root / "consumequeue" / "T" / "0"
    assert sorted(p.name for p in folder.iterdir()) == [f"{0:020d}", f"{2000:020d}"]
    raw = b"".join(p.read_bytes() for p in sorted(folder.iterdir()))
    units = [raw[i : i + 20] for i in range(0, 3000, 20)]
    assert units == [
        p.log_offset.to_bytes(8, "big") + p.size.to_bytes(4, "big") + (2598919).to_bytes(8, "big") for p in placed
    ]
    assert raw[3000:] == bytes(1000)


async def test_messages_are_found_by_key_and_by_time(tmp_path: Path) -> None:
    clock = Clock()
    async with open_store(small(tmp_path), now_ms=clock) as store:
        for i in range(20):
            await put_all(store, [message(b"%d" % i, UNIQ_KEY=f"U{i}", KEYS=f"even{i % 2 == 0} k{i}")])
            clock.ms += 1000
        await until(lambda: store.statistics().index_to == store.committed)
        by_key = [decode_record(r).body for r in await store.find_by_key("T", "k7", 10, 0, 1 << 62)]
        assert by_key == [b"7"]
        assert len(await store.find_by_key("T", "evenTrue", 64, 0, 1 << 62)) == 10
        assert await store.find_by_key("T", "nothing", 64, 0, 1 << 62) == []
        queue, begin = MessageQueue("T", 0), 1_700_000_000_000
        assert [await store.offset_by_time(queue, begin + ms) for ms in (-5, 0, 499, 501, 3000, 10**9)] == [
            0,
            0,
            0,
            1,
            3,
            19,
        ]
        assert [await store.offset_by_time(queue, begin + ms, boundary="lower") for ms in (1, 1000, 10**9)] == [
            1,
            1,
            20,
        ]
        assert [await store.offset_by_time(queue, begin + ms, boundary="upper") for ms in (-1, 1000, 1999)] == [0, 1, 1]
        assert await store.stored_ms_at(queue, 3) == begin + 3000
        assert await store.stored_ms_at(queue, 20) is None


async def test_a_record_is_found_by_its_log_offset(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        a, b = store.put(message(b"a")), store.put(message(b"b"))
        await store.wait_committed(b.end)
        raw = await store.record_at(b.log_offset)
        assert raw is not None
        assert decode_record(raw).body == b"b"
        for wrong in (1, -1, b.end, 1 << 50):
            assert await store.record_at(wrong) is None
        assert await store.record_at(a.log_offset, 5) is None
        assert store.read_log(0, 1 << 20) == (await store.record_at(0) or b"") + raw


async def test_reads_outside_the_queue_say_where_it_is(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        await put_all(store, [message() for _ in range(5)])
        queue = MessageQueue("T", 0)

        def ask(at: int, asked: MessageQueue = queue) -> tuple[FoundStatus, int]:
            found = store.read_hot(ReadRequest(asked, at, 32, 1000))
            assert found is not None
            return found.status, found.next_offset

        assert ask(5) == (FoundStatus.OFFSET_OVERFLOW_ONE, 5)
        assert ask(9) == (FoundStatus.OFFSET_OVERFLOW_BADLY, 5)
        assert ask(-1) == (FoundStatus.OFFSET_TOO_SMALL, 0)
        assert ask(0, MessageQueue("None", 0)) == (FoundStatus.NO_MATCHED_LOGIC_QUEUE, 0)


async def test_messages_of_several_queues_are_read_across_what_lies_between_them(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        sent = [((b"%d " % number) * 200, number % 3) for number in range(300)]
        await put_all(store, [message(body, queue_id=queue_id) for body, queue_id in sent])
        for queue_id in range(3):
            at, found_bodies = 0, list[bytes]()
            while at < 100:
                found = store.read_hot(ReadRequest(MessageQueue("T", queue_id), at, 32, 1 << 20))
                assert found is not None
                assert found.records == min(32, 100 - at)
                for chunk in found.chunks:
                    inside = 0
                    while inside < len(chunk):
                        one = decode_record(chunk, inside)
                        found_bodies.append(one.body)
                        inside += one.size
                at = found.next_offset
            assert found_bodies == [body for body, its_queue in sent if its_queue == queue_id]


async def test_filters_are_asked_and_scanned_entries_count(tmp_path: Path) -> None:
    async with open_store(small(tmp_path, max_message_bytes=32 * 1024), now_ms=Clock()) as store:
        await put_all(store, [message(b"%d" % i, TAGS="a" if i % 100 == 99 else "b") for i in range(1000)])
        queue = MessageQueue("T", 0)
        found = store.read_hot(ReadRequest(queue, 0, 3, 1 << 20, lambda code: code == 97))
        assert found is not None
        assert (found.records, found.next_offset) == (3, 399 + 0)
        none = store.read_hot(ReadRequest(queue, 0, 3, 1 << 20, lambda code: False))
        assert none is not None
        assert (none.status, none.next_offset) == (FoundStatus.NO_MATCHED, 800)
        by_record = await store.read(
            queue, 0, max_count=2, max_bytes=1 << 20, accepts_record=lambda raw: b"99" in bytes(raw)
        )
        assert by_record.records == 2


async def test_illegal_messages_are_refused_and_take_no_offset(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        for bad in (message(b"x" * 33000), message(topic="t" * 128), message(topic="../x"), message(queue_id=-1)):
            with pytest.raises(MessageIllegal):
                store.put(bad)
        assert await put_all(store, [message()]) == [0]


async def test_prepared_and_rollback_records_take_no_queue_offset(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        store.put(message()._replace(sys_flag=0x4))
        store.put(message()._replace(sys_flag=0xC))
        assert await put_all(store, [message()._replace(sys_flag=0x8)]) == [0]
        assert store.max_offset(MessageQueue("T", 0)) == 1


async def test_a_prepared_message_is_found_by_its_key_and_a_rollback_is_not(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        for key, flag in (("half", 0x4), ("back", 0xC), ("whole", 0x8)):
            store.put(message(key.encode(), UNIQ_KEY=key)._replace(sys_flag=flag))
        await store.wait_committed(store.end)
        await until(lambda: store.statistics().index_to == store.committed)
        found = [await store.find_by_key("T", key, 9, 0, 1 << 62) for key in ("half", "back", "whole")]
        assert [[decode_record(raw).body for raw in some] for some in found] == [[b"half"], [], [b"whole"]]


async def test_a_deleted_topic_starts_anew_also_after_a_restart(tmp_path: Path) -> None:
    config = small(tmp_path)
    async with open_store(config, now_ms=Clock()) as store:
        await put_all(store, [message(b"%d" % i) for i in range(30)])
        await store.delete_topic("T")
        assert store.topics() == []
        assert not (config.root / "consumequeue" / "T").exists()
    async with open_store(config, now_ms=Clock()) as store:
        assert store.topics() == []
        assert await put_all(store, [message(b"new")]) == [0]
        assert await bodies(store) == [b"new"]


async def test_topics_newer_than_the_topic_table_are_named(tmp_path: Path) -> None:
    config = small(tmp_path)
    async with open_store(config, now_ms=Clock()) as store:
        await put_all(store, [message(topic="Old")])
        known = store.committed
        await put_all(store, [message(topic="New", queue_id=3), message(topic="New", queue_id=1)])
    async with open_store(config, now_ms=Clock()) as store:
        assert store.topics_since(known) == {"New": 3}
        assert store.topics_since(0) == {"New": 3, "Old": 0}


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


async def test_a_locked_store_is_refused_before_anything_of_it_is_touched(tmp_path: Path) -> None:
    settings = small(tmp_path)
    async with open_store(settings, now_ms=Clock()):
        with pytest.raises(StoreRefused, match="in use by another broker"):
            async with open_store(settings, now_ms=Clock()):
                pass
    lock = RealDisk().lock(settings.root / "lock")  # an owner that writes nothing meanwhile
    before = {path: path.stat().st_mtime_ns for path in files(tmp_path)}
    with pytest.raises(StoreRefused, match="in use by another broker"):
        async with open_store(settings, now_ms=Clock()):
            pass
    assert before == {path: path.stat().st_mtime_ns for path in files(tmp_path)}
    lock.release()
    async with open_store(settings, now_ms=Clock()):
        pass


async def test_too_small_segments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="segment_mib"):
        async with open_store(small(tmp_path, max_message_bytes=1 << 20), now_ms=Clock()):
            pass
