"""Messages that the broker stores a second time: nothing of them changes, and the disk is waited for."""

import errno
from pathlib import Path

import pytest
import trio
import trio.lowlevel
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.broker.delay.redelivery import (
    RETRY_S,
    draft_of,
    park,
    put_patiently,
    records_in,
    rest_after,
    unpark,
    wait_kept,
)
from appliance.broker.intake import MessageDraft
from appliance.testing import STORE_HOST, small_store
from storage_driver.errors import Busy, LogFailed, MessageIllegal
from storage_driver.record import Message, MessageQueue, decode_record, encode_record, encode_topic
from storage_driver.statistics import AppendResult
from storage_driver.store import open_store
from storage_driver.testing import V1, V2, V3, V4, V5, MemoryDisk
from tests.power_cut.harness import FOLDERS, config

WHOLE = pytest.mark.parametrize("raw", [V1, V2, V3, V4, V5], ids=["v1", "v2", "ipv6", "delayed", "crc 0"])


@WHOLE
def test_a_copy_of_a_record_is_the_record_again(raw: bytes) -> None:
    stored = decode_record(raw)
    again = draft_of(stored).to_message()
    topic = encode_topic(stored.topic)
    places = (stored.queue_offset, stored.log_offset)
    found = encode_record(again, topic, *places, stored_ms=stored.stored_ms, store_host=stored.store_host)
    kept = ("topic", "queue_id", "body", "property_map", "flag", "sys_flag", "born_ms", "born_host", "reconsume_times")
    assert [getattr(decode_record(found), name) for name in kept] == [getattr(stored, name) for name in kept]
    assert decode_record(found).prepared_offset == stored.prepared_offset


def draft(topic: str, queue_id: int, **properties: str) -> MessageDraft:
    return MessageDraft(topic, queue_id, b"x", dict(properties), 0, 0, 1, STORE_HOST)


@settings(max_examples=20)
@given(
    st.text(min_size=1, max_size=9),
    st.integers(0, (1 << 31) - 1),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3)),
)
def test_what_was_parked_goes_back_where_it_belongs(topic: str, queue_id: int, properties: dict[str, str]) -> None:
    one = draft(topic, queue_id, **properties)
    park(one, "elsewhere", 3)
    assert (one.topic, one.queue_id) == ("elsewhere", 3)
    assert unpark(one)
    assert (one.topic, one.queue_id) == (topic, queue_id)


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"REAL_TOPIC": "T"},
        {"REAL_QID": "1"},
        *({"REAL_TOPIC": "T", "REAL_QID": q} for q in ("", "-1", "x", "1.0", "\u00b2")),
    ],
)
def test_a_draft_that_does_not_say_where_it_belongs_stays_where_it_is(properties: dict[str, str]) -> None:
    one = draft("here", 5, **properties)
    assert not unpark(one)
    assert (one.topic, one.queue_id) == ("here", 5)


def test_records_are_taken_out_of_pieces_in_order() -> None:
    assert [each.body for each in records_in([V1 + V2, b"", V3])] == [decode_record(raw).body for raw in (V1, V2, V3)]
    assert list(records_in([])) == []


async def test_a_full_disk_is_waited_for_and_what_cannot_be_stored_is_not(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with small_store(tmp_path) as small, trio.open_nursery() as nursery:
        small.store._parts.appender.full, small.store._parts.appender.exhausted = "no room", True
        message = Message("T", 0, b"x", b"", 0, 0, 1, STORE_HOST)
        done: list[int] = []

        async def put() -> None:
            done.append((await put_patiently(small.store, message)).queue_offset)

        nursery.start_soon(put)
        await trio.lowlevel.checkpoint()
        assert done == []
        small.store._parts.appender.full, small.store._parts.appender.exhausted = None, False
        await trio.sleep(2 * RETRY_S)
        assert done == [0]
        with pytest.raises(MessageIllegal):
            await put_patiently(small.store, message._replace(queue_id=-1))
        small.store.seal("gone")
        with pytest.raises(LogFailed):
            await put_patiently(small.store, message)


async def test_a_copy_waits_only_a_moment_while_a_sync_takes_long(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with small_store(tmp_path) as small:
        busy, put = [Busy(1200)], small.store.put

        def put_or_refuse(message: Message, *, own: bool = False) -> AppendResult:
            if busy:
                raise busy.pop()
            return put(message, own=own)

        monkeypatch.setattr(small.store, "put", put_or_refuse)
        began = trio.current_time()
        assert (await put_patiently(small.store, Message("T", 0, b"x", b"", 0, 0, 1, STORE_HOST))).queue_offset == 0
        assert trio.current_time() - began < RETRY_S


async def test_a_copy_that_the_full_disk_took_back_while_the_next_one_waited_for_space_is_not_taken_for_stored(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = MemoryDisk(folders=FOLDERS)
    async with open_store(config(), now_ms=lambda: 1, disk=disk) as store:
        message = Message("T", 0, b"x" * 100, b"", 0, 0, 1, STORE_HOST)
        await store.wait_committed((await put_patiently(store, message)).end)
        name = next(name for name in disk.names if name.endswith(f"/commitlog/{0:020d}"))
        disk.fail_with, disk.ends[disk.names[name]] = errno.ENOSPC, store.end + 10
        since = store.truncations
        first = await put_patiently(store, message)
        with pytest.raises(LogFailed, match="write of"):
            await store.wait_committed(first.end)
        disk.ends.clear()
        second = await put_patiently(store, message)  # waits until the next look at the disk
        assert second.end == first.end
        with pytest.raises(LogFailed, match="undone"):
            await wait_kept(store, second.end, since)
        await wait_kept(store, second.end, store.truncations)
        assert store.max_offset(MessageQueue("T", 0)) == 2


async def test_after_a_failed_disk_a_loop_stands_still_and_after_a_full_one_it_goes_on(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with small_store(tmp_path) as small:
        with trio.move_on_after(60 * RETRY_S) as waited:
            await rest_after(LogFailed("no room"), "timers", small.store)
        assert not waited.cancelled_caught
        small.store.seal("gone")
        with trio.move_on_after(60 * RETRY_S) as waited:
            await rest_after(LogFailed("gone"), "timers", small.store)
        assert waited.cancelled_caught
    assert caplog.text.count("event=timers_stopped reason='gone'") == 1
