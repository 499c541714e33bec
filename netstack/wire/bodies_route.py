"""Bodies of the NameServer: routes, registrations, topic tables, lists. Source: RocketMQ 4.9.8 protocol.body."""

from dataclasses import field
from typing import Annotated, Any

from netstack.lazy import value_class
from netstack.wire.json_body import Body


@value_class
class DataVersion(Body):
    """Two versions are equal when counter and timestamp are (and stateVersion, which 5.x adds)."""

    counter: int = 0
    time_ms: Annotated[int, "timestamp"] = 0
    state_version: int | None = None

    def same_as(self, other: "DataVersion") -> bool:
        mine = (self.counter, self.time_ms, self.state_version or 0)
        return mine == (other.counter, other.time_ms, other.state_version or 0)


@value_class
class TopicConfig(Body):
    topic_name: str = ""
    read_queue_count: Annotated[int, "readQueueNums"] = 16
    write_queue_count: Annotated[int, "writeQueueNums"] = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] | None = None  # 5.x


@value_class
class TopicConfigTable(Body):
    """To 21, and part of a registration."""

    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


@value_class
class RegisterBrokerBody(Body):
    """103 from version 37 on; older brokers send the bare TopicConfigTable. A list of None means: keep."""

    topics: Annotated[TopicConfigTable, "topicConfigSerializeWrapper"] = field(default_factory=TopicConfigTable)
    filter_server_list: tuple[str, ...] | None = None


@value_class
class QueueData(Body):
    broker_name: str = ""
    read_queue_count: Annotated[int, "readQueueNums"] = 0
    write_queue_count: Annotated[int, "writeQueueNums"] = 0
    perm: int = 6
    topic_sys_flag: int = 0


@value_class
class BrokerData(Body):
    """`enable_acting_master` is always written: Rust clients demand it."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = field(default_factory=dict)
    enable_acting_master: bool = False
    zone_name: str | None = None


@value_class
class RouteData(Body):
    """To 105. Go cuts addresses out of the text, so it has to stay compact."""

    queue_datas: tuple[QueueData, ...] = ()
    broker_datas: tuple[BrokerData, ...] = ()
    filter_server_table: dict[str, tuple[str, ...]] = field(default_factory=dict)
    order_topic_conf: str | None = None


@value_class
class ClusterInfo(Body):
    """To 106."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, tuple[str, ...]] = field(default_factory=dict)


@value_class
class TopicList(Body):
    """To 206, 224, 304, 305, 311, 312, 313, 343."""

    topic_list: tuple[str, ...] = ()
    broker_addr: str | None = None


@value_class
class KvTable(Body):
    """To 28, 103, 219."""

    table: dict[str, str] = field(default_factory=dict)


def properties_text(properties: dict[str, Any]) -> bytes:
    """Return the body of 26 and 319: one key=value per line, as java.util.Properties reads it."""
    escaped = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    table = str.maketrans(escaped)
    shown = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in properties.items()}
    return "".join(f"{key}={value.translate(table)}\n" for key, value in shown.items()).encode()


def read_properties(text: bytes) -> dict[str, str]:
    """Return what such a text says; comments and blank lines are skipped."""
    found = {}
    for line in text.decode("utf-8", "replace").splitlines():
        key, mark, value = line.strip().partition("=")
        if mark and not key.startswith(("#", "!")):
            found[key.strip()] = value.strip().replace("\\:", ":").replace("\\=", "=").replace("\\\\", "\\")
    return found
