"""What the service of RocketMQ 5 clients stands on: parts of the broker, and who may come."""

from collections.abc import Callable
from typing import NamedTuple

from appliance.access.access import Keys
from appliance.broker.access.permissions import Permissions
from appliance.broker.assembly import BrokerParts
from appliance.broker.broker_tables import BrokerTables
from appliance.broker.pop.lazy_pop import LazyPop
from netstack.grpc.call_counts import CallCounts
from storage_driver.interfaces import Messages


def here() -> str:
    """Return no other box: this one takes messages."""
    return ""


class GrpcParts(NamedTuple):
    """Tables and parts of the broker, its store, access control, counters, the clock.

    leader_host: where the box is that takes messages instead of this one, "" where there is none.
    """

    tables: BrokerTables
    parts: BrokerParts
    pop: LazyPop
    store: Messages
    gate: Permissions
    keys: Keys
    counts: CallCounts
    now_ms: Callable[[], int]
    leader_host: Callable[[], str] = here
