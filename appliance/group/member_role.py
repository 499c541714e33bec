"""A member of a group as the rest of the box, clients and tools see it: routes, refusals, what is told of its state."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

import trio

from appliance.broker.access.request_table import ROWS, AccessClass, Server
from appliance.configuration.group_settings import BROKER_BELOW
from appliance.group.driver import GroupDriver, MemberProgress
from appliance.group.forwarding import HANDED_ON, Forwarder
from appliance.group.leadership import LeadershipState
from appliance.group.member_view import who_is_missed
from appliance.group.single_answers import READS
from appliance.namesrv.handlers import OwnSlaves
from appliance.replication.role import MASTER_ID
from appliance.replication.slave import REFUSED
from appliance.replication.slaves_told import slaves_series, slaves_told
from appliance.requests import Answer, Handle, Reply, RequestPeer
from netstack.errors import Refused
from netstack.serving.addresses import host_port, is_loopback, split_host_port
from netstack.wire import fastjson
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from storage_driver.interfaces import Marks

IN_SYNC_BYTES = 256 << 20  # Apache's haSlaveFallbehindMax
STATE_CODES = (  # what changes tables that go through the log, beside messages
    *(RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ),
    *(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, RequestCode.DELETE_ACL_CONFIG),
    *(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG),
)
CHANGES = tuple(row.code for row in ROWS.values() if row.access is AccessClass.CHANGE and row.server is Server.BROKER)


class MemberRole:
    """How a member stands; `serves`: it is composed as the leader. What it says of the group is of the moment.

    `reads_here`: as a follower it tells offsets and ends of queues as it knows them, without asking the leader.
    """

    own_slaves: OwnSlaves | None = None  # Apache's, which any member serves

    def __init__(self, driver: GroupDriver, log: Marks, *, ha_port: int, serves: bool, reads_here: bool = True) -> None:
        self._driver, self._log = driver, log
        self.ha_port, self._serves = ha_port, serves
        self._reads_here = reads_here
        self.floating = ""  # the address that the leader holds
        self._forwarder = None if serves else Forwarder(driver.leadership, driver.member, self.why_not)

    @property
    def broker_id(self) -> int:
        return MASTER_ID if self._serves else self._number(self._driver.member)

    def _number(self, member: str) -> int:
        """Return the number of a follower: its place among the boxes; who is none of them comes last."""
        boxes = [each.member for each in self._driver.view.members() if not each.witness]
        return boxes.index(member) + 1 if member in boxes else len(boxes) + 1

    @property
    def _state(self) -> LeadershipState:
        return self._driver.leadership.current

    def loops(self, listeners: Sequence[trio.SocketListener]) -> tuple[Callable[[], Awaitable[None]], ...]:
        """Return what a follower runs beside the driver, which runs as long as the box does."""
        return (self._forwarder.run,) if self._forwarder is not None else ()

    def addresses(self, asked_at: str) -> dict[int, str]:
        """Return the leader's address at 0, where it is known, and followers' at their numbers."""
        state, own = self._state, self._driver.member
        if self._serves and state.serves:
            others = [each for each in self._driver.view.members() if each.connected and each.member != own]
            copies = [each for each in others if not (each.witness or each.learner)]
            return {MASTER_ID: self._held(asked_at), **{self._number(each.member): _client(each) for each in copies}}
        leader = {MASTER_ID: self._held(state.address)} if state.address and state.leader != own else {}
        return {**leader, self._number(own): asked_at}

    def _held(self, address: str) -> str:
        """Return the leader's address: the floating one, where there is one, with its port.

        Who asks on this box itself, as its administrator, stays on loopback.
        """
        host, port = split_host_port(address)
        return host_port(self.floating, port) if self.floating and not is_loopback(host) else address

    def handlers(self) -> dict[int, Handle]:
        """Return request code → handler."""
        found: dict[int, Handle] = {}
        if self._forwarder is not None:
            found |= dict.fromkeys((*REFUSED, *CHANGES, *STATE_CODES), self.refuse)
            found |= dict.fromkeys((*HANDED_ON, *(() if self._reads_here else READS)), self._forwarder.handle)
        return found | {RequestCode.GET_BROKER_HA_STATUS: self.handle_status}

    def refuse(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """What would store something: code 14, after which stock clients try again or ask for the route."""
        raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {self.why_not()}")

    def why_not(self) -> str:
        """Return why this member takes no messages, and who does."""
        state = self._state
        if state.leader == self._driver.member:
            missed = who_is_missed(self._driver.view.members(), self._driver.member)
            return f"this box leads its group, and waits for another disk with its log: {missed or 'try again later'}"
        if state.leader:
            return f"this box follows, {state.leader} at {state.address or 'an unknown address'} leads its group"
        return "its group has no leader, try again later"

    def handle_status(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_BROKER_HA_STATUS (907) of 5.x: who has how much. Source: RocketMQ 5.3 HARuntimeInfo."""
        end = self._log.committed
        members = [each for each in self._driver.view.members() if not each.witness and each.behind_bytes is not None]
        others = [each for each in members if each.member != self._driver.member]
        found = [self._connection(each, end) for each in others] if self._serves else []
        client = {} if self._serves else self._following(end)
        body = {
            "haClientRuntimeInfo": client,
            "haConnectionInfo": found,
            "inSyncSlaveNums": sum(bool(each["inSync"]) for each in found),
            "master": self._serves,
            "masterCommitLogMaxOffset": end if self._serves else 0,
        }
        return Reply(request.reply(body=fastjson.dumps(body)))

    def _connection(self, each: MemberProgress, end: int) -> dict[str, object]:
        return {
            "addr": each.address,
            "slaveAckOffset": each.synced,
            "diff": max(0, end - each.synced),
            "inSync": each.connected and end - each.synced < IN_SYNC_BYTES,
            "transferFromWhere": each.synced,
            "transferredByteInSecond": 0,
        }

    def _following(self, end: int) -> dict[str, object]:
        state = self._state
        return {
            "activated": bool(state.leader),
            "lastReadTimestamp": 0,
            "lastWriteTimestamp": 0,
            "masterAddr": state.address,
            "masterFlushOffset": 0,
            "maxOffset": end,
            "transferredByteInSecond": 0,
        }

    async def wait_change(self) -> None:
        """Return once this member leads, follows or lacks copies otherwise than when this was called."""
        await self._driver.leadership.wait_change(self._state)

    def told(self) -> dict[str, object]:
        """Return what the health object tells."""
        state, diverged, alone = self._state, self._driver.view.divergence(), self._driver.view.alone()
        return {
            "role": "member",
            "member": self._driver.member,
            "is": state.role,
            "serves": state.serves,
            "term": state.term,
            "leader": state.leader,
            "leader_address": state.address,
            "members": [each.to_json() for each in self._driver.view.members()],
            **self._driver.view.copies().to_json(),
            "diverged": diverged._asdict() if diverged else None,
            "alone_since_ms": alone[-1].at_ms if alone and alone[-1].end is None else None,
            "certificates": self._driver.view.certificates()._asdict(),
            **self._slaves(),
        }

    def _slaves(self) -> dict[str, object]:
        seen = self._driver.view.slaves()
        return {"slaves": slaves_told(seen, self._log.committed)} if seen is not None else {}

    def series(self) -> Iterator[tuple[str, float, Mapping[str, str]]]:
        """Return name, value and labels of each metric."""
        state = self._state
        yield "leader", int(state.serves), {}
        yield "term", state.term, {}
        for each in self._driver.view.members():
            if each.member == self._driver.member:
                continue
            labels = {"member": each.member}
            yield "member_connected", int(each.connected), labels
            if not each.witness and each.behind_bytes is not None and each.behind_s is not None:
                yield "member_lag_bytes", each.behind_bytes, labels
                yield "member_lag_seconds", each.behind_s, labels
        for reason, count in self._driver.view.refused().items():
            yield "links_refused_total", count, {"reason": reason}
        if (seen := self._driver.view.slaves()) is not None:
            yield from slaves_series(seen, self._log.committed)


def _client(member: MemberProgress) -> str:
    """Return where a box's broker is, host:port: its port is the one below that of its link."""
    host, port = split_host_port(member.address)
    return host_port(host, port - BROKER_BELOW)
