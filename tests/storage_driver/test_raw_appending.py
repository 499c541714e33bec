"""Records of another log are appended where they lie there, byte for byte, or not at all."""

from pathlib import Path

import pytest

from storage_driver.errors import LogFailed, NotNext, QueueRestarted, RecordDamaged
from storage_driver.record import BLANK, MAGIC_BLANK, MessageQueue
from storage_driver.store import MessageStore, open_store
from tests.storage_driver.test_store import Clock, bodies, message, put_all, small

SEGMENT = 128 * 1024


async def pieces(tmp_path: Path, count: int, body: bytes = b"x" * 900) -> list[tuple[int, bytes]]:
    """Return the log of another store in pieces that end with a segment: (log offset, bytes)."""
    async with open_store(small(tmp_path / "other"), now_ms=Clock()) as store:
        await put_all(store, [message(body + b"%d" % number, queue_id=number % 3) for number in range(count)])
        found, at = [], 0
        while at < store.committed:
            end = min(at - at % SEGMENT + SEGMENT, store.committed)
            found.append((at, _without_zeros(store, at, end)))
            at = end
        return found


def _without_zeros(store: MessageStore, start: int, end: int) -> bytes:
    """Return the records of a range and the head of the blank behind them."""
    data = store.read_log(start, end - start)
    at = 0
    while at < len(data):
        size, magic = BLANK.unpack_from(data, at)
        if magic == MAGIC_BLANK:
            return data[: at + BLANK.size]
        at += size
    return data


async def test_a_copy_is_byte_for_byte_the_log_that_it_was_made_from(tmp_path: Path) -> None:
    copied = await pieces(tmp_path, 300)
    assert len(copied) > 2, "segments end in between"
    async with open_store(small(tmp_path / "copy"), now_ms=Clock()) as store:
        for log_offset, data in copied:
            assert store.append_raw(log_offset, data) == store.end
        await store.wait_committed(store.end)
        for log_offset, data in copied:
            assert store.read_log(log_offset, len(data)) == data
        assert await bodies(store, queue_id=1) == [b"x" * 900 + b"%d" % number for number in range(1, 300, 3)]
    async with open_store(small(tmp_path / "copy"), now_ms=Clock()) as store:
        assert store.verdict.verdict == "clean"
        assert store.max_offset(MessageQueue("T", 1)) == 100
        assert await put_all(store, [message(queue_id=1)]) == [100], "the copy goes on with the next number"


async def test_records_come_at_the_end_of_the_log_or_are_refused(tmp_path: Path) -> None:
    [(_, data)] = await pieces(tmp_path, 3)
    async with open_store(small(tmp_path / "copy"), now_ms=Clock()) as store:
        with pytest.raises(NotNext, match=r"100.*0"):
            store.append_raw(100, data)
        store.append_raw(0, data)
        with pytest.raises(NotNext):
            store.append_raw(0, data)


@pytest.mark.parametrize("wrong", ["body", "short", "garbage", "blank"])
async def test_of_damaged_bytes_nothing_is_appended(tmp_path: Path, wrong: str) -> None:
    [(_, data)] = await pieces(tmp_path, 3)
    damaged = {
        "body": data[:-40] + b"!" + data[-39:],
        "short": data[:-1],
        "garbage": data + bytes(50),
        "blank": data + BLANK.pack(77, MAGIC_BLANK),
    }[wrong]
    async with open_store(small(tmp_path / "copy"), now_ms=Clock()) as store:
        with pytest.raises(RecordDamaged):
            store.append_raw(0, damaged)
        assert (store.end, store.topics()) == (0, [])
        store.append_raw(0, data)


async def test_numbers_that_a_queue_has_given_out_are_refused(tmp_path: Path) -> None:
    [(_, data)] = await pieces(tmp_path, 3)
    async with open_store(small(tmp_path / "copy"), now_ms=Clock()) as store:
        with pytest.raises((RecordDamaged, QueueRestarted)):
            store.append_raw(0, data + data)
        assert store.end == 0


async def test_a_record_that_lies_where_a_queue_began_anew_is_told_apart(tmp_path: Path) -> None:
    [(_, data)] = await pieces(tmp_path, 1)
    async with open_store(small(tmp_path / "restarted"), now_ms=Clock()) as store:
        await put_all(store, [message(b"x" * 900 + b"0")])
        await store.delete_topic("T")
        await put_all(store, [message(b"x" * 900 + b"0")])
        again = store.read_log(len(data), len(data))
    async with open_store(small(tmp_path / "copy"), now_ms=Clock()) as store:
        store.append_raw(0, data)
        with pytest.raises(QueueRestarted, match="T"):
            store.append_raw(len(data), again)


async def test_a_sealed_log_takes_no_copy(tmp_path: Path) -> None:
    [(_, data)] = await pieces(tmp_path, 1)
    async with open_store(small(tmp_path / "copy"), now_ms=Clock()) as store:
        store.seal("the disk fails")
        with pytest.raises(LogFailed, match="the disk fails"):
            store.append_raw(0, data)
