"""For tests: a peer without a socket, a state file in memory, and a small real store."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from appliance.broker.rights import Signer
from appliance.broker.tables.arrivals import Arrivals, QueuePosition
from netstack.wire.command import RemotingCommand, decode_command
from netstack.wire.conversation import Answer, AsyncReply, DeferredReply, Reply
from netstack.wire.frame import FrameDecoder
from storage_driver.config import StoreConfig
from storage_driver.files.disk import Disk
from storage_driver.index.index_file import IndexSize
from storage_driver.log.clock import wall_ms as wall_ms
from storage_driver.log.marks import reached
from storage_driver.record import DELAY_LEVELS_MS, MessageQueue, StoredMessage, decode_record, encode_host
from storage_driver.retention.rules import RetentionRules
from storage_driver.store import Arrival, MessageStore, open_store

DAY_MS = 86_400_000
STORE_HOST = encode_host("127.0.0.1", 10911)


class FakePeer:
    """One connection as handlers see it: keeps what it was told, answers `ask` from `answers`."""

    def __init__(
        self,
        number: int = 1,
        remote: tuple[str, int] = ("127.0.0.1", 50_000),
        local: tuple[str, int] = ("127.0.0.1", 1),
    ) -> None:
        self.id, self.remote, self.local, self.tls = number, remote, local, False
        self.listens, self.hung_up = True, False
        self.signer: Signer | None = None
        self.born_host = bytes(map(int, remote[0].split("."))) + remote[1].to_bytes(4, "big")
        self.told: list[tuple[int, dict[str, str], bytes]] = []
        self.answers: dict[int, RemotingCommand | Exception] = {}
        self._callbacks: list[Callable[[], None]] = []
        self._heard = trio.Event()

    async def ask(self, code: int, ext: Mapping[str, str], body: bytes = b"", *, timeout_s: float) -> RemotingCommand:
        """Return the prepared answer to this code, or raise it."""
        self.tell(code, ext, body)
        answer = self.answers[code]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def tell(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> None:
        self.told.append((code, dict(ext), body))
        self._heard.set()

    async def wait_told(self, count: int = 1) -> list[tuple[int, dict[str, str], bytes]]:
        """Return what was told once it is `count` commands."""
        while len(self.told) < count:
            self._heard = trio.Event()
            await self._heard.wait()
        return self.told

    async def reserve(self, size: int, /) -> None:
        """There is always room."""

    def give_back(self, size: int, /) -> None:
        """There is always room."""

    def on_close(self, callback: Callable[[], None], /) -> None:
        self._callbacks.append(callback)

    def close(self, reason: str = "eof", /) -> None:
        """The connection ends."""
        for callback in self._callbacks:
            callback()


class MemoryStateFile:
    """A state file without a disk; `failure` makes the next writes fail."""

    def __init__(self, content: object | None = None) -> None:
        self.content = content
        self.writes = 0
        self.failure: OSError | None = None

    def load(self) -> object | None:
        return self.content

    async def write(self, table: object, /) -> None:
        if self.failure:
            raise self.failure
        self.content, self.writes = table, self.writes + 1

    async def write_bytes(self, raw: bytes, /) -> None:
        await self.write(json.loads(raw))


class MemoryRowFile(MemoryStateFile):
    """A state file that takes rows by themselves, as the log of a group does; `rows`: what each such write had."""

    def __init__(self, content: object | None = None) -> None:
        super().__init__(content)
        self.rows: list[dict[str, object]] = []
        self.wants_all = content is None

    async def write(self, table: object, /) -> None:
        await super().write(table)
        self.wants_all = False

    async def write_rows(self, section: str, rows: Mapping[str, object], /) -> bool:
        if self.failure:
            raise self.failure
        if self.wants_all or not isinstance(self.content, dict):
            return False
        self.rows.append(dict(rows))
        merged = {**self.content[section], **json.loads(json.dumps(rows))}
        self.content = {section: {name: row for name, row in merged.items() if row is not None}}
        return True


class NoStats:
    """Counts nothing."""

    def put(self, topic: str, queue_id: int, count: int, size: int) -> None:
        """Forget it."""


@dataclass(frozen=True, slots=True)
class SmallStore:
    """A real store with small files, and who waits for its messages."""

    store: MessageStore
    arrivals: Arrivals

    async def wait_for(self, topic: str, count: int, queue_id: int = 0) -> list[StoredMessage]:
        """Return the first `count` messages of a queue once they are there."""
        queue = MessageQueue(topic, queue_id)
        while self.store.max_offset(queue) < count:
            end = self.store.max_offset(queue)
            await self.arrivals.wait_match([QueuePosition(queue, end)], group="", timeout_s=30)
        return await self.all(topic, queue_id)

    async def all(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        """Return the messages of a queue."""
        queue, at, found = MessageQueue(topic, queue_id), 0, []
        while at < self.store.max_offset(queue):
            read = await self.store.read(queue, at, max_count=100, max_bytes=1 << 20)
            for chunk in read.chunks:
                start = 0
                while start < len(chunk):
                    found.append(decode_record(chunk, start))
                    start += found[-1].size
            at = read.next_offset
        return found


@asynccontextmanager
async def small_store(
    folder: Path,
    *,
    delays_ms: tuple[int, ...] = DELAY_LEVELS_MS,
    now_ms: Callable[[], int] = wall_ms,
    keep_ms: int = DAY_MS,
    disk: Disk | None = None,
) -> AsyncIterator[SmallStore]:
    """Open a real store in a folder."""
    arrivals: list[Arrivals] = []

    def arrived(arrival: Arrival) -> None:
        for each in arrivals:
            each.arrived(arrival)

    config = StoreConfig(
        folder / "store",
        STORE_HOST,
        segment_bytes=1 << 20,
        max_message_bytes=64 << 10,
        queue_file_entries=1000,
        index_size=IndexSize(500, 2000),
        flush_every_s=0.05,
        delays_ms=delays_ms,
        retention=RetentionRules(keep_ms),
    )
    async with open_store(config, now_ms=now_ms, arrived=arrived, disk=disk) as store:
        arrivals.append(Arrivals(1000, store.max_offset))
        yield SmallStore(store, arrivals[0])


async def answered(answer: Answer) -> RemotingCommand:
    """Wait for a handler's answer as a connection does."""
    match answer:
        case Reply(response=response):
            return response
        case AsyncReply(run=run):
            later = await run()
            assert isinstance(later, RemotingCommand), "a frame is not looked into here"
            return later
        case DeferredReply(when=when, mark=mark, response=response, failed=failed):
            reason = await reached(when, mark)
            if reason is not None:
                return failed(reason)
            return response if isinstance(response, RemotingCommand) else decoded(response)
    raise AssertionError("the request got no answer")


def decoded(frame: bytes) -> RemotingCommand:
    """Return what one whole frame says."""
    decoder = FrameDecoder()
    decoder.feed(frame)
    found = decoder.next_frame()
    assert found is not None
    return decode_command(found)
