"""The slave's side: fetches a master's log over its HA port and appends it, byte for byte.

What is reported to the master is on this disk: a master that waits for its slave waits for two disks. Nothing is ever
deleted here because a master says so. Source: RocketMQ 4.9.7 HAService.HAClient.
"""

import logging
from typing import Protocol

import trio

from appliance.replication.assembling import LogDiffers, RecordAssembler, RecordRun
from appliance.replication.mark_signal import MarkSignal
from netstack.errors import AskTimeout, ChannelClosed, ProtocolError
from netstack.wire.replication import REPORT, STOCK_PACE, Pace, SliceDecoder
from storage_driver.errors import LogFailed, MessageIllegal, NotNext, QueueRestarted, RecordDamaged
from storage_driver.log.marks import Wake
from storage_driver.named_tuple import NamedTuple

log = logging.getLogger("appliance.replication")
RECEIVE_BYTES = 1 << 18
AHEAD_BYTES = 8 << 20  # received and not synced
RETRY_S, DIFFERS_S = 2.0, 30.0
CONNECT_S = 5.0
LOST = (
    OSError,
    trio.TooSlowError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    ProtocolError,
    AskTimeout,
    ChannelClosed,
)


class CopiedLog(Protocol):
    """The part of a store that copies another log."""

    @property
    def first(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def synced(self) -> int: ...
    @property
    def committed(self) -> int: ...
    @property
    def failure(self) -> str | None: ...
    @property
    def full(self) -> str | None: ...
    @property
    def segment_bytes(self) -> int: ...
    def append_raw(self, log_offset: int, data: bytes) -> int: ...
    def when_synced(self, log_offset: int, wake: Wake, /) -> None: ...
    def when_committed(self, log_offset: int, wake: Wake, /) -> None: ...
    async def restart_queue(self, topic: str, queue_id: int) -> None: ...
    async def begin_at(self, log_offset: int) -> None: ...


class MasterEdges(NamedTuple):
    """Where a master's log begins and ends."""

    first: int
    end: int
    segment_bytes: int | None = None  # of its files; None: it does not say


class MasterQuestions(Protocol):
    """What is asked of a master beside its HA port. Raises OSError, AskTimeout, ChannelClosed, ProtocolError."""

    async def edges(self) -> MasterEdges: ...
    async def record_at(self, log_offset: int) -> bytes: ...


class FollowRules(NamedTuple):
    """Where the master's HA port is, and the largest record that is taken."""

    host: str
    port: int
    most_record_bytes: int = 5 << 20


class FollowSeen(NamedTuple):
    """How following goes. `differs`: why nothing more is appended; `lost`: why there is no connection."""

    connected: bool = False
    copied_to: int = 0
    received_bytes: int = 0
    connections: int = 0
    differs: str = ""
    lost: str = ""
    heard_s: float | None = None  # trio's clock


def first_text(group: BaseExceptionGroup[BaseException]) -> str:
    """Return what the first exception of a group says."""
    cause: BaseException = group
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    return str(cause) or type(cause).__name__


class _Interrupted(Exception):
    """This disk took no more: followed again from where the log ends."""


class Follower:
    """Keeps one log a copy of a master's."""

    def __init__(self, rules: FollowRules, log: CopiedLog, asked: MasterQuestions, *, pace: Pace = STOCK_PACE) -> None:
        self._rules, self._log, self._asked, self._pace = rules, log, asked, pace
        self._signal = MarkSignal(lambda: log.synced, log.when_synced, failure=lambda: log.failure)
        self._appended_to = log.end  # the end of the last record, where no blank is
        self._seen = FollowSeen()

    def statistics(self) -> FollowSeen:
        """Return a snapshot."""
        return self._seen._replace(copied_to=self._log.end)

    async def run(self) -> None:
        """Follow until cancelled, over as many connections as it takes."""
        while self._log.failure is None:
            pause_s = RETRY_S
            try:
                await self._follow()
            except* LogDiffers as exc:
                pause_s = DIFFERS_S
                self._note("differs", first_text(exc))
                self._seen = self._seen._replace(differs=first_text(exc))
            except* (*LOST, _Interrupted, LogFailed) as exc:
                self._note("lost", first_text(exc))
                self._seen = self._seen._replace(lost=first_text(exc))
            self._seen = self._seen._replace(connected=False)
            await trio.sleep(pause_s)

    def _note(self, event: str, text: str) -> None:
        if text not in (self._seen.differs, self._seen.lost):
            log.warning("event=replication_%s master=%s:%d reason=%r", event, *self._rules[:2], text)

    async def _follow(self) -> None:
        """Follow over one connection to its end. Raises what LOST holds, LogDiffers, _Interrupted, LogFailed."""
        self._check_space()
        await self._begin(await self._asked.edges())
        while self._log.synced < self._appended_to:
            await self._signal.wait(self._log.synced, self._pace.silence_s)
        host, port = self._rules[:2]
        with trio.fail_after(CONNECT_S):
            stream = await trio.open_tcp_stream(host, port)
        async with stream:
            await stream.send_all(REPORT.pack(self._log.end))
            log.info("event=replication_begins master=%s:%d from=%d", host, port, self._log.end)
            self._seen = self._seen._replace(
                connected=True, connections=self._seen.connections + 1, differs="", lost=""
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._report, stream)
                await self._receive(stream)

    def _check_space(self) -> None:
        if self._log.full is not None:
            raise _Interrupted(f"this disk is full: {self._log.full}")

    async def _begin(self, edges: MasterEdges) -> None:
        """Have an empty log begin where the master's does, which sends an empty slave its last file alone."""
        end, ours = self._log.end, self._log.segment_bytes
        if edges.segment_bytes not in (None, ours):
            text = f"the master's files have {edges.segment_bytes} bytes, those of this box {ours}"
            raise LogDiffers(f"{text}: empty the store and set store.segment_mib to the size of the master's")
        if end > edges.end:
            raise LogDiffers(f"this copy ends at {end}, the master's log at {edges.end}: it was cut, or is another one")
        if self._log.first < end < edges.first:
            raise LogDiffers(f"this copy ends at {end}, the master's log begins at {edges.first}: empty the store")
        if end < edges.first:  # it holds nothing yet
            if edges.first % ours:
                raise LogDiffers(f"the master's log begins at {edges.first}, which is not a multiple of {ours}")
            await self._log.begin_at(edges.first)
            self._appended_to = edges.first
        elif end == 0 and edges.end >= ours:
            await self._append(RecordRun(0, await self._asked.record_at(0)))

    async def _receive(self, stream: trio.SocketStream) -> None:
        """Append what comes. Raises ProtocolError when the master closes or says nothing, and as `_follow`."""
        decoder = SliceDecoder()
        assembler = RecordAssembler(self._log.end, most_bytes=self._rules.most_record_bytes)
        while True:
            with trio.move_on_after(self._pace.silence_s) as limit:
                data = await stream.receive_some(RECEIVE_BYTES)
            if limit.cancelled_caught:
                raise ProtocolError(f"the master said nothing for {self._pace.silence_s:g} s")
            if not data:
                raise ProtocolError("the master closed the connection")
            received = self._seen.received_bytes + len(data)
            self._seen = self._seen._replace(received_bytes=received, heard_s=trio.current_time())
            for found in decoder.feed(data):
                for run in assembler.feed(found):
                    await self._append(run)

    async def _append(self, run: RecordRun) -> None:
        """Append some records, when those before are on the disk as far as that. Raises LogDiffers, _Interrupted."""
        self._check_space()
        while self._log.end - self._log.synced > AHEAD_BYTES and self._log.failure is None:
            await self._signal.wait(self._log.synced, self._pace.silence_s)
        while True:
            try:
                self._log.append_raw(run.log_offset, run.data)
            except QueueRestarted as exc:
                await self._log.restart_queue(exc.topic, exc.queue_id)  # as the master did before this record
                run = RecordRun(exc.log_offset, run.data[exc.log_offset - run.log_offset :], run.blank)
                continue
            except NotNext as exc:
                raise _Interrupted(f"what was received is given up: {exc}") from exc
            except (RecordDamaged, MessageIllegal) as exc:
                raise LogDiffers(f"what the master sent does not continue this log: {exc}") from exc
            self._appended_to = run.records_end  # a blank is synced with the record behind it
            return

    async def _report(self, stream: trio.SocketStream) -> None:
        """Tell the master what is on this disk, whenever that grows, and every five seconds."""
        reported = self._log.end
        while True:
            await self._signal.wait(reported, self._pace.heartbeat_s)
            reported = max(reported, self._durable())
            await stream.send_all(REPORT.pack(reported))

    def _durable(self) -> int:
        """Return the log offset below which everything that holds a message is on this disk."""
        return self._log.end if self._log.synced >= self._appended_to else self._log.synced
