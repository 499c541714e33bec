"""The master's side: a port at which Apache's slaves fetch the log, each at its own pace.

A slave gets what is committed, nothing earlier. It takes one read of the log in memory and a place at the port; what it
does or does not do changes nothing for senders. Source: RocketMQ 4.9.7 HAService, HAConnection.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

import trio

from appliance.replication.mark_signal import MarkSignal
from appliance.replication.slave_progress import (
    ADDRESS,
    BEYOND,
    DIFFERS,
    FLOOD,
    GARBAGE,
    GONE,
    PLACES,
    REFUSALS,
    SILENT,
    SLOW,
    SlaveProgress,
    SlaveRefused,
)
from appliance.replication.slicing import READ_BYTES, cut, open_record
from appliance.sockets import serve_peer
from netstack.errors import ProtocolError
from netstack.serving.connect_pace import ConnectPace
from netstack.serving.limits import LogLimiter
from netstack.serving.slots import greediest, share_of
from netstack.wire.replication import SLICE_HEAD, STOCK_PACE, Pace, ReportDecoder
from storage_driver.log.marks import Wake
from storage_driver.named_tuple import NamedTuple

log = logging.getLogger("appliance.replication")
RECEIVE_BYTES = 4096
Read = TypeVar("Read")
GATHER_S = 0.005  # commits share a read: a slave on the same machine costs 15 % of processor time, without this 21 %


class CommittedLog(Protocol):
    """The part of a store that is copied."""

    @property
    def first(self) -> int: ...
    @property
    def committed(self) -> int: ...
    @property
    def failure(self) -> str | None: ...
    def when_committed(self, log_offset: int, wake: Wake, /) -> None: ...
    def read_log(self, start: int, max_bytes: int) -> bytes: ...


class SlaveSeen(NamedTuple):
    """One slave that is connected; -1: it has not reported, or nothing is sent yet."""

    address: str
    reported: int
    position: int
    since_s: float


class SlavesSeen(NamedTuple):
    """Who is connected, what was refused so far and why, and how much was sent."""

    slaves: Sequence[SlaveSeen]
    refused: Mapping[str, int]
    connections: int
    sent_bytes: int


def _nothing() -> None:
    """End what has not begun."""


class _Slave:
    """A connection that is served; `given_up`: another has its place."""

    def __init__(self, stream: trio.SocketStream, address: str, progress: SlaveProgress) -> None:
        self.stream, self.address, self.progress = stream, address, progress
        self.since_s, self.begins = trio.current_time(), trio.Event()
        self.given_up, self.end = False, _nothing

    @property
    def share(self) -> str:
        """What it shares its places with."""
        return share_of(self.address.rpartition(":")[0])


class Slaves:
    """Serves the slaves of one log. `most` at a time, of addresses that are admitted."""

    def __init__(self, log: CommittedLog, *, admits: Callable[[str], bool], most: int, pace: Pace = STOCK_PACE) -> None:
        self._log, self._admits, self._most, self._pace = log, admits, most, pace
        self._signal = MarkSignal(lambda: log.committed, log.when_committed, failure=lambda: log.failure)
        self._reading = trio.CapacityLimiter(1)
        self._connected: set[_Slave] = set()
        self._refused: Counter[str] = Counter(dict.fromkeys(REFUSALS, 0))
        self._told, self._pace_of_connects = LogLimiter(), ConnectPace()
        self._connections = self._sent_bytes = 0

    def statistics(self) -> SlavesSeen:
        """Return a snapshot."""
        now_s = trio.current_time()
        slaves = [
            SlaveSeen(
                each.address,
                -1 if each.progress.reported is None else each.progress.reported,
                -1 if each.progress.position is None else each.progress.position,
                now_s - each.since_s,
            )
            for each in sorted(self._connected, key=lambda each: each.since_s)
        ]
        return SlavesSeen(slaves, dict(self._refused), self._connections, self._sent_bytes)

    async def serve(self, listeners: Sequence[trio.SocketListener]) -> None:
        """Serve until cancelled."""
        await trio.serve_listeners(self._connection, list(listeners))

    async def _connection(self, stream: trio.SocketStream) -> None:
        await serve_peer(stream, self.serve_one)

    async def serve_one(self, stream: trio.SocketStream, host: str, port: int) -> None:
        """Serve one connection to its end; whatever that is, it is the end of this slave's connection alone."""
        address = f"{host}:{port}"
        try:
            self._check_place(host)
            await self._served(_Slave(stream, address, SlaveProgress(trio.current_time(), self._pace)))
        except SlaveRefused as exc:
            self._refused[exc.reason] += 1
            self._note_refusal(host, address, exc)

    def _check_place(self, host: str) -> None:
        if not self._pace_of_connects.admits(host):
            raise SlaveRefused(FLOOD, "connects too often")
        if not self._admits(host):
            raise SlaveRefused(ADDRESS, "replication.slaves does not name this address")
        if len(self._connected) >= self._most and not self._make_place(share_of(host)):
            raise SlaveRefused(PLACES, f"{self._most} slaves are connected, replication.most_slaves allows no more")

    def _make_place(self, share: str) -> bool:
        """End the oldest connection that has reported nothing, of the address with the most of them, if there is one.

        So whoever connects and says nothing keeps no slave out, and only pushes out its own connections.
        """
        silent = sorted((each for each in self._connected if each.progress.reported is None), key=_since)
        held = Counter(each.share for each in silent)
        if not silent:
            return False
        giver = greediest(held, share)
        oldest = next(each for each in silent if each.share == giver)
        self._connected.discard(oldest)
        oldest.given_up = True
        oldest.end()
        return True

    def _note_refusal(self, host: str, address: str, refused: SlaveRefused) -> None:
        if (more := self._told.line_end(host, refused.reason, trio.current_time())) is not None:
            log.warning("event=slave_refused peer=%s reason=%s text=%r%s", address, refused.reason, str(refused), more)

    async def _served(self, slave: _Slave) -> None:
        """Read reports and send the log until one of them ends. Raises SlaveRefused."""
        self._connected.add(slave)
        self._connections += 1
        refusals = list[SlaveRefused]()
        try:
            async with trio.open_nursery() as nursery:
                slave.end = nursery.cancel_scope.cancel
                for part in (self._read, self._send):
                    nursery.start_soon(_first_ends, part, slave, nursery.cancel_scope, refusals)
        finally:
            self._connected.discard(slave)
        if slave.given_up:
            raise SlaveRefused(PLACES, "reported nothing, and another connection needed its place")
        self._tell(slave, "slave_gone", f"position={slave.progress.position}")
        if refusals:
            raise refusals[0]

    def _tell(self, slave: _Slave, event: str, facts: str) -> None:
        """Log what became of a slave, of an address that comes again and again now and then."""
        if (more := self._told.line_end(slave.share, event, trio.current_time())) is not None:
            log.info("event=%s peer=%s %s%s", event, slave.address, facts, more)

    async def _read(self, slave: _Slave) -> None:
        """Take reports until the slave closes. Raises SlaveRefused."""
        reports = ReportDecoder()
        while True:
            with trio.move_on_after(slave.progress.silence_left_s(trio.current_time())):
                data = await slave.stream.receive_some(RECEIVE_BYTES)
                if not data:
                    return
                try:
                    slave.progress.note_reports(reports.feed(data), trio.current_time())
                except ProtocolError as exc:
                    raise SlaveRefused(GARBAGE, str(exc)) from exc
                if slave.progress.reported is not None:
                    slave.begins.set()
                continue
            raise SlaveRefused(SILENT, f"said nothing for {self._pace.silence_s:g} s")

    async def _send(self, slave: _Slave) -> None:
        """Send the log from where the slave is, and heartbeats between. Raises SlaveRefused."""
        await slave.begins.wait()
        progress, source = slave.progress, self._log
        position, open_to = await self._start(slave)
        progress.begin(position)
        self._tell(slave, "slave_served", f"from={position} committed={source.committed}")
        while True:
            await self._signal.wait(position, progress.heartbeat_in_s(trio.current_time()))
            data = await self._bytes_at(position) if source.committed > position else b""
            frames, slices = SLICE_HEAD.pack(position, 0), 1
            if data:
                frames, slices, position, open_to = cut(position, data, open_to)
            progress.note_sent(position, slices, trio.current_time())
            await self._put(slave, frames)
            if 0 < len(data) < READ_BYTES:
                await trio.sleep(GATHER_S)

    async def _put(self, slave: _Slave, frames: bytes) -> None:
        """Send some frames; a slave that does not take them in time is closed. Raises SlaveRefused."""
        with trio.move_on_after(self._pace.silence_s) as limit:
            await slave.stream.send_all(frames)
        if limit.cancelled_caught:
            raise SlaveRefused(SLOW, f"did not take {len(frames)} bytes within {self._pace.silence_s:g} s")
        self._sent_bytes += len(frames)

    async def _start(self, slave: _Slave) -> tuple[int, int]:
        """Return where sending starts, and the end of the record that is open there. Raises SlaveRefused.

        An empty slave gets all there is, where Apache sends its last file alone.
        """
        reported, source = slave.progress.reported, self._log
        assert reported is not None, "it has reported"
        if reported == 0:
            return source.first, 0
        if reported > source.committed:
            raise SlaveRefused(BEYOND, f"has the log up to {reported}, this box up to {source.committed}")
        if reported < source.first:
            text = f"has the log up to {reported}, this box from {source.first} on: empty its store"
            raise SlaveRefused(GONE, text)
        if reported == source.committed:
            return reported, 0
        open_to = await self._read_at(reported, partial(open_record, source.read_log, reported))
        if open_to is None:
            text = f"has the log up to {reported}, where no record of this box begins: restart it, then empty its store"
            raise SlaveRefused(DIFFERS, text)
        return reported, open_to

    async def _bytes_at(self, position: int) -> bytes:
        """Return bytes of the log, in no case none. Raises SlaveRefused."""
        data = await self._read_at(position, partial(self._log.read_log, position, READ_BYTES))
        if not data:
            raise SlaveRefused(GONE, f"the log at {position} is deleted, it begins at {self._log.first}")
        return data

    async def _read_at(self, position: int, read: Callable[[], Read]) -> Read:
        """Read the log in a thread. Raises SlaveRefused where the disk does not give it back."""
        try:
            return await trio.to_thread.run_sync(read, limiter=self._reading)
        except OSError as exc:
            raise SlaveRefused(GONE, f"the log at {position} cannot be read: {exc}") from exc


def _since(slave: _Slave) -> float:
    return slave.since_s


async def _first_ends(
    part: Callable[[_Slave], Awaitable[None]], slave: _Slave, scope: trio.CancelScope, refusals: list[SlaveRefused]
) -> None:
    """Run a part of a connection; its end is the end of the other one."""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        try:
            await part(slave)
        except SlaveRefused as exc:
            refusals.append(exc)
    scope.cancel()
