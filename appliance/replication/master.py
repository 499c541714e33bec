"""This box as the master of stock slaves: who they may be, what tools and people are told of them."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from ipaddress import ip_address, ip_network

import trio

from appliance.namesrv.handlers import OwnSlaves
from appliance.replication.slaves import CommittedLog, Slaves, SlavesSeen
from appliance.replication.slaves_told import slaves_series, slaves_told
from appliance.requests import Answer, Handle, Reply, RequestPeer
from netstack.serving.addresses import is_loopback
from netstack.wire import fastjson
from netstack.wire.codes import RequestCode
from netstack.wire.command import RemotingCommand
from storage_driver.named_tuple import NamedTuple

IN_SYNC_BYTES = 256 << 20  # Apache's haSlaveFallbehindMax


class MasterRules(NamedTuple):
    """`replication` of the configuration, and the port that was opened."""

    port: int
    slaves: Sequence[str] = ()  # networks
    most: int = 4


def admitted(networks: Iterable[str]) -> Callable[[str], bool]:
    """Return what tells whether a slave may come from an address: this machine, and these networks."""
    allowed = [ip_network(text, strict=False) for text in networks]

    def admits(address: str) -> bool:
        return is_loopback(address) or any(ip_address(address) in network for network in allowed)

    return admits


class Master:
    """Serves slaves, and tells how far they are."""

    broker_id = 0

    def __init__(self, rules: MasterRules, log: CommittedLog) -> None:
        self.ha_port, self._log = rules.port, log
        admits = admitted(rules.slaves)
        self.own_slaves = OwnSlaves(admits, rules.port)
        self._slaves = Slaves(log, admits=admits, most=rules.most)

    def loops(self, listeners: Sequence[trio.SocketListener]) -> tuple[Callable[[], Awaitable[None]], ...]:
        """Return what serves slaves until it is cancelled."""
        return (partial(self._slaves.serve, listeners),)

    def addresses(self, asked_at: str) -> dict[int, str]:
        """Return the own address; stock slaves register theirs."""
        return {self.broker_id: asked_at}

    def statistics(self) -> SlavesSeen:
        """Return a snapshot."""
        return self._slaves.statistics()

    async def wait_change(self) -> None:
        """Wait for ever: what is told is written now and then."""
        await trio.sleep_forever()

    def told(self) -> dict[str, object]:
        """Return what the health object tells."""
        return {"role": "master", "slaves": slaves_told(self.statistics(), self._log.committed)}

    def series(self) -> Iterator[tuple[str, float, Mapping[str, str]]]:
        """Return name, value and labels of each metric."""
        return slaves_series(self.statistics(), self._log.committed)

    def handlers(self) -> dict[int, Handle]:
        """Return request code → handler."""
        status = partial(handle_status, master=self, end=lambda: self._log.committed)
        return {RequestCode.GET_BROKER_HA_STATUS: status}


def handle_status(request: RemotingCommand, peer: RequestPeer, *, master: Master, end: Callable[[], int]) -> Answer:
    """GET_BROKER_HA_STATUS (907) of 5.x: every slave, and how far it is behind. Source: RocketMQ 5.3 HARuntimeInfo."""
    seen, to = master.statistics(), end()
    slaves = [
        {
            "addr": each.address,
            "slaveAckOffset": each.reported,
            "diff": to - max(0, each.reported),
            "inSync": each.reported >= 0 and to - each.reported < IN_SYNC_BYTES,
            "transferFromWhere": each.position,
            "transferredByteInSecond": 0,
        }
        for each in seen.slaves
    ]
    body = {
        "haClientRuntimeInfo": {},
        "haConnectionInfo": slaves,
        "inSyncSlaveNums": sum(bool(each["inSync"]) for each in slaves),
        "master": True,
        "masterCommitLogMaxOffset": to,
    }
    return Reply(request.reply(body=fastjson.dumps(body)))
