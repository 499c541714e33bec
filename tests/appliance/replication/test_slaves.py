"""Slaves over real sockets, from a real store: they get what is committed, and can do no harm."""

import errno
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from appliance.replication.slaves import Slaves
from netstack.serving.server import open_listeners
from netstack.wire.replication import REPORT, Pace, SliceDecoder
from storage_driver.store import MessageStore, open_store
from tests.storage_driver.test_store import Clock, message, put_all, small
from tests.waiting import until

QUICK = Pace(heartbeat_s=0.05, silence_s=30)


class RawSlave:
    """A slave by hand: it keeps what it gets, and reports when it is told to."""

    def __init__(self, stream: trio.SocketStream, log: bytes = b"", first: int = 0) -> None:
        self.stream, self.log, self.first = stream, bytearray(log), first
        self.heartbeats = 0
        self._slices = SliceDecoder()

    @property
    def end(self) -> int:
        return self.first + len(self.log)

    async def report(self, log_offset: int | None = None) -> None:
        await self.stream.send_all(REPORT.pack(self.end if log_offset is None else log_offset))

    async def take(self) -> None:
        """Take what comes next. Raises trio.BrokenResourceError, EOFError."""
        data = await self.stream.receive_some(1 << 20)
        if not data:
            raise EOFError
        for found in self._slices.feed(data):
            if not self.log and found.data:
                self.first = found.log_offset
            assert found.log_offset == self.end or not self.log, "a stock slave closes here"
            self.log += found.data
            self.heartbeats += not found.data

    async def take_to(self, log_offset: int) -> None:
        with trio.fail_after(30):
            while self.end < log_offset:
                await self.take()

    async def wait_closed(self) -> None:
        with trio.fail_after(30):
            try:
                while True:
                    await self.take()
            except (EOFError, trio.BrokenResourceError):
                pass


class Served:
    """A store whose log is served at a port."""

    def __init__(self, store: MessageStore, slaves: Slaves, port: int) -> None:
        self.store, self.slaves, self.port = store, slaves, port

    @asynccontextmanager
    async def slave(self, log: bytes = b"", first: int = 0, *, host: str = "127.0.0.1") -> AsyncIterator[RawSlave]:
        async with await trio.open_tcp_stream("127.0.0.1", self.port, local_address=host) as stream:
            yield RawSlave(stream, log, first)

    def log(self) -> bytes:
        """Return the files of the log as far as they are committed."""
        found = b"".join(each.path.read_bytes() for each in self.store.segments())
        return found[: self.store.committed - self.store.first]

    def refused(self) -> dict[str, int]:
        return {reason: count for reason, count in self.slaves.statistics().refused.items() if count}


@asynccontextmanager
async def serving(
    folder: Path, *, most: int = 4, pace: Pace = QUICK, admits: Callable[[str], bool] = lambda address: True
) -> AsyncIterator[Served]:
    async with open_store(small(folder), now_ms=Clock()) as store, trio.open_nursery() as nursery:
        slaves = Slaves(store, admits=admits, most=most, pace=pace)
        listeners = await open_listeners("127.0.0.1", 0)
        nursery.start_soon(slaves.serve, listeners)
        yield Served(store, slaves, listeners[0].socket.getsockname()[1])
        nursery.cancel_scope.cancel()


async def fill(store: MessageStore, count: int, size: int = 900) -> None:
    await put_all(store, [message(b"%d" % number + b"x" * size) for number in range(count)])


async def test_an_empty_slave_gets_every_segment_byte_for_byte_and_then_what_comes(tmp_path: Path) -> None:
    async with serving(tmp_path) as box, box.slave() as slave:
        await fill(box.store, 500)
        assert len(box.store.segments()) > 3
        await slave.report()
        await slave.take_to(box.store.committed)
        assert bytes(slave.log) == box.log()
        await fill(box.store, 40, 20_000)
        await slave.take_to(box.store.committed)
        assert bytes(slave.log) == box.log()


@pytest.mark.slow
async def test_nothing_is_sent_before_the_first_report_and_heartbeats_after_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as box, box.slave() as slave:
        await fill(box.store, 3)
        with trio.move_on_after(0.3):
            await slave.take()
            raise AssertionError("it has not said where it is")
        await slave.report()
        await slave.take_to(box.store.committed)
        while slave.heartbeats < 3:
            await slave.take()
        (seen,) = box.slaves.statistics().slaves
        assert (seen.reported, seen.position) == (0, box.store.committed)


async def test_what_is_not_committed_stays_here(tmp_path: Path) -> None:
    async with serving(tmp_path) as box, box.slave() as slave:
        await fill(box.store, 2)
        committed = box.store.committed
        box.store.share(lambda log_offset: None)
        placed = box.store.put(message(b"not yet"))
        await until(lambda: box.store.synced == placed.end)
        await slave.report()
        while slave.heartbeats < 3:
            await slave.take()
        assert (slave.end, box.store.synced) == (committed, placed.end)
        box.store.commit(placed.end)
        await slave.take_to(placed.end)
        assert bytes(slave.log) == box.log()


async def test_a_slave_goes_on_where_it_was_also_within_a_large_record(tmp_path: Path) -> None:
    async with open_store(small(tmp_path, segment_bytes=1 << 20, max_message_bytes=400_000), now_ms=Clock()) as store:
        await fill(store, 12, 150_000)
        whole = b"".join(each.path.read_bytes() for each in store.segments())[: store.committed]
    async with serving(tmp_path) as box:
        copy = b""
        for _ in range(200):
            async with box.slave(copy) as slave:
                await slave.report()
                while slave.end == len(copy) and slave.end < len(whole):
                    await slave.take()
                copy = bytes(slave.log)
            if copy == whole:
                break
        assert copy == whole
        assert box.refused() == {}


async def test_a_slave_of_another_log_is_refused_and_counted(tmp_path: Path) -> None:
    async with serving(tmp_path) as box:
        await fill(box.store, 10)
        for log_offset, reason in ((7, "differs"), (box.store.committed + 1, "beyond_end")):
            async with box.slave() as slave:
                await slave.report(log_offset)
                await slave.wait_closed()
                assert not slave.log
                assert slave.heartbeats == 0
            assert box.refused().pop(reason) == 1


async def test_a_report_of_more_than_was_sent_ends_the_connection(tmp_path: Path) -> None:
    async with serving(tmp_path) as box, box.slave() as slave:
        await fill(box.store, 10)
        await slave.report()
        await slave.take_to(box.store.committed)
        await slave.report(box.store.committed + 1)
        await slave.wait_closed()
        assert box.refused() == {"beyond_end": 1}


async def test_deleted_segments_are_not_there_for_slaves_either(tmp_path: Path) -> None:
    async with serving(tmp_path) as box:
        await fill(box.store, 500)
        second = box.store.segments()[1].base
        await box.store.drop_first()
        assert box.store.first == second
        async with box.slave() as slave:
            await slave.report()
            await slave.take_to(box.store.committed)
            assert slave.first == second
            assert bytes(slave.log) == box.log()
        async with box.slave() as slave:
            await slave.report(120)
            await slave.wait_closed()
        assert box.refused() == {"deleted": 1}


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", REPORT.pack(-1), b"\xff" * 100_000]
)
async def test_garbage_is_refused_at_its_first_bytes(tmp_path: Path, data: bytes) -> None:
    async with serving(tmp_path) as box, box.slave() as slave:
        try:
            await slave.stream.send_all(data)
        except trio.BrokenResourceError:
            pass
        await slave.wait_closed()
        assert box.refused() == {"garbage": 1}


async def test_a_flood_of_reports_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as box, box.slave() as slave:
        await fill(box.store, 10)
        try:
            await slave.stream.send_all(REPORT.pack(0) * 100_000)
        except trio.BrokenResourceError:
            pass
        await slave.wait_closed()
        assert box.refused() == {"flood": 1}


async def test_places_and_addresses_are_limited(tmp_path: Path) -> None:
    async with serving(tmp_path, most=2) as box, box.slave() as one, box.slave() as two:
        await fill(box.store, 5)
        for slave in (one, two):
            await slave.report()
            await slave.take_to(box.store.committed)
        async with box.slave() as three:
            await three.wait_closed()
        assert box.refused() == {"places": 1}
    async with serving(tmp_path / "other", admits=lambda address: False) as box, box.slave() as slave:
        await slave.wait_closed()
        assert box.refused() == {"address": 1}


async def test_who_says_nothing_keeps_no_slave_out_and_pushes_out_its_own_alone(tmp_path: Path) -> None:
    async with serving(tmp_path, most=3) as box, AsyncExitStack() as strangers:
        await fill(box.store, 5)
        held = [await strangers.enter_async_context(box.slave()) for _ in range(3)]
        await until(lambda: len(box.slaves.statistics().slaves) == 3)
        async with box.slave(host="127.0.0.9") as slave:
            await held[0].wait_closed()
            for _ in range(20):
                await strangers.enter_async_context(box.slave())
            await until(lambda: box.refused().get("places", 0) >= 20)
            await slave.report()
            await slave.take_to(box.store.committed)
            assert [each.address.startswith("127.0.0.9:") for each in box.slaves.statistics().slaves] == [
                True,
                False,
                False,
            ]


async def test_a_part_of_a_report_now_and_then_is_no_word(tmp_path: Path) -> None:
    async with serving(tmp_path, pace=Pace(0.02, 0.5)) as box, box.slave() as slave, trio.open_nursery() as nursery:

        async def drip() -> None:
            for _ in range(7):
                await slave.stream.send_all(b"\0")
                await trio.sleep(0.3)

        nursery.start_soon(drip)
        await until(lambda: box.refused() == {"silent": 1}, 1.8)
        nursery.cancel_scope.cancel()


async def test_a_slave_that_says_nothing_is_closed(tmp_path: Path) -> None:
    async with serving(tmp_path, pace=Pace(0.02, 0.2)) as box, box.slave() as slave:
        await fill(box.store, 5)
        await slave.wait_closed()
        assert box.refused() == {"silent": 1}
        assert box.slaves.statistics().slaves == []


@pytest.mark.slow
async def test_a_slave_that_reads_nothing_takes_no_memory_and_is_closed(tmp_path: Path) -> None:
    async with serving(tmp_path, pace=Pace(0.1, 4.0)) as box:
        await fill(box.store, 6000, 2000)
        stuck = socket.create_connection(("127.0.0.1", box.port))
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.sendall(REPORT.pack(0))
        await until(lambda: box.slaves.statistics().slaves)

        async def report_on() -> None:  # it lives, and takes nothing
            with suppress(OSError):
                while True:
                    stuck.sendall(REPORT.pack(0))
                    await trio.sleep(0.6)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(report_on)
            await until(box.refused)
            nursery.cancel_scope.cancel()
        stuck.close()
        assert box.refused() == {"slow": 1}
        assert box.slaves.statistics().sent_bytes < box.store.committed
        async with box.slave() as slave:
            await slave.report()
            await slave.take_to(box.store.committed)


@pytest.mark.pure
@pytest.mark.slow
async def test_many_connections_leave_one_ask_at_the_log(tmp_path: Path) -> None:
    async with serving(tmp_path) as box:
        await fill(box.store, 2)
        for _ in range(50):
            async with box.slave(box.log()) as slave:
                await slave.report()
                await slave.take()
        waiting = box.store._log._commitment.mark._waiting
        assert len(waiting) == 1
        await until(lambda: box.slaves.statistics().slaves == [])
        await fill(box.store, 1)
        assert len(waiting) == 0


async def test_a_log_that_failed_is_served_to_its_end(tmp_path: Path) -> None:
    async with serving(tmp_path) as box, box.slave() as slave:
        await fill(box.store, 5)
        await slave.report()
        await slave.take_to(box.store.committed)
        box.store.seal("the disk failed")
        before = slave.heartbeats
        while slave.heartbeats < before + 3:
            await slave.take()
        assert bytes(slave.log) == box.log()


async def test_a_log_that_the_disk_does_not_give_back_ends_the_slave_that_asks_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as box:
        await fill(box.store, 20)

        def fail(start: int, max_bytes: int) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as patched:
            patched.setattr(box.store, "read_log", fail)
            for at in (0, len(box.log()) // 2):  # from the begin; from where a slave stands
                async with box.slave() as slave:
                    await slave.report(at)
                    await slave.wait_closed()
        assert box.refused() == {"deleted": 2}
        async with box.slave() as slave:
            await slave.report()
            await slave.take_to(box.store.committed)
