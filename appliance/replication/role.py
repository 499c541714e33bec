"""What a box is in replication, a master or a slave, as the rest of the box sees it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

import trio

from appliance.broker.broker_tables import BrokerTables
from appliance.configuration.settings import SLAVE_ROLE, Config
from appliance.namesrv.handlers import OwnSlaves
from appliance.replication.master import Master, MasterRules
from appliance.replication.slave import Slave, SlaveRules
from appliance.replication.table_sync import CopiedTables
from appliance.requests import Handle
from netstack.serving.addresses import host_port, split_host_port
from storage_driver.record import MAX_PROPERTIES_BYTES, MAX_TOPIC_BYTES
from storage_driver.store import MessageStore

MIB, MASTER_ID = 1 << 20, 0
BESIDE_BODY = MAX_PROPERTIES_BYTES + MAX_TOPIC_BYTES + 1024  # of a record, at most


class ReplicationRole(Protocol):
    """A master or a slave."""

    @property
    def broker_id(self) -> int: ...
    @property
    def ha_port(self) -> int:
        """Where slaves fetch the log; 0: nowhere."""

    @property
    def own_slaves(self) -> OwnSlaves | None: ...
    def loops(self, listeners: Sequence[trio.SocketListener]) -> Iterable[Callable[[], Awaitable[None]]]: ...
    def addresses(self, asked_at: str) -> dict[int, str]:
        """Return address by broker id; `asked_at` is this box's as the asking client reaches it."""

    def handlers(self) -> dict[int, Handle]: ...
    def told(self) -> Mapping[str, object]: ...
    async def wait_change(self) -> None:
        """Return once what is told has changed so that people are to hear it at once."""

    def series(self) -> Iterable[tuple[str, float, Mapping[str, str]]]:
        """Return name, value and labels of each metric."""


def leader_host(role: ReplicationRole, reached: str) -> str:
    """Return the host where clients find the leader of a group, "" where that is the one they reached."""
    leader = role.addresses(host_port(reached, 0)).get(MASTER_ID)
    host = split_host_port(leader)[0] if leader else ""
    return "" if host == reached else host


def make_role(
    config: Config, store: MessageStore, tables: BrokerTables, port: int, *, now_ms: Callable[[], int]
) -> ReplicationRole:
    """Return the role of a box that has one; `port` is open for slaves."""
    said = config.replication
    if said.role != SLAVE_ROLE:
        return Master(MasterRules(port, said.slaves, said.most_slaves), store)
    timers = store.state_file("timers", folder="rocketbox")
    copied = CopiedTables(tables.topics, tables.groups, tables.offsets, store.state_file("delayOffset"), timers)
    rules = SlaveRules(said.master, said.broker_id, config.limits.message_mib * MIB + BESIDE_BODY)
    return Slave(rules, store, copied, now_ms=now_ms)
