"""Bodies of the NameServer: routes, registrations, topic tables, lists. Source: RocketMQ 4.9.8 protocol.body."""

import zlib
from dataclasses import field
from typing import Annotated, Any

from netstack import fastjson
from netstack.codes import ResponseCode
from netstack.errors import ProtocolError, Refused
from netstack.frame import MAX_FRAME
from netstack.json_body import Body
from netstack.lazy import value_class


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

    @classmethod
    def from_compressed(cls, body: bytes, version: int) -> "RegisterBrokerBody":
        """Decode the compressed form; order and topicSysFlag are not in it. Raises Refused.

        A zlib stream of: i32 n, DataVersion JSON · i32 k, k × (i32 n, `name read write perm filterType [attributes]`) ·
        i32 n, filter server list JSON · what 5.x adds is ignored. Source: RocketMQ 4.9.8 RegisterBrokerBody.decode.
        """
        try:
            reader = _Reader(_inflated(body))
            data_version = DataVersion.from_bytes(reader.part())
            configs = [_topic_config(reader.part().decode()) for _ in range(reader.count())]
            servers = fastjson.loads(reader.part())
        except (ProtocolError, ValueError, zlib.error) as exc:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"compressed registration is not readable: {exc}") from None
        table = TopicConfigTable({config.topic_name: config for config in configs}, data_version)
        return cls(table, tuple(map(str, servers)) if isinstance(servers, list) else None)


class _Reader:
    def __init__(self, text: bytes) -> None:
        self._text, self._at = text, 0

    def count(self) -> int:
        number = int.from_bytes(self._text[self._at : self._at + 4], "big", signed=True)
        if self._at + 4 > len(self._text) or not 0 <= number <= len(self._text):
            raise ProtocolError(f"length {number} at {self._at} of {len(self._text)} bytes")
        self._at += 4
        return number

    def part(self) -> bytes:
        size = self.count()
        part = self._text[self._at : self._at + size]
        if len(part) < size:
            raise ProtocolError(f"{size} bytes announced, {len(part)} there")
        self._at += size
        return part


def _inflated(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    text = inflater.decompress(body, MAX_FRAME)
    if inflater.unconsumed_tail:
        raise ProtocolError(f"more than {MAX_FRAME} bytes when decompressed")
    return text


def _topic_config(text: str) -> TopicConfig:
    parts = text.split(" ", 5)
    if len(parts) < 5:
        raise ProtocolError(f"topic {text[:80]!r} has {len(parts)} parts, expected 5 or 6")
    return TopicConfig(parts[0], int(parts[1]), int(parts[2]), int(parts[3]), parts[4])


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
