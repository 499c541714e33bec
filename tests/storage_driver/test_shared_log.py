"""A log that other boxes share: what is synced here is neither seen nor acknowledged before it is committed."""

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from storage_driver.errors import Full, LogFailed
from storage_driver.log.segment import Write
from storage_driver.record import MAGIC_BLANK, MessageQueue, Parts
from storage_driver.store import MessageStore, open_store
from storage_driver.testing import MemoryDisk
from tests.storage_driver.test_store import Clock, bodies, message, put_all, small, until

QUEUE = MessageQueue("T", 0)


class Waiter:
    """What those who wait for `committed` were told, by log offset."""

    def __init__(self, store: MessageStore) -> None:
        self.store, self.told = store, dict[int, str | None]()

    def wait(self, log_offset: int) -> None:
        def wake(reason: str | None) -> None:
            self.told[log_offset] = reason

        self.store.when_committed(log_offset, wake)


def put(store: MessageStore, *names: bytes) -> list[int]:
    """Append messages, return the log offset just past each."""
    return [store.put(message(name)).end for name in names]


async def test_what_is_synced_is_seen_and_acknowledged_once_it_is_committed(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        synced: list[int] = []
        store.share(synced.append)
        waiter, ends = Waiter(store), put(store, b"a", b"b", b"c")
        for end in ends:
            waiter.wait(end)
        await until(lambda: store.synced == ends[2])
        assert (store.committed, store.max_offset(QUEUE), waiter.told, synced[-1]) == (0, 0, {}, ends[2])
        assert store.read_log(0, 4096) == b"", "a shipper sees nothing of it"
        store.commit(ends[1])
        assert (store.committed, waiter.told) == (ends[1], {ends[0]: None, ends[1]: None})
        assert await bodies(store) == [b"a", b"b"]
        assert len(store.read_log(0, 4096)) == ends[1]
        store.commit(ends[0])
        assert store.committed == ends[1], "the mark never falls"
        store.commit(1 << 40)
        assert (store.committed, await bodies(store)) == (ends[2], [b"a", b"b", b"c"])


async def test_nothing_is_committed_that_this_disk_does_not_have(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        [end] = put(store, b"a")
        store.commit(end)
        assert store.committed == 0, "the sync has not begun"
        await until(lambda: store.synced == end)
        assert store.committed == 0
        store.commit(end)
        assert store.committed == end


async def test_a_batch_is_committed_as_a_whole(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        [first] = put(store, b"a")
        placed = store.put_batch(message(), Parts([0, 0], [b"b", b"c"], [b"", b""]))
        await until(lambda: store.synced == placed.end)
        store.commit(placed.log_offsets[1])
        assert (store.committed, await bodies(store)) == (first, [b"a"])
        store.commit(placed.end)
        assert await bodies(store) == [b"a", b"b", b"c"]


async def test_a_box_that_is_alone_again_commits_what_it_has(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        ends = put(store, b"a", b"b")
        await until(lambda: store.synced == ends[1])
        store.commit_alone()
        assert (store.committed, await bodies(store)) == (ends[1], [b"a", b"b"])
        await put_all(store, [message(b"c")])
        assert await bodies(store) == [b"a", b"b", b"c"]


async def test_a_cut_takes_back_what_was_not_committed_and_the_numbers_are_given_out_anew(tmp_path: Path) -> None:
    config = small(tmp_path)
    async with open_store(config, now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        waiter, ends = Waiter(store), put(store, b"kept", b"cut 1", b"cut 2")
        for end in ends:
            waiter.wait(end)
        await until(lambda: store.synced == ends[2])
        store.commit(ends[0])
        truncations = store.truncations
        done = await store.truncate(ends[0], "the other box differs")
        assert done is not None
        assert (done.log_offset, done.end) == (ends[0], ends[2])
        assert b"cut 2" in (config.root / "quarantine" / done.quarantined[0]).read_bytes()
        assert waiter.told == {ends[0]: None, ends[1]: "the other box differs", ends[2]: "the other box differs"}
        assert (store.end, store.synced, store.truncations) == (ends[0], ends[0], truncations + 1)
        again = store.put(message(b"new"))
        assert (again.queue_offset, again.log_offset) == (1, ends[0])
        await until(lambda: store.synced == again.end)
        store.commit(again.end)
        assert await bodies(store) == [b"kept", b"new"]
    async with open_store(config._replace(shared=False), now_ms=Clock()) as store:
        assert (store.verdict.verdict, await bodies(store)) == ("clean", [b"kept", b"new"])


async def test_a_cut_within_a_batch_takes_back_the_messages_above_it_alone(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        [first] = put(store, b"a")
        placed = store.put_batch(message(), Parts([0] * 4, [b"b", b"c", b"d", b"e"], [b""] * 4))
        await until(lambda: store.synced == placed.end)
        store.commit(first)
        await store.truncate(placed.log_offsets[2], "the other box has half of the batch")
        ends = put(store, b"f", b"g", b"h")
        await until(lambda: store.synced == ends[-1])
        store.commit(ends[-1])
        assert await bodies(store) == [b"a", b"b", b"c", b"f", b"g", b"h"], (
            "each number once, none where others lie now"
        )


async def test_a_cut_reaches_back_over_segments(tmp_path: Path) -> None:
    config = small(tmp_path)
    async with open_store(config, now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        ends = put(store, *(b"%03d" % number + b"x" * 20_000 for number in range(20)))
        await until(lambda: store.synced == ends[-1])
        assert len(store.segments()) > 3
        store.commit(ends[2])
        await store.truncate(ends[3], "why")
        assert (store.end, store.synced, store.committed) == (ends[3], ends[3], ends[2])
        assert len(store.segments()) == 1
        more = put(store, *(b"again" + b"y" * 20_000 for _ in range(8)))
        await until(lambda: store.synced == more[-1])
        store.commit(more[-1])
        assert len(await bodies(store)) == 12
    async with open_store(config, now_ms=Clock()) as store:
        assert store.verdict.verdict == "clean"
        assert len(await bodies(store)) == 12


async def test_a_cut_at_the_first_byte_of_a_segment_has_it_begun_anew(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        put(store, *(b"x" * 20_000 for _ in range(6)))
        [more] = put(store, b"y" * 20_000)
        await until(lambda: store.synced == more)
        at = store.segment_bytes
        store.commit(at)
        await store.truncate(at, "why")
        assert (store.end, len(store.segments())) == (at, 1)
        [again] = put(store, b"z" * 20_000)
        await until(lambda: store.synced == again)
        store.commit(again)
        assert [body[:1] for body in await bodies(store)] == [b"x"] * 6 + [b"z"]


async def test_appends_that_wait_while_the_log_is_cut_are_taken_back(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        [end] = put(store, b"a")
        await until(lambda: store.synced == end)
        waiter = Waiter(store)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.truncate, 0, "why")
            await trio.lowlevel.checkpoint()
            [late] = put(store, b"late")
            waiter.wait(late)
        assert (store.end, waiter.told) == (0, {late: "why"})


@pytest.mark.parametrize("at", ["below", "above"])
async def test_committed_bytes_are_never_cut(tmp_path: Path, at: str) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        await put_all(store, [message(b"a")])
        with pytest.raises(ValueError, match=r"committed is \d+, synced \d+"):
            await store.truncate(0 if at == "below" else store.end + 1, "why")
        assert await store.truncate(store.end, "nothing lies above") is None


async def test_a_log_that_is_sealed_is_not_cut_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        [end] = put(store, b"a")
        await until(lambda: store.synced == end)
        with trio.fail_after(5), pytest.RaisesGroup(LogFailed):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.truncate, 0, "why")
                put(store, b"b")
                store.seal("the sync before it failed")
        with trio.fail_after(5), pytest.raises(LogFailed, match="the sync before"):
            await store.truncate(0, "why")


async def test_a_disk_that_fails_during_a_cut_seals_the_log(tmp_path: Path) -> None:
    config = small(tmp_path)
    async with open_store(config, now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        [end] = put(store, b"a")
        await until(lambda: store.synced == end)
        (config.root / "quarantine").write_bytes(b"no folder")
        with pytest.raises(LogFailed, match="cut at 0"):
            await store.truncate(0, "why")
        with pytest.raises(LogFailed):
            store.put(message(b"b"))
    (config.root / "quarantine").unlink()
    async with open_store(config, now_ms=Clock()) as store:
        assert store.end == 0, "the next start finishes the cut"
        assert any("the log was cut at 0" in reason for reason in store.verdict.reasons)


async def test_a_restart_knows_what_was_committed_and_shows_nothing_above_it(tmp_path: Path) -> None:
    config = small(tmp_path, shared=True)
    async with open_store(config, now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        ends = put(store, b"a", b"b", b"c", b"d")
        await until(lambda: store.synced == ends[3])
        store.commit(ends[1])
        await store.prove()
    async with open_store(config, now_ms=Clock()) as store:
        assert (store.synced, store.end) == (ends[3], ends[3])
        assert (store.committed, await bodies(store)) == (ends[1], [b"a", b"b"])
        assert store.put(message(b"e")).queue_offset == 4, "numbers of what waits are not given out anew"
        store.commit(ends[2])
        assert await bodies(store) == [b"a", b"b", b"c"]
        await until(lambda: store.synced == store.end)
        await store.truncate(ends[2], "the other box never had it")
        assert store.put(message(b"new d")).queue_offset == 3
        store.commit_alone()
        await until(lambda: store.committed == store.end)
        assert await bodies(store) == [b"a", b"b", b"c", b"new d"]


async def test_a_shared_log_that_never_saved_a_mark_takes_all_of_it_for_committed(tmp_path: Path) -> None:
    config = small(tmp_path)
    async with open_store(config, now_ms=Clock()) as store:
        await put_all(store, [message(b"a")])
    async with open_store(config._replace(shared=True), now_ms=Clock()) as store:
        assert (store.committed == store.end, await bodies(store)) == (True, [b"a"])


async def test_a_restart_before_anything_was_saved_shows_nothing_that_was_not_committed(tmp_path: Path) -> None:
    config = small(tmp_path, shared=True)
    async with open_store(config, now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        [end] = put(store, b"a")
        await until(lambda: store.synced == end)
    async with open_store(config, now_ms=Clock()) as store:
        assert (store.committed, store.end, await bodies(store)) == (0, end, [])


async def test_others_get_a_batch_while_it_is_written_here_and_read_it_from_the_disk_later(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        sent = dict[int, bytes]()

        def writing(writes: Sequence[Write], end: int) -> None:
            sent.update({at: b"".join(pieces) for at, pieces in writes if pieces})
            assert store.synced < end == store.end

        store.share(lambda log_offset: None, writing)
        ends = put(store, *(b"x" * 20_000 for _ in range(12)))
        await until(lambda: store.synced == ends[-1])
        assert (store.committed, len(sent)) == (0, 2), "one for each segment"
        for at, data in sent.items():
            assert store.read_log(at, len(data), synced=True) == data
        assert sent[0][-4:] == MAGIC_BLANK.to_bytes(4, "big", signed=True)


async def test_a_disk_without_room_seals_a_log_whose_bytes_others_may_have() -> None:
    disk = MemoryDisk()
    async with open_store(small(Path("/store")), now_ms=Clock(), disk=disk) as store:
        store.share(lambda log_offset: None, lambda writes, end: None)
        [end] = put(store, b"a")
        await until(lambda: store.synced == end)
        disk.fail_at, disk.fail_with, disk.keep_failing = len(disk.steps), errno.ENOSPC, True
        put(store, b"b")
        await until(lambda: store.failure is not None)
        assert "other boxes may have it" in (store.failure or "")
        assert store.synced == end
        disk.fail_at, disk.keep_failing = None, False


async def test_a_log_takes_messages_of_its_own_only_while_it_is_no_copy(tmp_path: Path) -> None:
    async with open_store(small(tmp_path, copies_only="it follows"), now_ms=Clock()) as store:
        with pytest.raises(Full, match="it follows"):
            store.put(message(b"a"), own=True)
        store.only_copies(None)
        await put_all(store, [message(b"a")])
        store.full = "the disk is full"
        store.only_copies("it follows again")
        with pytest.raises(Full):
            store.put(message(b"b"), own=True)
        assert store.full == "the disk is full"
        store.full = None
        with pytest.raises(Full, match="it follows again"):
            store.put(message(b"b"), own=True)


@pytest.mark.parametrize("number", [-5, 0, 1, 1 << 20, 1 << 40, 1 << 60])
@pytest.mark.parametrize("which", [2, 3, 4])
async def test_a_damaged_number_above_what_is_committed_leaves_a_hole_once_it_is_committed(
    tmp_path: Path, which: int, number: int
) -> None:
    config = small(tmp_path)._replace(shared=True)
    async with open_store(config, now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        ends = put(store, b"a", b"b", b"c", b"d", b"e")
        await until(lambda: store.synced == ends[-1])
    with next((config.root / "commitlog").iterdir()).open("r+b") as file:
        file.seek(ends[which - 1] + 20)
        file.write(number.to_bytes(8, "big", signed=True))
    left = [name for at, name in enumerate((b"a", b"b", b"c", b"d", b"e")) if at != which]
    async with open_store(config, now_ms=Clock()) as store:
        assert [loss.damaged for loss in store.losses.found] == [True]
        store.share(lambda log_offset: None)
        store.commit(ends[-1])
        assert (store.committed, store.max_offset(QUEUE), await bodies(store)) == (ends[-1], 5, left)
        await store.prove()
    async with open_store(config, now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        [end] = put(store, b"f")
        await until(lambda: store.synced == end)
        store.commit(end)
        assert (store.max_offset(QUEUE), await bodies(store)) == (6, [*left, b"f"])


async def test_a_damaged_number_that_is_taken_back_is_given_out_again(tmp_path: Path) -> None:
    config = small(tmp_path)._replace(shared=True)
    async with open_store(config, now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        ends = put(store, b"a", b"b", b"c")
        await until(lambda: store.synced == ends[-1])
        last = store.read_log(ends[1], 4096, synced=True)
    with next((config.root / "commitlog").iterdir()).open("r+b") as file:
        file.seek(ends[1] + 20)
        file.write((1 << 60).to_bytes(8, "big"))
    async with open_store(config, now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        await store.truncate(ends[1], "a test")
        assert store.append_raw(ends[1], last) == ends[2]
        await until(lambda: store.synced == ends[2])
        store.commit(ends[2])
        assert await bodies(store) == [b"a", b"b", b"c"]


async def test_without_its_committed_mark_a_log_commits_nothing_that_no_position_has(
    tmp_path: Path,
) -> None:
    config = small(tmp_path)._replace(shared=True)
    async with open_store(config, now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        ends = put(store, b"a", b"b", b"c")
        await until(lambda: store.synced == ends[-1])
        store.commit(ends[0])
        await store.prove()
    (config.root / "rocketbox/committed").write_bytes(b"x" * 8192)
    async with open_store(config, now_ms=Clock()) as store:
        store.share(lambda log_offset: None)
        assert (store.committed, store.end, await bodies(store)) == (ends[0], ends[-1], [b"a"])
