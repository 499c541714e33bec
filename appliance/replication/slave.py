"""This box as the slave of a stock master: it copies, serves consumers, and takes no messages."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import trio

from appliance.configuration.parts import copies_only
from appliance.replication.following import LOST, CopiedLog, Follower, FollowRules, FollowSeen, MasterEdges
from appliance.replication.mark_signal import MarkSignal
from appliance.replication.master_queries import MasterQueries
from appliance.replication.table_sync import CopiedTables, TableSync
from appliance.requests import Answer, Handle, Reply, RequestPeer
from netstack.errors import Refused
from netstack.serving.addresses import split_host_port
from netstack.wire import fastjson
from netstack.wire.codes import SENDS, RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.replication import TimerCheckpoint
from storage_driver.named_tuple import NamedTuple

HA_ABOVE = 1  # the master's broker port: Apache's rule
LOOK_S, REACHED_S = 10.0, 60.0
REFUSED = (  # what would store a message; a stock slave refuses the same
    *SENDS,
    *(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2, RequestCode.RECALL_MESSAGE),
    *(RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION, RequestCode.RESUME_CHECK_HALF_MESSAGE),
    *(RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE),  # who has what is the master's
    *(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.NOTIFICATION, RequestCode.POLLING_INFO),
)


class SlaveRules(NamedTuple):
    """`replication` of the configuration: the master's broker port, the id here, the largest record."""

    master: str  # host:port
    broker_id: int = 1
    most_record_bytes: int = 5 << 20


class SlaveState(NamedTuple):
    """How following goes, bytes that the master has and this box has not (None: unknown), why tables are not taken."""

    seen: FollowSeen
    behind_bytes: int | None
    tables: str


class Slave:
    """Follows a master, and tells how far it is."""

    ha_port, own_slaves = 0, None

    def __init__(self, rules: SlaveRules, log: CopiedLog, tables: CopiedTables, *, now_ms: Callable[[], int]) -> None:
        self.rules, self.broker_id, self._now_ms = rules, rules.broker_id, now_ms
        self._queries = MasterQueries(*split_host_port(rules.master))
        follow = FollowRules(self._queries.host, self._queries.port + HA_ABOVE, rules.most_record_bytes)
        self._follower = Follower(follow, log, self)
        self._sync = TableSync(self, tables)
        self._signal = MarkSignal(lambda: log.committed, log.when_committed, failure=lambda: log.failure)
        self._log = log
        self._master_end: int | None = None  # when it was asked last

    async def edges(self) -> MasterEdges:
        """Return where the master's log begins and ends. Raises as MasterQueries."""
        found = await self._queries.edges()
        self._master_end = found.end
        return found

    async def record_at(self, log_offset: int) -> bytes:
        """Return a record of the master. Raises as MasterQueries."""
        return await self._queries.record_at(log_offset)

    async def table(self, code: int, name: str) -> Mapping[str, Any]:
        """Return a table of the master. Raises as MasterQueries."""
        return await self._queries.table(code, name)

    async def timers(self) -> TimerCheckpoint | None:
        """Return what the master has delivered of timed messages. Raises as MasterQueries."""
        return await self._queries.timers()

    async def reached(self) -> bool:
        """Return whether this log gets within a while as far as the master's is now. Raises as MasterQueries."""
        end = (await self.edges()).end
        with trio.move_on_after(REACHED_S):
            while self._log.committed < end and not self._follower.statistics().differs:
                await self._signal.wait(self._log.committed, 1.0)
        return self._log.committed >= end

    def loops(self, listeners: Sequence[trio.SocketListener]) -> tuple[Callable[[], Awaitable[None]], ...]:
        """Return what runs as long as the box does; nobody fetches the log of a slave."""
        return self._follower.run, self._sync.run, self._look

    async def _look(self) -> None:
        """Ask now and then where the master's log ends, for those who want to know how far this one is behind."""
        while True:
            await trio.sleep(LOOK_S)
            try:
                await self.edges()
            except* LOST:
                pass  # the follower says why

    def addresses(self, asked_at: str) -> dict[int, str]:
        """Return the master's address, while it is connected, and the own one."""
        own = {self.broker_id: asked_at}
        return {0: self.rules.master, **own} if self._follower.statistics().connected else own

    def statistics(self) -> SlaveState:
        """Return a snapshot."""
        seen = self._follower.statistics()
        behind = None if self._master_end is None else max(0, self._master_end - seen.copied_to)
        return SlaveState(seen, behind, self._sync.failure)

    async def wait_change(self) -> None:
        """Wait for ever: what is told is written now and then."""
        await trio.sleep_forever()

    def told(self) -> dict[str, object]:
        """Return what the health object tells."""
        seen, behind, tables = self.statistics()
        state = {"connected": seen.connected, "behind_bytes": behind, "differs": seen.differs, "lost": seen.lost}
        return {"role": "slave", "master": self.rules.master, "tables": tables, **state}

    def series(self) -> Iterator[tuple[str, float, Mapping[str, str]]]:
        """Return name, value and labels of each metric."""
        seen, behind, _ = self.statistics()
        yield "connected", int(seen.connected), {}
        yield "differs", int(bool(seen.differs)), {}
        if behind is not None:
            yield "lag_bytes", behind, {}
        yield "connections_total", seen.connections, {}
        yield "received_bytes_total", seen.received_bytes, {}

    def handlers(self) -> dict[int, Handle]:
        """Return request code → handler."""
        refusing = dict.fromkeys(REFUSED, partial(handle_refused, master=self.rules.master))
        return {**refusing, RequestCode.GET_BROKER_HA_STATUS: partial(handle_status, slave=self, now_ms=self._now_ms)}


def handle_refused(request: RemotingCommand, peer: RequestPeer, *, master: str) -> Answer:
    """Whatever would store a message: code 14, after which stock producers try another broker."""
    raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {copies_only(master)}")


def handle_status(request: RemotingCommand, peer: RequestPeer, *, slave: Slave, now_ms: Callable[[], int]) -> Answer:
    """GET_BROKER_HA_STATUS (907) of 5.x: how far this slave is. Source: RocketMQ 5.3 HAClientRuntimeInfo."""
    seen = slave.statistics().seen
    heard_ms = 0 if seen.heard_s is None else now_ms() - int((trio.current_time() - seen.heard_s) * 1000)
    client = {
        "activated": seen.connected,
        "lastReadTimestamp": heard_ms,
        "lastWriteTimestamp": heard_ms,
        "masterAddr": slave.rules.master,
        "masterFlushOffset": 0,
        "maxOffset": seen.copied_to,
        "transferredByteInSecond": 0,
    }
    body = {
        "haClientRuntimeInfo": client,
        "haConnectionInfo": [],
        "inSyncSlaveNums": 0,
        "master": False,
        "masterCommitLogMaxOffset": 0,
    }
    return Reply(request.reply(body=fastjson.dumps(body)))
