"""What the service of RocketMQ 5 clients stands on: parts of the broker, and who may come."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from appliance.access.access import Keys
from appliance.broker.access.permissions import Permissions
from appliance.broker.assembly import BrokerParts
from appliance.broker.broker_tables import BrokerTables
from appliance.broker.pop.lazy_pop import LazyPop
from netstack.grpc.call_counts import CallCounts
from netstack.serving.server import Connect, ServeBrought
from storage_driver.interfaces import Messages


def here(reached: str) -> str:
    """Return no other host: this one is right."""
    return ""


class GroupPort(Protocol):
    """The port of a member of a group."""

    def connect(self, own: Connect, /) -> Connect:
        """Return what a connection becomes; `own` serves it here."""

    async def run(self, serve: ServeBrought, /) -> None:
        """Have clients served that other members bring, for as long as they may."""

    def each_serves(self) -> bool:
        """Return whether a client is served at every box of the group."""


class GrpcParts(NamedTuple):
    """Tables and parts of the broker, its store, access control, counters, the clock.

    leader_host: which host clients are told instead of the one they reached, "" where that one is right.
    group: what the port is to a group of boxes, None on a box by itself.
    """

    tables: BrokerTables
    parts: BrokerParts
    pop: LazyPop
    store: Messages
    gate: Permissions
    keys: Keys
    counts: CallCounts
    now_ms: Callable[[], int]
    leader_host: Callable[[str], str] = here
    group: GroupPort | None = None
