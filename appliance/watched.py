"""What observers of a running box are handed: metrics, status page. Only read."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.broker.assembly import BrokerTables, Waiting
from appliance.health import HealthBoard
from appliance.late_door import LateDoor
from appliance.requests import ResponderStatistics
from appliance.settings import Config
from netstack.governor import Governor
from netstack.tls import TlsDoor
from storage_driver.named_tuple import NamedTuple
from storage_driver.store import MessageStore

if TYPE_CHECKING:
    from uplink_spark.box.shipper import Uplink


class Watched(NamedTuple):
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
    door: TlsDoor | LateDoor | None = None
