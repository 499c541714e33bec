"""Records of another log are appended where they lie there, byte for byte, or not at all."""

import shutil
from pathlib import Path

import pytest
import trio

from storage_driver.errors import Full, LogFailed, NotNext, QueueRestarted, RecordDamaged
from storage_driver.record import BLANK, MAGIC_BLANK, Message, MessageQueue, Parts, encode_record
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


async def test_a_copy_begins_where_its_source_begins_also_after_a_stop_at_any_piece(tmp_path: Path) -> None:
    base = 3 * SEGMENT
    async with open_store(small(tmp_path / "other"), now_ms=Clock()) as source:
        await source.begin_at(base)
        await put_all(source, [message(b"%d" % number + b"x" * 900) for number in range(300)])
        ends = [min(each.base + SEGMENT, source.committed) for each in source.segments()]
        copied = [
            (each.base, _without_zeros(source, each.base, end))
            for each, end in zip(source.segments(), ends, strict=True)
        ]
    config = small(tmp_path / "copy", copies_only="this is a copy")
    async with open_store(config, now_ms=Clock()) as store:
        with pytest.raises(ValueError, match=f"can't begin at {base + 1}"):
            await store.begin_at(base + 1)
        await store.begin_at(base)
        assert (store.first, store.end, store.committed) == (base, base, base)
    for number, (log_offset, data) in enumerate(copied):  # opened and closed between
        async with open_store(config, now_ms=Clock()) as store:
            assert (store.verdict.verdict, store.losses.messages()) == ("clean", 0)
            assert store.append_raw(log_offset, data) == store.end
            await store.wait_committed(store.end if number == len(copied) - 1 else store.end - 1000)
            with pytest.raises(ValueError, match="can't begin at"):
                await store.begin_at(base)
    async with open_store(config, now_ms=Clock()) as store:
        assert (store.verdict.verdict, store.first) == ("clean", base)
        assert await bodies(store) == [b"%d" % number + b"x" * 900 for number in range(300)]


async def test_a_copy_that_holds_nothing_yet_has_lost_nothing_and_may_begin_again_higher(tmp_path: Path) -> None:
    config = small(tmp_path / "copy", copies_only="this is a copy")
    for begin, again in ((3, 3), (5, 7), (9, 9)):
        async with open_store(config, now_ms=Clock()) as store:
            assert (store.verdict.verdict, store.verdict.lost, store.losses.messages()) == ("clean", None, 0)
            for number in (begin, again):
                await store.begin_at(number * SEGMENT)
                assert (store.first, store.end, store.committed) == (number * SEGMENT,) * 3
            with pytest.raises(ValueError, match="can't begin at"):
                await store.begin_at((again - 1) * SEGMENT)
            await store.prove()  # its position is saved
    assert not (tmp_path / "copy" / "rocketbox" / "losses.json").exists()


async def test_a_store_of_copies_takes_no_message_of_its_own(tmp_path: Path) -> None:
    [(_, data)] = await pieces(tmp_path, 3)
    async with open_store(small(tmp_path / "copy", copies_only="the master takes them"), now_ms=Clock()) as store:
        store.append_raw(0, data)
        await store.check_space()
        for own in (False, True):
            with pytest.raises(Full, match="the master takes them"):
                store.put(message(), own=own)
        with pytest.raises(Full, match="the master takes them"):
            store.put_batch(message(), Parts([0], [b""], [b""]))
        assert store.full is None, "its disk is not"
        store.full = "the disk is"
        assert store.full == "the disk is"


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


@pytest.mark.parametrize(("topic", "queue_id"), [("../../out", 0), ("..", 0), ("T", -1), ("t" * 200, 0)])
async def test_a_queue_that_no_folder_can_have_is_refused_with_all_that_came_with_it(
    tmp_path: Path, topic: str, queue_id: int
) -> None:
    async with open_store(small(tmp_path / "copy"), now_ms=Clock()) as store:
        data = b""
        for name, number in (("fine", 0), (topic, queue_id)):
            raw = bytes((len(name),)) + name.encode()
            one = message(b"x", queue_id=number)
            data += encode_record(one, raw, 0, len(data), stored_ms=1, store_host=b"\x7f\0\0\1\0\0\0\0", crc=None)
        with pytest.raises(RecordDamaged):
            store.append_raw(0, data)
        assert (store.end, store.topics()) == (0, [])


V4, V6 = b"\x7f\0\0\1\0\0\0\1", bytes(15) + b"\1\0\0\0\1"
KINDS = (  # queue, number, flags, born host, stored at
    *((0, number, 0, V4, 7) for number in range(3)),  # a batch
    *((1, 0, 0, V4, 7), (0, 3, 0, V4, 7), (0, 4, 0, V4, 8), (0, 5, 8, V4, 8), (0, 0, 4, V4, 8), (0, 0, 12, V4, 8)),
    *((0, 6, 0x10, V6, 8), (0, 7, 0, V4, 8), (0, 9, 0, V4, 8), (0, 10, 0, V4, 8)),  # 8 is a hole
)


async def test_records_of_all_kinds_have_their_numbers_and_neighbours_that_are_alike_come_together(
    tmp_path: Path,
) -> None:
    data = b""
    for at, (queue_id, number, flags, born, stored_ms) in enumerate(KINDS):
        one = Message("T", queue_id, b"%d" % at, b"TAGS\x01t%d\x02" % at, 0, flags, 1, born)
        data += encode_record(one, b"\x01T", number, len(data), stored_ms=stored_ms, store_host=V4, crc=None)
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        store.append_raw(0, data)
        await store.wait_committed(store.end)
        assert store.read_log(0, len(data) + 1) == data
        assert await bodies(store, queue_id=0) == [b"0", b"1", b"2", b"4", b"5", b"6", b"9", b"10", b"11", b"12"]
        assert await bodies(store, queue_id=1) == [b"3"]
        assert [store.max_offset(MessageQueue("T", each)) for each in (0, 1)] == [11, 1]
        assert (await put_all(store, [message(queue_id=0)])) == [11]


@pytest.mark.parametrize("at", [0, 4, 20, 28, 84, 88 + 901, 88 + 903, 88 + 904])
async def test_a_record_with_one_changed_byte_is_refused_like_all_that_came_with_it(tmp_path: Path, at: int) -> None:
    data = b""
    for number in range(2):
        one = message(b"x" * 901, KEYS="k")
        data += encode_record(one, b"\x01T", number, len(data), stored_ms=1, store_host=V4, crc=None)
    changed = bytearray(data)
    changed[len(data) // 2 + at if at >= 0 else at] ^= 0xFF
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        with pytest.raises(RecordDamaged):
            store.append_raw(0, bytes(changed))
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


async def test_where_a_topic_begins_anew_what_is_below_is_taken_and_its_new_messages_stay(tmp_path: Path) -> None:
    async with open_store(small(tmp_path / "restarted"), now_ms=Clock()) as store:
        await put_all(store, [message(b"old", queue_id=number) for number in (3, 0, 0, 2, 3)])
        await store.delete_topic("T")
        await put_all(store, [message(b"new", queue_id=number) for number in (1, 1, 0)])
        data = store.read_log(0, 1 << 20)
        found = [await bodies(store, queue_id=number) for number in (0, 1)]
    config = small(tmp_path / "copy", copies_only="this is a copy")
    async with open_store(config, now_ms=Clock()) as store:
        with pytest.raises(QueueRestarted, match="queue 0 of T again") as restarted:
            store.append_raw(0, data)
        at = restarted.value.log_offset
        assert 0 < store.end == at < len(data)
        assert store.queues("T") == [0, 1, 2, 3]
        with trio.fail_after(60):
            await store.restart_queue("T", 0)
        assert store.queues("T") == [1, 2], "queue 2 may have messages of the topic's new life"
        assert store.append_raw(at, data[at:]) == len(data)
        await store.wait_committed(len(data))
        assert [await bodies(store, queue_id=number) for number in (0, 1)] == found
    async with open_store(config, now_ms=Clock()) as store:
        assert store.verdict.verdict == "clean"
        assert [await bodies(store, queue_id=number) for number in (0, 1)] == found


async def test_a_sealed_log_takes_no_copy(tmp_path: Path) -> None:
    [(_, data)] = await pieces(tmp_path, 1)
    async with open_store(small(tmp_path / "copy"), now_ms=Clock()) as store:
        store.seal("the disk fails")
        with pytest.raises(LogFailed, match="the disk fails"):
            store.append_raw(0, data)


async def test_whole_records_behind_damage_that_a_copy_cuts_are_kept_in_quarantine(tmp_path: Path) -> None:
    [(_, data)] = await pieces(tmp_path, 9)
    config = small(tmp_path / "copy", copies_only="this is a copy")
    async with open_store(config, now_ms=Clock()) as store:
        store.append_raw(0, data)
        await store.wait_committed(store.end)
        shutil.copytree(tmp_path / "copy", tmp_path / "killed")  # before queues and position tell of it
    [log] = (tmp_path / "killed").rglob("commitlog/0*")
    damaged = bytearray(log.read_bytes())
    damaged[len(data) // 2] ^= 1
    log.write_bytes(damaged)
    killed = small(tmp_path / "killed", copies_only="this is a copy")
    async with open_store(killed, now_ms=Clock()) as store:
        assert 0 < store.end < len(data), "the rest comes again from its source"
        [kept] = (tmp_path / "killed").rglob("quarantine/log-*")
        assert kept.read_bytes()[: len(data) - store.end] == bytes(damaged[store.end : len(data)])
