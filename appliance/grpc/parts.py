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


class GrpcParts(NamedTuple):
    """Tables and parts of the broker, its store, access control, counters, the clock."""

    tables: BrokerTables
    parts: BrokerParts
    pop: LazyPop
    store: Messages
    gate: Permissions
    keys: Keys
    counts: CallCounts
    now_ms: Callable[[], int]
