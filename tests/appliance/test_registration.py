"""What brokers register, byte by byte."""

import json
import struct
import zlib

import pytest

from appliance.broker.tables.topics import MOST_QUEUES
from appliance.namesrv.registration import data_version_json, read_registration
from appliance.namesrv.route_table import BrokerQueues, TopicTableVersion
from netstack.errors import ProtocolError

PLAIN = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":0,"timestamp":1795203844236},'
    b'"topicConfigTable":{"T":{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
    b'"topicName":"T","topicSysFlag":0,"writeQueueNums":4}}}}'
)
COMPRESSED = bytes.fromhex(
    "78da63606050af564ace2fcd2b492d52b232d0512ac9cc4d2d2e49cc2d50b23234b734353230b63031313236ab"
    "656060600462a110051320345308f6f473f7718d0f7174078a3245c70200c991112e"
)
VERSION = TopicTableVersion(0, 1_795_203_844_236)
ROWS = {"T": BrokerQueues("b", 4, 4, 6)}


def test_a_plain_body_is_read() -> None:
    assert read_registration(PLAIN, "b", version=409, compressed=False) == (VERSION, ROWS, [])


def test_a_compressed_body_made_by_java_is_read() -> None:
    assert read_registration(COMPRESSED, "b", version=409, compressed=True) == (VERSION, ROWS, [])


def test_a_bare_table_of_an_old_broker_is_read() -> None:
    bare = PLAIN[PLAIN.index(b'{"dataVersion') : -1]
    assert read_registration(bare, "b", version=36, compressed=False) == (VERSION, ROWS, None)


def test_no_body_is_an_empty_table() -> None:
    assert read_registration(b"", "b", version=409, compressed=False) == (TopicTableVersion(), {}, None)


def test_unquoted_keys_unknown_and_missing_fields_are_read() -> None:
    body = b'{filterServerList:null,extra:{},topicConfigSerializeWrapper:{topicConfigTable:{T:{perm:4,"new":[1]}}}}'
    assert read_registration(body, "b", version=479, compressed=False) == (
        TopicTableVersion(),
        {"T": BrokerQueues("b", 16, 16, 4)},
        None,
    )


def test_a_5x_topic_entry_has_attributes_behind_it() -> None:
    def field(text: bytes) -> bytes:
        return struct.pack(">i", len(text)) + text

    data = field(b'{"counter":1,"timestamp":2,"stateVersion":3}') + struct.pack(">i", 1)
    data += field(b'T 8 9 6 SINGLE_TAG {"a":"b c"}') + field(b"[]") + struct.pack(">i", 0)
    table = read_registration(zlib.compress(data), "b", version=479, compressed=True)
    assert table == (TopicTableVersion(1, 2, 3), {"T": BrokerQueues("b", 8, 9, 6)}, [])


@pytest.mark.parametrize(
    ("body", "compressed"),
    [
        (b"{", False),
        (b"no zlib", True),
        (zlib.compress(b"\0\0"), True),
        (zlib.compress(b"\x7f\xff\xff\xff{}"), True),
        (zlib.compress(b"\xff\xff\xff\xff{}"), True),
        (zlib.compress(b"\0\0\0\2{}\0\0\0\1\0\0\0\1T\0\0\0\2[]"), True),
        (zlib.compress(bytes(17 * 1024 * 1024)), True),
    ],
)
def test_a_damaged_body_is_a_protocol_error(body: bytes, compressed: bool) -> None:
    with pytest.raises(ProtocolError):
        read_registration(body, "b", version=409, compressed=compressed)


def test_a_data_version_is_written_as_java_writes_it() -> None:
    assert data_version_json(VERSION) == b'{"counter":0,"timestamp":1795203844236}'


@pytest.mark.parametrize("compressed", [False, True])
def test_numbers_beyond_what_a_topic_may_have_are_brought_into_bounds(compressed: bool) -> None:
    row = {"readQueueNums": 2**31 - 1, "writeQueueNums": -5, "perm": 2**31 - 1}
    body = json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": {"T": row | {"topicSysFlag": -1}}}}).encode()
    if compressed:
        fields = (b"{}", b"T 2147483647 -5 2147483647 SINGLE_TAG", b"[]")
        version, topic, servers = (struct.pack(">i", len(field)) + field for field in fields)
        body = zlib.compress(version + struct.pack(">i", 1) + topic + servers)
    _, rows, _ = read_registration(body, "b", version=409, compressed=compressed)
    assert rows == {"T": BrokerQueues("b", MOST_QUEUES, 0, 7, 0 if compressed else 3)}
