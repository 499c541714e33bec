"""Unreadable sectors that a start meets: it starts, tells, and gives back every message outside of them."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from storage_driver.config import StoreConfig
from storage_driver.errors import StoreRefused
from storage_driver.files import unreadable
from storage_driver.files.disk import RealDisk
from storage_driver.files.unreadable import ZeroingDisk
from storage_driver.index.index_file import IndexSize
from storage_driver.record import Message, MessageQueue, decode_record, encode_host, encode_properties
from storage_driver.store import MessageStore, open_store
from tests.bad_disk import BLOCK, BadDisk

HOST = encode_host("127.0.0.1", 10911)
SEGMENT = 80 * 1024
QUEUES = [MessageQueue("T", 0), MessageQueue("T", 1), MessageQueue("U", 0)]
Sent = dict[tuple[MessageQueue, int], tuple[int, int, bytes]]  # queue and number -> log offset, size, body


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unreadable, "PAUSE_S", 0.0)


def config(root: Path, **changes: Any) -> StoreConfig:
    settings: dict[str, Any] = {
        "segment_bytes": SEGMENT,
        "max_message_bytes": 8 * 1024,
        "queue_file_entries": 500,
        "index_size": IndexSize(500, 4000),
    }
    return StoreConfig(root / "store", HOST, **settings | changes)


async def send(store: MessageStore, sent: Sent, count: int, size: int = 700) -> None:
    end = 0
    for number in range(count):
        queue, body = QUEUES[number % len(QUEUES)], b"%d " % len(sent) * 200
        properties = encode_properties({"UNIQ_KEY": f"k{len(sent)}"})
        placed = store.put(Message(*queue, body[:size], properties, 0, 0, 1, HOST))
        sent[queue, placed.queue_offset] = placed.log_offset, placed.size, body[:size]
        end = placed.end
        if number % 15 == 14:  # so few that a slow disk refuses none
            await store.wait_committed(end)
    await store.wait_committed(end)


async def made(root: Path, *, keep_position: bool = False) -> Sent:
    """A store that was killed: what a start reads is the log from the beginning, and every table."""
    sent: Sent = {}
    async with open_store(config(root), now_ms=lambda: 5) as store:
        await send(store, sent, 150)
        await store.state_file("topics").write({"dataVersion": 1, "pad": "x" * 5000})
        await store.prove()
        await send(store, sent, 60)
        await store.find_by_key("T", "k7", 1, 0, 1 << 60)
    if not keep_position:
        (root / "store/rocketbox/position").unlink()
    return sent


async def missing(
    store: MessageStore, sent: Sent, queues: Sequence[MessageQueue] = QUEUES
) -> list[tuple[MessageQueue, int]]:
    """Return which messages are not given back as they were sent; no number may have two of them."""
    found: dict[tuple[MessageQueue, int], bytes] = {}
    for queue in queues:
        at, high = store.min_offset(queue), store.max_offset(queue)
        while at < high:
            got = await store.read(queue, at, max_count=32, max_bytes=1 << 20)
            for chunk in got.chunks:
                begin = 0
                while begin < len(chunk):
                    stored = decode_record(memoryview(chunk)[begin:])
                    assert (queue, stored.queue_offset) not in found
                    found[queue, stored.queue_offset] = bytes(stored.body)
                    begin += stored.size
            assert got.next_offset > at
            at = got.next_offset
    assert {key: body for key, body in found.items() if key in sent} == {
        key: sent[key][2] for key in found if key in sent
    }
    assert found.keys() <= sent.keys()
    return sorted(key for key in sent.keys() - found.keys() if key[0] in queues)


def inside(sent: Sent, start: int, end: int) -> list[tuple[MessageQueue, int]]:
    """Return the messages that have a byte in a range of the log."""
    return sorted(key for key, (at, size, _) in sent.items() if at < end and start < at + size)


def log_blocks(sent: Sent) -> list[int]:
    end = max(at + size for at, size, _ in sent.values())
    return list(range(0, end, BLOCK))


async def start_twice(root: Path, disk: BadDisk, sent: Sent, lost: list[tuple[MessageQueue, int]]) -> None:
    """Start, look, send, start again: whatever was sent and is not lost is there each time."""
    sent = dict(sent)
    for start in range(2):
        async with open_store(config(root), now_ms=lambda: 6, disk=disk) as store:
            if not start:
                assert store.verdict.verdict != "clean"
                assert any("does not give back" in text for text in store.verdict.reasons), store.verdict.reasons
            assert await missing(store, sent) == lost
            await send(store, sent, 9)
            assert await missing(store, sent) == lost
            if lost:
                assert store.losses.unacknowledged()
            assert store._flusher.failure is None
            await store.prove()


async def walk_blocks(tmp_path: Path, wanted: Callable[[int, int], bool]) -> None:
    """Have each block of the log be unreadable, of which number and how many there are say so."""
    sent = await made(tmp_path / "first")
    blocks = log_blocks(sent)
    for at in [at for number, at in enumerate(blocks) if wanted(number, len(blocks))]:
        root = tmp_path / f"at{at}"
        shutil.copytree(tmp_path / "first", root)
        disk = BadDisk()
        disk.bad[f"commitlog/{at - at % SEGMENT:020d}"] = [(at % SEGMENT, at % SEGMENT + BLOCK)]
        await start_twice(root, disk, sent, inside(sent, at, at + BLOCK))
        assert not any(disk.bad.values()), "what was covered can be written, so the next start finds nothing"
        shutil.rmtree(root)


@pytest.mark.slow
async def test_a_start_gives_up_no_more_of_the_log_than_the_records_in_an_unreadable_block(tmp_path: Path) -> None:
    last_of_first = SEGMENT // BLOCK - 1
    await walk_blocks(tmp_path, lambda number, count: number in (0, 7, last_of_first, last_of_first + 1, count - 1))


@pytest.mark.soak
async def test_a_start_gives_up_no_more_of_the_log_wherever_the_unreadable_block_is(tmp_path: Path) -> None:
    await walk_blocks(tmp_path, lambda number, count: True)


def files_of(store: Path) -> Iterator[Path]:
    yield from sorted(path for path in store.rglob("*") if path.is_file() and path.stat().st_size)


@pytest.mark.slow
async def test_every_file_but_the_log_may_be_unreadable_at_a_start(tmp_path: Path) -> None:
    sent = await made(tmp_path / "first", keep_position=True)
    names = [path.relative_to(tmp_path / "first") for path in files_of(tmp_path / "first/store")]
    assert len(names) > 12
    for name in names:
        if name.parent.name in ("commitlog", "quarantine") or name.name in ("lock", "abort", "spare.tmp"):
            continue
        root = tmp_path / "next"
        shutil.copytree(tmp_path / "first", root)
        disk = BadDisk()
        disk.bad[f"{name.parent.name}/{name.name}"] = [(0, (root / name).stat().st_size)]
        sent_here = dict(sent)
        for _ in range(2):
            async with open_store(config(root), now_ms=lambda: 6, disk=disk) as store:
                await send(store, sent_here, 9)
                assert await missing(store, sent_here) == [], name
                await store.prove()
                assert store._flusher.failure is None, name
                found = await store.find_by_key("T", "k7", 1, 0, 1 << 60)
                assert [decode_record(each).queue_offset for each in found] == [2], name
        shutil.rmtree(root)


async def test_a_disk_that_gives_back_nothing_refuses_the_start_and_loses_nothing(tmp_path: Path) -> None:
    sent = await made(tmp_path)
    disk = BadDisk()
    disk.gone = True
    with pytest.raises(StoreRefused, match="the disk fails"):
        async with open_store(config(tmp_path), now_ms=lambda: 6, disk=disk):
            pass
    async with open_store(config(tmp_path), now_ms=lambda: 6) as store:
        assert await missing(store, sent) == []
        assert store.verdict.lost is None


async def test_a_read_that_fails_once_is_done_again(tmp_path: Path) -> None:
    sent = await made(tmp_path)

    class Hiccup(BadDisk):
        def is_bad(self, fd: int, count: int, at: int) -> bool:
            bad = super().is_bad(fd, count, at)
            if bad and count <= BLOCK:
                self.bad.clear()
            return bad

    disk = Hiccup()
    disk.bad[f"commitlog/{0:020d}"] = [(BLOCK, 3 * BLOCK)]
    async with open_store(config(tmp_path), now_ms=lambda: 6, disk=disk) as store:
        assert await missing(store, sent) == []
        assert store.verdict.lost is None


def test_a_file_that_was_read_keeps_no_space_once_it_is_deleted(tmp_path: Path) -> None:
    disk = ZeroingDisk(RealDisk(), tmp_path)
    path = tmp_path / "a"
    path.write_bytes(b"a")
    file = disk.open(path)
    assert file.read(1, 0) == b"a"
    before = len(list(Path("/proc/self/fd").iterdir()))
    del file
    assert len(list(Path("/proc/self/fd").iterdir())) == before - 1


async def test_a_disk_that_was_away_for_a_moment_loses_nothing(tmp_path: Path) -> None:
    """Its blocks fail until another one is asked for: by then it is back."""
    sent = await made(tmp_path)

    class Away(BadDisk):
        fails = 0

        def is_bad(self, fd: int, count: int, at: int) -> bool:
            bad = super().is_bad(fd, count, at)
            self.fails += bad and count <= BLOCK
            if not bad and count <= BLOCK and self.fails > 1:
                self.bad.clear()
            return bad

    disk = Away()
    disk.bad[f"commitlog/{0:020d}"] = [(BLOCK, 3 * BLOCK)]
    async with open_store(config(tmp_path), now_ms=lambda: 6, disk=disk) as store:
        assert await missing(store, sent) == []
        assert store.verdict.lost is None
        assert store.losses.found == []


def test_zeros_that_are_only_allocated_do_not_prove_that_the_disk_gives_back_anything(tmp_path: Path) -> None:
    path, below = tmp_path / "commitlog" / f"{0:020d}", BadDisk()
    path.parent.mkdir()
    file = below.open(path, create=True)
    file.allocate(1 << 20)
    file.write([b"x" * 2 * BLOCK], 0)
    file.sync()
    disk = ZeroingDisk(below, tmp_path)
    below.bad[f"commitlog/{path.name}"] = [(0, 2 * BLOCK)]
    assert not disk.is_unreadable(file, 0, BLOCK)
    below.bad[f"commitlog/{path.name}"] = [(0, BLOCK)]
    assert disk.is_unreadable(file, 0, BLOCK)
    assert not disk.is_unreadable(file, BLOCK, BLOCK)


@pytest.mark.parametrize("first", [100, 0])
def test_a_bad_block_among_many_is_read_as_seldom_as_can_be(tmp_path: Path, first: int) -> None:
    """Each read of it may take the disk half a minute."""
    path = tmp_path / "commitlog" / f"{0:020d}"
    path.parent.mkdir()
    path.write_bytes(b"x" * (1 << 20))

    class Slow(BadDisk):
        slow_reads = 0

        def is_bad(self, fd: int, count: int, at: int) -> bool:
            bad = super().is_bad(fd, count, at)
            self.slow_reads += bad
            return bad

    below = Slow()
    below.bad[f"commitlog/{path.name}"] = [(at * BLOCK, (at + 1) * BLOCK) for at in range(first, first + 100, 2)]
    counts = list[int]()
    data = ZeroingDisk(below, tmp_path, counted=counts.append).open(path).read(1 << 20, 0)
    assert data.count(bytes(BLOCK)) == 50
    assert below.slow_reads <= 2 * 50 + 4
    assert counts == list(range(1, 51)), "a start says how far it is"


async def test_a_rebuild_of_a_queue_tells_what_it_cannot_read_of_the_log(tmp_path: Path) -> None:
    sent = await made(tmp_path, keep_position=True)
    shutil.rmtree(tmp_path / "store/consumequeue/T/0")
    disk = BadDisk()
    disk.bad[f"commitlog/{0:020d}"] = [(8 * BLOCK, 9 * BLOCK)]  # below what the start scans
    async with open_store(config(tmp_path), now_ms=lambda: 6, disk=disk) as store:
        hurt = [key for key in inside(sent, 8 * BLOCK, 9 * BLOCK) if key[0] == QUEUES[0]]
        assert await missing(store, sent, QUEUES[:1]) == hurt
        assert len(hurt) > 0
        assert [loss.damaged for loss in store.losses.unacknowledged()] == [True]


@pytest.mark.parametrize("newer", [0, 4096])
async def test_a_queue_whose_end_cannot_be_read_ends_where_it_did(tmp_path: Path, newer: int) -> None:
    """Its last entries, and the newer one of the two positions, so that the table of queues says too much."""
    queue, sent = MessageQueue("Q", 0), list[int]()
    async with open_store(config(tmp_path, position_every_s=0.0), now_ms=lambda: 5) as store:
        for number in range(300):
            placed = store.put(Message(*queue, b"%d" % number, b"", 0, 0, 1, HOST))
            sent.append(placed.queue_offset)
            await store.wait_committed(placed.end)
        await store.prove()
        for _ in range(2):
            other = store.put(Message("U", 0, b"", b"", 0, 0, 1, HOST))
            await store.wait_committed(other.end)
            await store.prove()
            await store._flusher.save_ends(store._flusher.restart.values.queues_to)
    disk = BadDisk()
    disk.bad = {"rocketbox/position": [(newer, newer + 4096)], f"0/{0:020d}": [(4096, 8192)]}
    async with open_store(config(tmp_path), now_ms=lambda: 6, disk=disk) as store:
        assert store.max_offset(queue) == 300
        found = await store.read(queue, 250, max_count=100, max_bytes=1 << 20)
        assert (found.records, found.next_offset) == (50, 300)
