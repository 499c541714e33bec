"""A follower's log: what cannot be appended is dropped, cuts keep what they take, what was written is looked at."""

from pathlib import Path
from zlib import crc32

import pytest
import trio

from appliance.group.copies import log_copy
from appliance.group.copies.common_point import CommonPoint
from appliance.group.copies.log_copy import CopyFailed, CutAtStart, LogCopy
from storage_driver.consensus.effects import LogCut
from storage_driver.consensus.messages import Append
from storage_driver.files.disk import RealDisk
from storage_driver.log.cut_history import CutHistory
from storage_driver.log.truncation import Truncation
from storage_driver.store import open_store
from tests.storage_driver.test_store import Clock, bodies, message, put_all, small
from tests.waiting import until


def no_cut(log_offset: int, end: int, reason: str) -> None:
    raise AssertionError(reason)


def append_of(start: int, data: bytes) -> Append:
    return Append(1, start, len(data), 1, 0, 1, crc32(data), 0, ())


async def records(tmp_path: Path, *names: bytes, queue_id: int = 0) -> bytes:
    """Return records of another log, from 0 on."""
    async with open_store(small(tmp_path), now_ms=Clock()) as source:
        await put_all(source, [message(name, queue_id=queue_id) for name in names])
        return source.read_log(0, source.committed)


async def test_records_that_do_not_continue_the_log_are_dropped_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = await records(tmp_path / "a", b"1", b"2")
    async with open_store(small(tmp_path / "b", copies_only="it follows"), now_ms=Clock()) as store:
        copy = LogCopy(store, no_cut)
        for _ in range(3):
            assert copy.append(append_of(50, data), data) is None
        assert copy.append(append_of(0, data[:-1]), data[:-1]) is None
        assert copy.append(append_of(0, data), data) == len(data) == store.end
    assert [record.getMessage().count("append_refused") for record in caplog.records] == [1, 1]


async def test_a_full_disk_takes_nothing_until_there_is_room(tmp_path: Path) -> None:
    data = await records(tmp_path / "a", b"1")
    async with open_store(small(tmp_path / "b", copies_only="it follows"), now_ms=Clock()) as store:
        copy = LogCopy(store, no_cut)
        store.full = "91 % used"
        assert copy.append(append_of(0, data), data) is None
        assert copy.refused.startswith("the disk is full: ")
        store.full = None
        assert copy.append(append_of(0, data), data) == len(data)


async def test_a_topic_that_begins_anew_waits_until_its_old_queues_are_gone(tmp_path: Path) -> None:
    async with open_store(small(tmp_path / "a"), now_ms=Clock()) as source:
        await put_all(source, [message(b"old")])
        end = source.committed
        await source.delete_topic("T")
        await put_all(source, [message(b"new")])
        old, new = source.read_log(0, end), source.read_log(end, source.committed - end)
    async with open_store(small(tmp_path / "b", copies_only="it follows"), now_ms=Clock()) as store:
        copy = LogCopy(store, no_cut)
        assert copy.append(append_of(0, old), old) == end
        async with trio.open_nursery() as nursery:
            nursery.start_soon(copy.run)
            assert copy.append(append_of(end, new), new) is None
            assert copy.append(append_of(end, new), new) is None, "while they are deleted nothing is taken"
            await until(lambda: copy.append(append_of(end, new), new) is not None)
            await store.wait_committed(store.end)
            nursery.cancel_scope.cancel()
        assert await bodies(store) == [b"new"]


async def test_of_a_piece_in_which_a_topic_begins_anew_the_beginning_is_taken_and_then_the_rest(tmp_path: Path) -> None:
    async with open_store(small(tmp_path / "a"), now_ms=Clock()) as source:
        await put_all(source, [message(b"old")])
        await source.delete_topic("T")
        await put_all(source, [message(b"first", queue_id=1), message(b"second")])
        data = source.read_log(0, source.committed)
    async with open_store(small(tmp_path / "b", copies_only="it follows"), now_ms=Clock()) as store:
        copy = LogCopy(store, no_cut)
        end = copy.append(append_of(0, data), data)
        assert end == store.end
        assert end < len(data)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(copy.run)
            await until(lambda: copy.append(append_of(end, data[end:]), data[end:]) == len(data))
            await store.wait_committed(len(data))
            nursery.cancel_scope.cancel()
        assert await bodies(store) == [b"second"]
        assert await bodies(store, queue_id=1) == [b"first"]


async def test_a_queue_that_the_disk_does_not_delete_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(small(tmp_path / "a"), now_ms=Clock()) as source:
        await put_all(source, [message(b"old")])
        await source.delete_topic("T")
        await put_all(source, [message(b"new")])
        data = source.read_log(0, source.committed)
    async with open_store(small(tmp_path / "b", copies_only="it follows"), now_ms=Clock()) as store:
        copy, restart, tries = LogCopy(store, no_cut), store.restart_queue, list[str]()

        async def full_once(topic: str, queue_id: int) -> None:
            tries.append(topic)
            if len(tries) == 1:
                raise OSError(28, "No space left on device")
            await restart(topic, queue_id)

        monkeypatch.setattr(store, "restart_queue", full_once)
        end = copy.append(append_of(0, data), data) or 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(copy.run)
            await until(lambda: "No space left" in copy.refused)
            await until(lambda: copy.append(append_of(end, data[end:]), data[end:]) == len(data))
            nursery.cancel_scope.cancel()
        assert (tries, copy.refused) == (["T", "T"], "")


async def test_a_cut_keeps_what_it_takes_away(tmp_path: Path) -> None:
    data = await records(tmp_path / "a", b"kept", b"taken")
    config = small(tmp_path / "b", shared=True, copies_only="it follows")
    async with open_store(config, now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        copy = LogCopy(store, no_cut)
        copy.append(append_of(0, data), data)
        middle = int.from_bytes(data[:4], "big")
        await copy.cut(LogCut(middle, "the leader of term 2 has other records"))
        cut = copy.divergence
        assert cut is not None
        assert (cut.start, cut.end, cut.messages) == (middle, len(data), 1)
        assert CutHistory(RealDisk(), config.root).load()[-1].at_ms == cut.at_ms > 0
        assert b"taken" in (config.root / "quarantine" / cut.quarantine).read_bytes()
        assert store.end == middle


async def test_nothing_is_cut_where_the_bytes_below_are_not_the_leaders(tmp_path: Path) -> None:
    data = await records(tmp_path / "a", b"kept", b"taken")
    middle = int.from_bytes(data[:4], "big")
    async with open_store(small(tmp_path / "b", shared=True, copies_only="it follows"), now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        copy = LogCopy(store, no_cut)
        copy.append(append_of(0, data), data)
        copy.common = CommonPoint(middle, middle, crc32(data[:middle]) ^ 1)
        with pytest.raises(CopyFailed, match="are not those of the leader"):
            await copy.cut(LogCut(middle, "the leader of term 2 has other records"))
        assert store.end == len(data)
        copy.common = CommonPoint(middle, middle, crc32(data[:middle]))
        await copy.cut(LogCut(middle, "the leader of term 2 has other records"))
        assert store.end == middle


async def test_an_empty_log_begins_where_the_leaders_does(tmp_path: Path) -> None:
    async with open_store(small(tmp_path, copies_only="it follows"), now_ms=Clock()) as store:
        copy = LogCopy(store, no_cut)
        await copy.cut(LogCut(3 * store.segment_bytes, "the log is empty", restart=True))
        assert (store.first, store.end) == (3 * store.segment_bytes,) * 2
        assert copy.divergence is None


@pytest.mark.pure
async def test_bytes_that_are_not_those_that_came_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_copy, "READ_BACK_EVERY", 1)
    data = await records(tmp_path / "a", b"1", b"2")
    for crc in (crc32(data), 1):
        async with open_store(small(tmp_path / f"b{crc}", copies_only="it follows"), now_ms=Clock()) as store:
            copy = LogCopy(store, no_cut)
            copy.append(append_of(0, data)._replace(crc=crc), data)
            await until(lambda store=store: store.synced == store.end)  # type: ignore[misc]
            with trio.move_on_after(0.5) as scope:
                with pytest.raises(CopyFailed, match="are not those that were written"):
                    await copy.run()
                assert crc == 1
            assert scope.cancelled_caught == (crc != 1)


async def test_a_cut_below_what_was_committed_is_left_to_the_next_start_and_told_as_a_loss(tmp_path: Path) -> None:
    data = await records(tmp_path / "a", b"kept", b"taken", b"taken too")
    config, at = small(tmp_path / "b", shared=True, copies_only="it follows"), int.from_bytes(data[:4], "big")
    async with open_store(config, now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        copy = LogCopy(store, Truncation(RealDisk(), config.root).begin)
        copy.append(append_of(0, data), data)
        await until(lambda: store.synced == len(data))
        store.commit(len(data))
        await store.prove()
        with pytest.raises(CutAtStart, match=f"cuts the log at {at}"):
            await copy.cut(LogCut(at, "the leader of term 2 has other records", below_committed=True))
    for opening in range(2):
        async with open_store(config, now_ms=Clock()) as store:
            assert (store.end, store.committed) == (at, at)
            assert await bodies(store) == [b"kept"]
            [loss] = store.losses.unacknowledged()
            assert loss.ranges == [(at, len(data))]
            assert "the leader of term 2" in loss.reasons[0]
            assert loss.messages == 2
            told = LogCopy(store, no_cut, CutHistory(RealDisk(), config.root).load()).divergence
            assert told is not None
            assert (told.start, told.end, told.messages) == (at, len(data), 2)
            cut = [reason for reason in store.verdict.reasons if f"the log was cut at {at}" in reason]
            assert len(cut) == (not opening)
    kept = b"".join(path.read_bytes() for path in (config.root / "quarantine").iterdir())
    assert b"taken too" in kept
    async with open_store(config, now_ms=Clock()) as store:  # and it goes on with other records
        other = await records(tmp_path / "c", b"kept", b"other", b"and more of it")
        assert store.append_raw(at, other[at:]) == len(other)
        await until(lambda: store.synced == len(other))
        store.commit(len(other))
        await store.prove()
    async with open_store(config, now_ms=Clock()) as store:
        assert await bodies(store) == [b"kept", b"other", b"and more of it"]
        assert len(store.losses.unacknowledged()) == 1
