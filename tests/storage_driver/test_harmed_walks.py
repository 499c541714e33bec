"""Lives of a store on a disk that gets bad sectors: whatever was acknowledged is given back, or told as lost.

Each walk is one seed: sends, deletions of segments, kills and stops; before each start blocks of any of
its files can no longer be read, and now and then the disk gives back nothing for some reads. A start is refused then
alone, no number is given out twice, no consumer stands still.
"""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import trio

from storage_driver import bad_sectors
from storage_driver.config import StoreConfig
from storage_driver.errors import Busy, StoreRefused
from storage_driver.files import unreadable
from storage_driver.index.index_file import IndexSize
from storage_driver.record import Message, MessageQueue, decode_record, encode_host, encode_properties
from storage_driver.store import AppendResult, MessageStore, open_store
from tests.bad_disk import BLOCK, BadDisk

HOST = encode_host("127.0.0.1", 10911)
QUEUES = [MessageQueue("T", 0), MessageQueue("T", 1), MessageQueue("U", 0)]
LIVES = 5
MOST_TRIES = 40  # of a read that fails: each gives up one record, or a block of entries
Place = tuple[int, int]  # of a message in the log: where it begins and ends


def config(root: Path, **changes: Any) -> StoreConfig:
    settings: dict[str, Any] = {
        "segment_bytes": 80 * 1024,
        "max_message_bytes": 8 * 1024,
        "queue_file_entries": 300,
        "index_size": IndexSize(500, 4000),
        "position_every_s": 0.05,
        "flush_every_s": 0.02,
    }
    return StoreConfig(root / "store", HOST, **settings | changes)


async def put(store: MessageStore, message: Message) -> AppendResult:
    """Append a message, once a slow machine takes it."""
    while True:
        try:
            return store.put(message)
        except Busy:
            await trio.sleep(0.1)


class WalkDisk(BadDisk):
    """Away, and gives back nothing, from a read to another."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.away = range(0)

    def is_bad(self, fd: int, count: int, at: int) -> bool:
        self.reads += 1
        return self.reads in self.away or super().is_bad(fd, count, at)


class Walk:
    """One store over its lives, and what it promised."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.pick, self.folder, self.disk = random.Random(seed), folder, WalkDisk()
        self.root = folder / "0"
        self.sent: dict[MessageQueue, dict[int, tuple[Place, bytes]]] = {queue: {} for queue in QUEUES}
        self.told: list[Place] = []  # ranges that any life listed as lost

    async def run(self) -> None:
        """Live and die."""
        for life in range(LIVES):
            if life:
                self._harm()
            assert await self._starts(), "a disk that gives back what it has refuses no start"
            async with open_store(config(self.root), now_ms=lambda: 5, disk=self.disk) as store:
                await self._check(store)
                await self._live(store)
                await self._check(store)
                if self.pick.random() < 0.5:
                    self._kill(life)

    async def _starts(self) -> bool:
        """Start and stop, on a disk that may be away; a start that is refused for that has changed nothing."""
        disk, pick = self.disk, self.pick
        if pick.random() < 0.7:
            return True
        begin = disk.reads + pick.choice((1, 5, 20, 100))
        disk.away = range(begin, begin + pick.choice((1, 2, 3, 4, 5, 20, 60)))
        try:
            async with open_store(config(self.root), now_ms=lambda: 5, disk=disk) as store:
                self.told += [span for loss in store.losses.found for span in loss.ranges]
        except StoreRefused:
            return disk.reads >= begin
        finally:
            disk.away = range(0)
        return True

    def _kill(self, life: int) -> None:
        """Have the next life begin with what the disk has now: what is written at the end is of another store."""
        target = self.folder / f"{life + 1}"
        shutil.copytree(self.root, target)
        self.root = target

    def _harm(self) -> None:
        pick = self.pick
        files = [path for path in sorted((self.root / "store").rglob("*")) if path.is_file() and path.stat().st_size]
        files = [path for path in files if path.name not in ("lock", "abort") and path.parent.name != "quarantine"]
        for _ in range(pick.choice((0, 1, 1, 2, 3))):
            path = pick.choice([file for file in files if pick.random() < 0.3] or files)
            at = pick.randrange(0, path.stat().st_size, BLOCK)
            self.disk.bad.setdefault(f"{path.parent.name}/{path.name}", []).append(
                (at, at + pick.choice((1, 2)) * BLOCK)
            )
        if pick.random() < 0.1:
            (self.root / "store/rocketbox/position").unlink(missing_ok=True)

    async def _live(self, store: MessageStore) -> None:
        pick = self.pick
        for _ in range(pick.randrange(1, 12)):
            await self._send(store)
            if pick.random() < 0.1 and len(store.segments()) > 2:
                await store.drop_first()
            if pick.random() < 0.3:
                await store.prove()
        assert store._flusher.failure is None

    async def _send(self, store: MessageStore) -> None:
        end = 0
        for _ in range(self.pick.randrange(1, 15)):
            queue, body = self.pick.choice(QUEUES), self.pick.randbytes(self.pick.choice((10, 300, 1500)))
            properties = encode_properties({"UNIQ_KEY": f"{store.end}"})
            placed = await put(store, Message(*queue, body, properties, 0, 0, 1, HOST))
            assert placed.queue_offset not in self.sent[queue], "a number was given out twice"
            self.sent[queue][placed.queue_offset] = (placed.log_offset, placed.log_offset + placed.size), body
            end = placed.end
        await store.wait_committed(end)

    async def _check(self, store: MessageStore) -> None:
        found = {queue: await self._read(store, queue) for queue in QUEUES}
        for queue, sent in self.sent.items():
            for number, (place, body) in sent.items():
                if number in found[queue]:
                    assert found[queue][number] == body, (queue, number)
                elif place[0] >= store.first:
                    with trio.move_on_after(20):  # the scrub may have met it at this moment
                        while not self._is_told(store, place):  # noqa: ASYNC110 - nobody tells
                            await trio.sleep(0.01)
                    assert self._is_told(store, place), (queue, number, place)
        self.told += [span for loss in store.losses.found for span in loss.ranges]

    def _is_told(self, store: MessageStore, place: Place) -> bool:
        told = [*self.told, *(span for loss in store.losses.found for span in loss.ranges)]
        return any(place[0] < high and low < place[1] for low, high in told)

    async def _read(self, store: MessageStore, queue: MessageQueue) -> dict[int, bytes]:
        found, at = dict[int, bytes](), store.min_offset(queue) if store.has_queue(queue) else 0
        while at < store.max_offset(queue):
            got = await self._read_some(store, queue, at)
            for chunk in got.chunks:
                begin = 0
                while begin < len(chunk):
                    stored = decode_record(memoryview(chunk)[begin:])
                    assert (stored.topic, stored.queue_id) == queue
                    assert stored.queue_offset not in found
                    found[stored.queue_offset] = bytes(stored.body)
                    begin += stored.size
            assert got.next_offset > at
            at = got.next_offset
        return found

    async def _read_some(self, store: MessageStore, queue: MessageQueue, at: int) -> Any:
        for _ in range(MOST_TRIES):
            try:
                return await store.read(queue, at, max_count=32, max_bytes=1 << 20)
            except OSError:
                await store.prove()
        raise AssertionError(f"the consumer of {queue} stands still at {at}")


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unreadable, "PAUSE_S", 0.0)
    monkeypatch.setattr(bad_sectors, "PATIENCE_S", 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
async def test_whatever_was_acknowledged_is_given_back_or_told_as_lost(tmp_path: Path, seed: int) -> None:
    await Walk(tmp_path, seed).run()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1300))
async def test_whatever_was_acknowledged_is_given_back_or_told_as_lost_in_many_walks(tmp_path: Path, seed: int) -> None:
    await Walk(tmp_path, seed).run()
