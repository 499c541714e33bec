"""A store follows a log over real sockets: the same bytes, whatever breaks in between, and never another log's."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from appliance.replication import following
from appliance.replication.following import Follower, FollowRules, MasterEdges
from netstack.serving.server import open_listeners
from netstack.wire.replication import REPORT, SLICE_HEAD, Pace
from storage_driver.store import MessageStore, open_store
from tests.appliance.replication.test_slaves import fill, serving
from tests.storage_driver.test_store import Clock, bodies, message, put_all, small
from tests.waiting import until

pytestmark = pytest.mark.slow
QUICK = Pace(heartbeat_s=0.05, silence_s=5)


class Questions:
    """What a slave asks beside the HA port, answered from the master's store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    async def edges(self) -> MasterEdges:
        return MasterEdges(self._store.first, self._store.committed, self._store.segment_bytes)

    async def record_at(self, log_offset: int) -> bytes:
        return await self._store.record_at(log_offset) or b""


class ApacheMaster:
    """Sends a log as Apache's master does: cut every few KiB wherever that is, its last file alone to who has none."""

    def __init__(self, store: MessageStore, cut: int = 5000) -> None:
        self.store, self.cut, self.reports = store, cut, list[int]()
        self.listeners: list[trio.SocketListener] = []

    async def serve(self, stream: trio.SocketStream) -> None:
        received = b""
        while len(received) < REPORT.size:
            received += await stream.receive_some(REPORT.size)
        (start,) = REPORT.unpack(received)
        self.reports.append(start)
        end = self.store.committed
        at = start or end - end % self.store.segment_bytes
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read, stream)
            try:
                while True:
                    data = self.store.read_log(at, self.cut)
                    await stream.send_all(SLICE_HEAD.pack(at, len(data)) + data)
                    at += len(data)
                    if not data:
                        await trio.sleep(0.02)
            except trio.BrokenResourceError:
                nursery.cancel_scope.cancel()

    async def _read(self, stream: trio.SocketStream) -> None:
        try:
            while data := await stream.receive_some(4096):
                self.reports += [offset for (offset,) in REPORT.iter_unpack(data[: len(data) - len(data) % 8])]
        except trio.BrokenResourceError:
            pass


@asynccontextmanager
async def apache_master(folder: Path, **changes: object) -> AsyncIterator[tuple[ApacheMaster, int]]:
    async with open_store(small(folder, **changes), now_ms=Clock()) as store, trio.open_nursery() as nursery:
        master, listeners = ApacheMaster(store), await open_listeners("127.0.0.1", 0)
        nursery.start_soon(trio.serve_listeners, master.serve, listeners)
        yield master, listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def slave(
    folder: Path, source: MessageStore, port: int, **changes: object
) -> AsyncIterator[tuple[MessageStore, Follower]]:
    config = small(folder, copies_only="a slave", **changes)
    async with open_store(config, now_ms=Clock()) as store, trio.open_nursery() as nursery:
        follower = Follower(FollowRules("127.0.0.1", port, 1 << 20), store, Questions(source), pace=QUICK)
        nursery.start_soon(follower.run)
        yield store, follower
        nursery.cancel_scope.cancel()


def same(one: MessageStore, other: MessageStore) -> bool:
    if one.committed != other.committed or one.first != other.first:
        return False
    pairs = zip(one.segments(), other.segments(), strict=True)
    return all(a.path.read_bytes() == b.path.read_bytes() for a, b in pairs)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "RETRY_S", 0.05)
    monkeypatch.setattr(following, "DIFFERS_S", 0.05)


async def test_the_copy_is_byte_for_byte_the_log_with_its_queues(tmp_path: Path) -> None:
    async with apache_master(tmp_path / "a") as (master, port), slave(tmp_path / "b", master.store, port) as (copy, _):
        await fill(master.store, 500)
        await until(lambda: same(master.store, copy))
        assert len(copy.segments()) > 3
        assert await bodies(copy) == await bodies(master.store)
        await fill(master.store, 20, 20_000)
        await until(lambda: same(master.store, copy))


async def test_an_empty_slave_gets_the_first_file_too_where_apache_sends_its_last(tmp_path: Path) -> None:
    async with apache_master(tmp_path / "a") as (master, port):
        await fill(master.store, 500)
        async with slave(tmp_path / "b", master.store, port) as (copy, _):
            await until(lambda: same(master.store, copy))
            assert master.reports[0] == master.store.segments()[0].base + len(await master.store.record_at(0) or b"")


async def test_a_master_that_has_deleted_files_is_copied_from_where_it_begins(tmp_path: Path) -> None:
    async with apache_master(tmp_path / "a") as (master, port):
        await fill(master.store, 500)
        await master.store.drop_first()
        async with slave(tmp_path / "b", master.store, port) as (copy, _):
            await until(lambda: same(master.store, copy))
            assert copy.first > 0
        await fill(master.store, 100)
        async with slave(tmp_path / "b", master.store, port) as (copy, _):
            assert (copy.verdict.verdict, copy.losses.messages()) == ("clean", 0)
            await until(lambda: same(master.store, copy))


async def test_a_copy_without_a_record_follows_where_the_master_begins_meanwhile(tmp_path: Path) -> None:
    async with apache_master(tmp_path / "a") as (master, port):
        await fill(master.store, 500)
        await master.store.drop_first()
        async with open_store(small(tmp_path / "b", copies_only="this is a copy"), now_ms=Clock()) as copy:
            await copy.begin_at(master.store.first)
        await master.store.drop_first()
        async with slave(tmp_path / "b", master.store, port) as (copy, _):
            await until(lambda: same(master.store, copy))
            assert copy.losses.messages() == 0


async def test_only_what_is_on_the_disk_is_reported(tmp_path: Path) -> None:
    async with apache_master(tmp_path / "a") as (master, port), slave(tmp_path / "b", master.store, port) as (copy, _):
        synced_at_report = dict[int, int]()
        for count in range(1, 60):
            await fill(master.store, 1, count * 100)
            for report in master.reports:
                synced_at_report.setdefault(report, copy.synced)
        await until(lambda: same(master.store, copy))
        await until(lambda: master.reports[-1] == master.store.committed)
        assert all(report <= synced for report, synced in synced_at_report.items())
        assert master.reports == sorted(master.reports)


async def test_following_goes_on_after_each_break_also_within_a_record(tmp_path: Path) -> None:
    async with apache_master(tmp_path / "a") as (master, port), slave(tmp_path / "b", master.store, port) as (copy, _):
        master.cut = 700
        broken = 0
        plain = master.serve

        async def breaking(stream: trio.SocketStream) -> None:
            nonlocal broken
            broken += 1
            with trio.move_on_after(0.02 if broken < 20 else 60):
                await plain(stream)
            await trio.aclose_forcefully(stream)

        async with trio.open_nursery() as nursery:
            listeners = await open_listeners("127.0.0.1", 0)
            nursery.start_soon(trio.serve_listeners, breaking, listeners)
            other = listeners[0].socket.getsockname()[1]
            async with slave(tmp_path / "c", master.store, other) as (second, _):
                for _ in range(5):
                    await fill(master.store, 60, 1500)
                await until(lambda: same(master.store, second))
            nursery.cancel_scope.cancel()
        assert broken > 2
        await until(lambda: same(master.store, copy))


async def test_a_box_follows_a_box(tmp_path: Path) -> None:
    async with serving(tmp_path / "a") as box:
        await fill(box.store, 300)
        async with slave(tmp_path / "b", box.store, box.port) as (copy, follower):
            await until(lambda: same(box.store, copy))
            await fill(box.store, 30, 20_000)
            await until(lambda: same(box.store, copy))
            assert follower.statistics().differs == ""
        async with slave(tmp_path / "b", box.store, box.port) as (copy, _):
            await fill(box.store, 30)
            await until(lambda: same(box.store, copy))
        assert box.refused() == {}


async def test_a_topic_that_was_made_anew_is_made_anew(tmp_path: Path) -> None:
    async with apache_master(tmp_path / "a") as (master, port), slave(tmp_path / "b", master.store, port) as (copy, _):
        await fill(master.store, 5)
        await until(lambda: same(master.store, copy))
        await master.store.delete_topic("T")
        await put_all(master.store, [message(b"new"), message(b"kept", "U"), message(b"newer")])
        await until(lambda: same(master.store, copy))
        assert (await bodies(copy), await bodies(copy, "U")) == ([b"new", b"newer"], [b"kept"])


async def test_a_topic_that_was_made_anew_while_the_slave_was_away_is_made_anew(tmp_path: Path) -> None:
    async with apache_master(tmp_path / "a") as (master, port):
        await put_all(master.store, [message(b"old")])
        await master.store.delete_topic("T")
        await put_all(master.store, [message(b"first", queue_id=1), message(b"second"), message(b"third")])
        async with slave(tmp_path / "b", master.store, port) as (copy, _):
            await until(lambda: same(master.store, copy))
            assert await bodies(copy) == [b"second", b"third"]
            assert await bodies(copy, queue_id=1) == [b"first"]


def _longer(copy: MessageStore) -> str:
    return f"this copy ends at {copy.end}, the master's log at"


@pytest.mark.parametrize(
    ("ours", "theirs", "says"),
    [
        (50, 20, "it was cut, or is another one"),
        (20, 50, "does not continue this log"),
        (20, 2000, "does not continue this log"),
    ],
)
async def test_another_log_is_never_appended_and_nothing_is_deleted(
    tmp_path: Path, ours: int, theirs: int, says: str
) -> None:
    async with open_store(small(tmp_path / "b"), now_ms=Clock()) as store:
        await fill(store, ours, 333)
        before = store.end
    async with apache_master(tmp_path / "a") as (master, port):
        await fill(master.store, theirs, 1000)
        async with slave(tmp_path / "b", master.store, port) as (copy, follower):
            await until(lambda: follower.statistics().differs)
            seen = follower.statistics()
            assert (copy.end, copy.committed, seen.connected) == (before, before, False)
            assert says in seen.differs or "no record of the master's begins at" in seen.differs


async def test_a_master_that_deleted_what_is_missing_here_is_told(tmp_path: Path) -> None:
    async with open_store(small(tmp_path / "b"), now_ms=Clock()) as store:
        await fill(store, 3)
    async with apache_master(tmp_path / "a") as (master, port):
        await fill(master.store, 300)
        await master.store.drop_first()
        async with slave(tmp_path / "b", master.store, port) as (_, follower):
            await until(lambda: "empty the store" in follower.statistics().differs)


async def test_a_master_with_files_of_another_size_is_told_before_anything_is_copied(tmp_path: Path) -> None:
    async with apache_master(tmp_path / "a", segment_bytes=256 * 1024) as (master, port):
        await fill(master.store, 3)
        async with slave(tmp_path / "b", master.store, port) as (copy, follower):
            await until(lambda: "those of this box 131072: empty the store" in follower.statistics().differs)
            assert copy.end == 0


async def test_a_master_that_says_nothing_or_is_not_one_is_left(tmp_path: Path) -> None:
    answers: list[Callable[[trio.SocketStream], object]] = []

    async def silent(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async def garbage(stream: trio.SocketStream) -> None:
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await trio.sleep_forever()

    async def serve(stream: trio.SocketStream) -> None:
        await answers[0](stream)  # type: ignore[misc]

    async with open_store(small(tmp_path / "a"), now_ms=Clock()) as source, trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1", 0)
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        port = listeners[0].socket.getsockname()[1]
        config = small(tmp_path / "b", copies_only="a slave")
        async with open_store(config, now_ms=Clock()) as store:
            pace = Pace(0.05, 0.1)
            follower = Follower(FollowRules("127.0.0.1", port), store, Questions(source), pace=pace)
            answers.append(silent)
            nursery.start_soon(follower.run)
            await until(lambda: "said nothing for 0.1 s" in follower.statistics().lost)
            answers[0] = garbage
            await until(lambda: "this is not a master" in follower.statistics().lost)
            nursery.cancel_scope.cancel()


async def test_a_full_disk_pauses_following(tmp_path: Path) -> None:
    async with (
        apache_master(tmp_path / "a") as (master, port),
        slave(tmp_path / "b", master.store, port) as (copy, own),
    ):
        await fill(master.store, 5)
        await until(lambda: same(master.store, copy))
        copy.full, before = "91 % in use", copy.end
        await fill(master.store, 5)
        await until(lambda: "this disk is full: 91 % in use" in own.statistics().lost)
        assert copy.end == before
        copy.full = None
        await until(lambda: same(master.store, copy))
