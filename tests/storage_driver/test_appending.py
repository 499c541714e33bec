"""Which number, place and time a message gets; what is refused and takes nothing; over a real store."""

import errno
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_driver.config import StoreConfig
from storage_driver.errors import Full, LogFailed, MessageIllegal, PropertiesTooLong, TablesFailed
from storage_driver.record import (
    MAX_PROPERTIES_BYTES,
    Message,
    MessageQueue,
    Parts,
    decode_record,
    encode_batch,
    encode_host,
    encode_record,
    encode_topic,
)
from storage_driver.store import MessageStore, open_store

HOST = encode_host("127.0.0.1", 10911)
QUEUE = MessageQueue("T", 0)
START = 1_700_000_000_000


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        root / "store", HOST, segment_bytes=256 * 1024, max_message_bytes=64 * 1024, queue_file_entries=50
    )


def message(body: bytes = b"hello", topic: str = "T", queue_id: int = 0) -> Message:
    return Message(topic, queue_id, body, b"", 0, 0, 1, HOST)


async def one(store: MessageStore, body: bytes = b"hello") -> int:
    placed = store.put(message(body))
    await store.wait_committed(placed.end)
    return placed.queue_offset


ILLEGAL = [
    message(bytes(64 * 1024 + 1)),
    message()._replace(properties=bytes(MAX_PROPERTIES_BYTES + 1)),
    message()._replace(born_host=bytes(9)),
    message(topic=""),
    message(topic="t" * 128),
    message(topic="\u00fc" * 64),
    *[message(topic=topic) for topic in (".", "..", "a/b", "/", "a\0b")],
    message(queue_id=-1),
]


async def test_what_is_refused_takes_neither_number_nor_place_nor_makes_a_folder(tmp_path: Path) -> None:
    async with open_store(config(tmp_path), now_ms=lambda: START) as store:
        for bad in ILLEGAL:
            with pytest.raises(MessageIllegal):
                store.put(bad)
            with pytest.raises(MessageIllegal):
                store.put_batch(bad, Parts.of([(0, b"fine", b""), (0, bad.body, bad.properties)]))
        with pytest.raises(PropertiesTooLong):
            store.put(ILLEGAL[1])
        assert (store.end, set(store.topics()) - {"T"}, store.max_offset(QUEUE)) == (0, set(), 0)
        assert list((tmp_path / "store" / "consumequeue").iterdir()) == []
        largest = store.put(message(bytes(64 * 1024))._replace(properties=b"A\x01" + b"b" * (MAX_PROPERTIES_BYTES - 2)))
        await store.wait_committed(largest.end)
        assert (largest.queue_offset, largest.log_offset) == (0, 0)


async def test_a_copy_of_what_was_acknowledged_may_be_larger_than_the_limit_as_far_as_a_segment_holds_it(
    tmp_path: Path,
) -> None:
    """The limit may have been lowered since."""
    async with open_store(config(tmp_path), now_ms=lambda: START) as store:
        for number, size in enumerate((64 * 1024 + 1, 220_000)):
            placed = store.put(message(bytes(size)), own=True)
            await store.wait_committed(placed.end)
            assert placed.queue_offset == number
        for queue_id in (0, 1):
            with pytest.raises(MessageIllegal, match="body of 262000 bytes"):
                store.put(message(bytes(262_000), queue_id=queue_id), own=True)


async def test_a_batch_is_stored_whole_or_not_at_all(tmp_path: Path) -> None:
    async with open_store(config(tmp_path), now_ms=lambda: START) as store:
        with pytest.raises(MessageIllegal, match="a segment has 262144"):
            store.put_batch(message(), Parts.of([(0, bytes(60_000), b"")] * 5))
        for wrong in ((0, bytes(65 * 1024), b""), (0, b"", bytes(MAX_PROPERTIES_BYTES + 1))):
            with pytest.raises(MessageIllegal):
                store.put_batch(message(), Parts.of([(0, b"fine", b""), wrong]))
        store.full = "no room"
        with pytest.raises(Full, match="no room"):
            store.put_batch(message(), Parts.of([(0, b"fine", b"")]))
        assert store.end == 0
        store.full = None
        batch = store.put_batch(message(), Parts.of([(0, b"a", b""), (0, b"b", b"")]))
        assert (batch.queue_offset, await one(store)) == (0, 2)


async def test_a_store_without_room_takes_what_the_box_itself_has_to_store_until_the_disk_is_really_full(
    tmp_path: Path,
) -> None:
    async with open_store(config(tmp_path), now_ms=lambda: START) as store:
        store.full = "91 % used"
        with pytest.raises(Full):
            store.put(message())
        assert store.put(message(), own=True).queue_offset == 0
        store._parts.appender.exhausted = True
        with pytest.raises(Full, match="91 % used"):
            store.put(message(), own=True)


@pytest.mark.parametrize(
    ("number", "refusal", "text"),
    [
        (errno.ENOSPC, Full, "the disk is full"),
        (errno.EDQUOT, Full, "the disk is full"),
        (errno.EIO, TablesFailed, "tried"),
    ],
)
async def test_queue_files_that_cannot_be_written_refuse_senders_with_the_reason(
    tmp_path: Path, number: int, refusal: type[Exception], text: str
) -> None:
    async with open_store(config(tmp_path), now_ms=lambda: START) as store:
        store._flusher.failure = OSError(number, "broken")
        for own in (False, True):
            with pytest.raises(refusal, match=text):
                store.put(message(), own=own)
        store._flusher.failure = None
        assert await one(store) == 0


async def test_a_sealed_log_takes_nothing_and_gives_no_number_away(tmp_path: Path) -> None:
    async with open_store(config(tmp_path), now_ms=lambda: START) as store:
        await one(store)
        store.seal("asked to")
        for _ in range(3):
            with pytest.raises(LogFailed, match="asked to"):
                store.put(message())
            with pytest.raises(LogFailed):
                store.put_batch(message(), Parts.of([(0, b"x", b"")]))
        assert store.max_offset(QUEUE) == 1
        assert (await store.read(QUEUE, 0, max_count=9, max_bytes=999)).records == 1
    async with open_store(config(tmp_path), now_ms=lambda: START) as store:
        assert await one(store) == 1


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(
    ("clock_ms", "stored_ms", "epochs"),
    [(5, 5, 1), (0, 0, 1), (-1, 0, 1), (-60_000, 0, 1), (-60_001, -60_001, 2), (3_600_000, 3_600_000, 1)],
)
async def test_store_times_stand_still_for_a_little_step_back_and_follow_a_great_one(
    tmp_path: Path, clock_ms: int, stored_ms: int, epochs: int, batched: bool
) -> None:
    now = [START]
    async with open_store(config(tmp_path), now_ms=lambda: now[0]) as store:
        first = await one(store)
        now[0] = START + clock_ms
        placed = store.put_batch(message(), Parts.of([(0, b"x", b"")])) if batched else store.put(message())
        assert (first, placed.queue_offset, placed.stored_ms) == (0, 1, START + stored_ms)
        boundaries = store._maintenance.clock.boundaries()
        assert len(boundaries) == epochs
        if epochs == 2:
            assert boundaries[1] == (placed.log_offsets[0] if batched else placed.log_offset)  # type: ignore[union-attr]


async def test_after_a_restart_store_times_do_not_fall_behind_the_last_message(tmp_path: Path) -> None:
    async with open_store(config(tmp_path), now_ms=lambda: START) as store:
        await one(store)
    async with open_store(config(tmp_path), now_ms=lambda: START - 30_000) as store:
        assert store.put(message()).stored_ms == START


async def test_a_run_taken_back_gives_its_numbers_to_the_next(tmp_path: Path) -> None:
    async with open_store(config(tmp_path), now_ms=lambda: START) as store:
        await one(store)
        lost, kept = store.put(message()), store.put(message(topic="U"))
        queues = store._queues
        pending = [item for item in store._log._tail.pending if item.queue.key == QUEUE]
        store._parts.appender.on_truncated(pending)
        store._parts.appender.no_room("no room")
        assert store.full == "no room"
        assert (queues[QUEUE].next_offset, lost.queue_offset) == (1, 1)
        assert (queues[MessageQueue("U", 0)].next_offset, kept.queue_offset) == (1, 0)
        with pytest.raises(Full):
            store.put(message(), own=True)


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.integers(-5, 5), st.binary(max_size=40), st.binary(max_size=40)), min_size=1, max_size=6),
    st.sampled_from([HOST, encode_host("fe80::1", 80)]),
    st.sampled_from([0, 1, 0x8]),
)
def test_the_records_of_a_batch_are_those_of_its_messages_one_by_one(
    parts: list[tuple[int, bytes, bytes]], born_host: bytes, sys_flag: int
) -> None:
    shared = Message("T\u00f6", 3, b"", b"", 0, sys_flag, 9, born_host, 2)
    topic, at, singles, numbers = encode_topic(shared.topic), 1000, b"", []
    for number, (flag, body, properties) in enumerate(parts, 7):
        one = shared._replace(flag=flag, body=body, properties=properties)
        raw = encode_record(one, topic, number, at, stored_ms=11, store_host=HOST)
        assert decode_record(raw).body == body
        numbers.append((len(raw), number, at))
        singles, at = singles + raw, at + len(raw)
    sizes, queue_offsets, log_offsets = zip(*numbers, strict=True)
    columns = sizes, queue_offsets, log_offsets
    assert encode_batch(shared, Parts.of(parts), columns, topic, stored_ms=11, store_host=HOST) == singles


async def test_a_topic_deleted_and_used_again_begins_at_zero(tmp_path: Path) -> None:
    async with open_store(config(tmp_path), now_ms=lambda: START) as store:
        for _ in range(2):
            assert [await one(store), await one(store)] == [0, 1]
            await store.delete_topic("T")
            assert not store.has_queue(QUEUE)
