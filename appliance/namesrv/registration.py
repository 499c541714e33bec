"""The body of a broker's registration: its topic table, plain or compressed.

Source: RocketMQ 4.9.8 RegisterBrokerBody.
"""

import re
import zlib
from collections.abc import Mapping
from typing import Any

from appliance.broker.tables.topics import MOST_QUEUES
from netstack.errors import ProtocolError
from netstack.wire import fastjson

from .route_table import BrokerQueues, TopicTableVersion

MAX_TABLE_BYTES = 16 * 1024 * 1024  # after inflating
PERMS, FLAGS = 7, 3  # read, write, inherit; unit, unit subscription
MOST_TOPICS = 20_000  # of one registration: a box makes 10,000
_NUMBER = re.compile(r"-?[0-9]{1,10}")
WRAPPED_SINCE = 37  # V3_0_11: before it the body is the bare topic table
Table = tuple[TopicTableVersion, dict[str, BrokerQueues], list[str] | None]
"""Data version, topic → queue row, filter servers (None: not told)."""


def read_registration(body: bytes, broker_name: str, *, version: int, compressed: bool) -> Table:
    """Decode what a broker of this protocol version registers. Raises ProtocolError."""
    if not body:
        return TopicTableVersion(), {}, None
    if version < WRAPPED_SINCE:
        data_version, rows = _read_wrapper(_object(fastjson.loads(body)), broker_name)
        return data_version, rows, None
    if compressed:
        return _read_compressed(_inflated(body), broker_name)
    whole = _object(fastjson.loads(body))
    data_version, rows = _read_wrapper(_object(whole.get("topicConfigSerializeWrapper")), broker_name)
    servers = whole.get("filterServerList")
    return data_version, rows, _texts(servers) if isinstance(servers, list) else None


def read_data_version(value: Any) -> TopicTableVersion:
    fields = _object(value)
    return TopicTableVersion(_int(fields, "counter"), _int(fields, "timestamp"), _int(fields, "stateVersion"))


def data_version_json(version: TopicTableVersion) -> bytes:
    return b'{"counter":%d,"timestamp":%d}' % (version.counter, version.timestamp)


def _read_wrapper(wrapper: Mapping[str, Any], broker_name: str) -> tuple[TopicTableVersion, dict[str, BrokerQueues]]:
    topics = _object(wrapper.get("topicConfigTable"))
    _check_count(len(topics))
    rows = {str(topic): _row(_object(config), broker_name) for topic, config in topics.items()}
    return read_data_version(wrapper.get("dataVersion")), rows


def _row(config: Mapping[str, Any], broker_name: str) -> BrokerQueues:
    return _sane(
        broker_name,
        _int(config, "readQueueNums", 16),
        _int(config, "writeQueueNums", 16),
        _int(config, "perm", 6),
        _int(config, "topicSysFlag"),
    )


def _sane(broker_name: str, read_queues: int, write_queues: int, perm: int, sys_flag: int = 0) -> BrokerQueues:
    """Return a row whose numbers a client may loop over, whatever was told."""
    read_queues, write_queues = (min(max(count, 0), MOST_QUEUES) for count in (read_queues, write_queues))
    return BrokerQueues(broker_name, read_queues, write_queues, perm & PERMS, sys_flag & FLAGS)


def _read_compressed(data: bytes, broker_name: str) -> Table:
    """i32 n, data version; i32 k, then k × (i32 n, `name read write perm filter [attributes]`); i32 n, filter servers.

    The order flag and topicSysFlag do not travel in this form; what 5.x senders append is not read.
    """
    fields = _Fields(data)
    version = read_data_version(fastjson.loads(fields.take()))
    rows, count = {}, fields.number()
    _check_count(count)
    for _ in range(count):
        text = fields.take().decode("utf-8", "replace")
        parts = text.split(" ")
        if len(parts) < 5 or not all(map(_NUMBER.fullmatch, parts[1:4])):
            raise ProtocolError(f"topic entry {text[:80]!r}, expected: name read write perm filter")
        rows[parts[0]] = _sane(broker_name, int(parts[1]), int(parts[2]), int(parts[3]))
    servers = fastjson.loads(fields.take())
    return version, rows, _texts(servers) if isinstance(servers, list) else None


def _check_count(count: int) -> None:
    if count > MOST_TOPICS:
        raise ProtocolError(f"{count} topics in a registration, at most {MOST_TOPICS} are allowed")


class _Fields:
    """Length-prefixed fields, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self) -> int:
        found = self._data[self._at : self._at + 4]
        self._at += 4
        if len(found) < 4:
            raise ProtocolError(f"registration ends at byte {len(self._data)}, inside a length")
        return int.from_bytes(found, "big", signed=True)

    def take(self) -> bytes:
        size = self.number()
        found = self._data[self._at : self._at + max(size, 0)]
        self._at += size
        if size < 0 or len(found) < size:
            raise ProtocolError(f"registration field of {size} bytes in {len(self._data)}")
        return found


def _inflated(body: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(body, MAX_TABLE_BYTES)
    except zlib.error as exc:
        raise ProtocolError(f"compressed registration of {len(body)} bytes: {exc}") from exc
    if stream.unconsumed_tail:
        raise ProtocolError(f"registration inflates to more than {MAX_TABLE_BYTES} bytes")
    return data


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(values: list[Any]) -> list[str]:
    return [value for value in values if isinstance(value, str)]


def _int(fields: Mapping[str, Any], name: str, default: int = 0) -> int:
    value = fields.get(name, default)
    return value if isinstance(value, int) else default
