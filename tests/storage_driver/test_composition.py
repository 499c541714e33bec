"""The parts of a store work together without one, and ask and tell what is outside of them through their hooks."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from storage_driver.composition import Hooks, StoreParts, compose, make_maintenance
from storage_driver.config import StoreConfig
from storage_driver.files.disk import RealDisk
from storage_driver.files.state_file import StateFile
from storage_driver.index.index_file import IndexSize
from storage_driver.maintenance import Maintenance
from storage_driver.queues.dispatch import Arrival
from storage_driver.reading import ReadRequest
from storage_driver.record import Message, MessageQueue, decode_record, encode_host, encode_properties
from storage_driver.recovery.opening import open_folder
from storage_driver.retention.rules import RetentionRules

HOST, NOW, HOUR_MS = encode_host("127.0.0.1", 10911), 1_700_000_000_000, 3_600_000


class Outside:
    """What the hooks reach: a clock, who is told of arrivals, who says what may go."""

    def __init__(self, root: Path) -> None:
        self.config = StoreConfig(
            root,
            HOST,
            segment_bytes=128 << 10,
            max_message_bytes=16 << 10,
            queue_file_entries=100,
            index_size=IndexSize(50, 600),
            retention=RetentionRules(keep_ms=HOUR_MS),
        )
        self.now_ms, self.trusted = NOW, True
        self.watched: set[MessageQueue] | None = None
        self.arrivals: list[Arrival] = []
        self.asked: list[tuple[int, int]] = []
        self.may_go = False
        self.troubles: list[str] = []
        self.parts: StoreParts
        self.maintenance: Maintenance

    def hooks(self, disk: RealDisk) -> Hooks:
        def may_go(base: int, end: int) -> bool:
            self.asked.append((base, end))
            return self.may_go

        return Hooks(
            now_ms=lambda: self.now_ms,
            arrived=self.arrivals.append,
            watched=self.watched,
            clock_trusted=lambda: self.trusted,
            may_go=may_go,
            note_trouble=self.troubles.append,
            state_file=lambda name: StateFile(disk, self.config.root / "rocketbox" / f"{name}.json"),
        )

    async def put(self, count: int, topic: str = "T", body: bytes = b"hello") -> int:
        """Append messages; return the log's end once all of it is durable."""
        end = 0
        for number in range(count):
            properties = encode_properties({"KEYS": f"key{number}"})
            end = self.parts.appender.put(Message(topic, 0, body, properties, 0, 0, NOW, HOST)).end
        await self.parts.log.wait_committed(end)
        return end


@asynccontextmanager
async def composed(folder: Path, watched: set[MessageQueue] | None = None) -> AsyncGenerator[Outside]:
    """Yield the parts of a folder with their log running; nobody holds a store."""
    outside, disk = Outside(folder / "store"), RealDisk()
    outside.watched = watched
    opened = open_folder(
        outside.config, disk, now_ms=lambda: outside.now_ms, new_id=lambda: 7, progress=lambda done, total: None
    )
    try:
        hooks = outside.hooks(disk)
        outside.parts = compose(outside.config, disk, opened, hooks)
        outside.maintenance = make_maintenance(outside.config, disk, outside.parts, hooks)
        recovered = opened.recovered
        outside.parts.flusher.begin(
            recovered.position, outside.parts.log.committed, opened.boot, recovered.last_stored_ms
        )
        outside.maintenance.begin()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outside.parts.log.run)
            yield outside
            nursery.cancel_scope.cancel()
    finally:
        opened.lock.release()


async def read(parts: StoreParts, queue: MessageQueue) -> list[bytes]:
    found = await parts.lookup.read(ReadRequest(queue, 0, 100, 1 << 20))
    bodies = list[bytes]()
    for chunk in found.chunks:
        at = 0
        while at < len(chunk):
            record = decode_record(chunk, at)
            bodies.append(bytes(record.body))
            at += record.size
    return bodies


QUEUE = MessageQueue("T", 0)


async def test_what_the_appender_takes_the_lookup_finds_and_those_who_wait_are_told(tmp_path: Path) -> None:
    async with composed(tmp_path) as outside:
        await outside.put(3)
        assert await read(outside.parts, QUEUE) == [b"hello"] * 3
        assert [(one.queue, one.queue_offset) for one in outside.arrivals] == [(QUEUE, at) for at in range(3)]
        assert outside.parts.queues[QUEUE].visible == 3
        await outside.parts.flusher.round(index=True)
        assert len(await outside.parts.lookup.find_by_key("T#key1", 10, 0, 2 * NOW)) == 1


async def test_only_arrivals_in_watched_queues_are_told(tmp_path: Path) -> None:
    async with composed(tmp_path, {QUEUE}) as outside:
        await outside.put(2, topic="Other")
        await outside.put(1)
        assert [one.queue for one in outside.arrivals] == [QUEUE]


async def test_a_clock_that_is_set_back_begins_an_epoch_where_the_next_record_lies(tmp_path: Path) -> None:
    async with composed(tmp_path) as outside:
        end = await outside.put(1)
        outside.now_ms -= HOUR_MS
        await outside.put(1)
        assert outside.parts.clock.boundaries() == [0, end]
        assert [epoch.trusted for epoch in outside.parts.clock.epochs] == [True, False]


async def test_an_old_segment_goes_when_those_outside_allow_it_and_takes_its_queue_entries_along(
    tmp_path: Path,
) -> None:
    async with composed(tmp_path) as outside:
        await outside.put(30, body=bytes(10_000))
        log = outside.parts.log
        before = len(log.segments)
        await outside.maintenance.round()
        outside.now_ms += 2 * HOUR_MS
        with_age = outside.parts.clock.epochs[-1]
        outside.parts.clock.epochs[-1] = with_age._replace(end_ms=outside.now_ms)  # the box ran for these hours
        await outside.maintenance.round()
        assert outside.asked
        assert len(log.segments) == before
        outside.may_go = True
        await outside.maintenance.round()
        assert len(log.segments) < before
        assert outside.parts.lookup.low(outside.parts.queues[QUEUE]) > 0
        assert outside.troubles == []


async def test_what_maintenance_cannot_do_is_told_outside(tmp_path: Path) -> None:
    async with composed(tmp_path) as outside:
        await outside.put(1)
        clock = outside.config.root / "rocketbox" / "clock.json"
        clock.unlink(missing_ok=True)
        clock.mkdir()  # nothing can be saved there
        outside.trusted = False
        await outside.maintenance.round()
        assert [trouble.partition(":")[0] for trouble in outside.troubles] == ["clock"]


async def test_what_was_durable_is_there_when_the_parts_are_made_again(tmp_path: Path) -> None:
    async with composed(tmp_path) as outside:
        end = await outside.put(3)
    async with composed(tmp_path) as outside:
        assert outside.parts.log.committed == end
        assert await read(outside.parts, QUEUE) == [b"hello"] * 3
        assert await outside.put(1) > end, "no log offset is given twice"
