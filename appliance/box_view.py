"""What observers of a running box are handed: metrics, status page. Only read."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.access.lazy_tls import LazyTls
from appliance.broker.assembly import Waiting
from appliance.broker.broker_tables import BrokerTables
from appliance.configuration.settings import Config
from appliance.health.health import HealthBoard
from appliance.requests import ResponderStatistics
from netstack.serving.governor import Governor
from netstack.serving.tls import TlsDoor
from storage_driver.named_tuple import NamedTuple
from storage_driver.store import MessageStore

if TYPE_CHECKING:
    from appliance.replication.role import ReplicationRole
    from netstack.grpc.call_counts import CallStatistics
    from uplink_spark.box.shipper import Uplink


class BoxView(NamedTuple):
    """What there is to look at in a running box."""

    config: Config
    data: Path
    store: MessageStore
    tables: BrokerTables
    waiting: Waiting
    governor: Governor
    responders: Mapping[str, Callable[[], ResponderStatistics]]  # by port
    board: HealthBoard | None
    uplink: "Uplink | None"
    now_ms: Callable[[], int]
    door: TlsDoor | LazyTls | None = None
    replication: "ReplicationRole | None" = None
    calls: "Callable[[], CallStatistics] | None" = None  # of gRPC
