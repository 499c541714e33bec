"""A message of a gRPC producer as the broker stores it: system properties to RocketMQ's own, checked on the way.

Source: RocketMQ 5.3 SendMessageActivity, GrpcValidator, MessageConst.STRING_HASH_SET.
"""

import re
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from appliance.broker.publish.send_properties import PRIORITY
from appliance.grpc.outcome import Rejection
from netstack.grpc.v2.definition_pb2 import Code, Encoding, MessageType
from storage_driver.record import TRANSACTION_PREPARED

MOST_PROPERTIES, MOST_PROPERTY_BYTES = 128, 16 << 10
MOST_GROUP_BYTES, MOST_ID_BYTES, MOST_TRACE_BYTES = 64, 256, 4096
MOST_RECOVERY_S = 3600
LATEST_S = 253_402_300_799  # of a Timestamp: the end of the year 9999
GZIP, TRANSACTION = int(Encoding.GZIP), int(MessageType.TRANSACTION)  # to ask an enum takes longer
LITE = int(MessageType.LITE)
BAD_REQUEST, BAD_ID = int(Code.BAD_REQUEST), int(Code.ILLEGAL_MESSAGE_ID)
UNIQUE_KEY, TAGS, KEYS, GROUP = "UNIQ_KEY", "TAGS", "KEYS", "__SHARDINGKEY"
HALF, IMMUNITY, DELIVER_MS, PRODUCER_GROUP = (
    *("TRAN_MSG", "CHECK_IMMUNITY_TIME_IN_SECONDS"),
    *("TIMER_DELIVER_MS", "PGROUP"),
)
BORN_HOST, BORN_MS, TRACE_CONTEXT = "__BORNHOST", "BORN_TIMESTAMP", "TRACE_CONTEXT"
RESERVED = frozenset(
    """TRACE_ON MSG_REGION KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET
    BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME UNIQ_KEY MAX_RECONSUME_TIMES
    CONSUME_START_TIME POP_CK POP_CK_OFFSET 1ST_POP_TIME TRAN_PREPARED_QUEUE_OFFSET DUP_INFO EXTEND_UNIQ_INFO
    INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE
    INNER_MULTI_QUEUE_OFFSET TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS
    TIMER_ROLL_TIMES TIMER_OUT_MS TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __BORNHOST BORN_TIMESTAMP DLQ_ORIGIN_TOPIC
    DLQ_ORIGIN_MESSAGE_ID __CRC32# __SHARDINGKEY TRACE_CONTEXT CHECK_IMMUNITY_TIME_IN_SECONDS
    TRANSACTION_CHECK_TIMES __transactionId__ RBX_OWNER RBX_POP_FROM ORIGIN_GROUP _SYS_MSG_PRIORITY_""".split()  # noqa: SIM905
)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
OF_TYPE = {
    "NORMAL": MessageType.NORMAL,
    "FIFO": MessageType.FIFO,
    "DELAY": MessageType.DELAY,
    "TRANSACTION": MessageType.TRANSACTION,
    "PRIORITY": MessageType.PRIORITY,
}


class Sent(NamedTuple):
    """What a message becomes: text of properties, body as its consumers get it, flags of the record."""

    message_id: str
    properties: str
    body: bytes
    sys_flag: int
    born_ms: int
    message_group: str


def read_sent(message: Any, topic: str, attributes: Mapping[str, str], most_bytes: int) -> Sent:
    """Return what is stored of a message; `attributes` are those of its topic. Raises Rejection."""
    system = message.system_properties
    _check_type(system, attributes)
    body = _body(message, system, most_bytes)
    message_id = _message_id(system.message_id)
    properties = {UNIQUE_KEY: message_id}
    size = _add_user_properties(properties, message.user_properties) + _add_search_terms(properties, system)
    if size > MOST_PROPERTY_BYTES:
        text = f"the total size of user property is too large, max is {MOST_PROPERTY_BYTES}"
        raise Rejection(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)
    flag = _add_delivery(properties, system, topic)
    if trace := system.trace_context:
        properties[TRACE_CONTEXT] = _plain(trace, BAD_REQUEST, "trace context", MOST_TRACE_BYTES)
    born_ms = _ms_of(system.born_timestamp)
    if born_host := system.born_host:
        properties[BORN_HOST] = _plain(born_host, BAD_REQUEST, "born host", MOST_ID_BYTES)
    properties[BORN_MS] = str(born_ms)
    text = "\x02".join([f"{name}\x01{value}" for name, value in properties.items() if name and value])
    return Sent(message_id, text, body, flag, born_ms, properties.get(GROUP, ""))


def _check_type(system: Any, attributes: Mapping[str, str]) -> None:
    """A topic without the attribute takes every type: topics of 4.9 have none."""
    kind = system.message_type
    if kind == LITE:
        raise Rejection(Code.UNSUPPORTED, "lite topics are not supported: docs/limits.md")
    declared = attributes.get("message.type", "MIXED")
    if declared in OF_TYPE and kind != OF_TYPE[declared] and _meant(system) != OF_TYPE[declared]:
        text = f"the topic takes messages of type {declared}, this one is {MessageType.Name(kind)}"
        raise Rejection(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, text)


def _meant(system: Any) -> int:
    """Return the type that the content of a normal message says. Source: RocketMQ 5.3 parseFromMessageProperty."""
    kind: int = system.message_type
    if kind == MessageType.NORMAL and system.HasField("delivery_timestamp"):
        return int(MessageType.DELAY)
    if kind == MessageType.NORMAL and system.message_group:
        return int(MessageType.FIFO)
    return int(MessageType.PRIORITY) if kind == MessageType.NORMAL and system.HasField("priority") else kind


def _body(message: Any, system: Any, most_bytes: int) -> bytes:
    body: bytes = message.body
    if system.body_encoding == GZIP:
        unpacking = zlib.decompressobj(31)  # with gzip's head; consumers of 4.x know zlib's only
        try:
            body = unpacking.decompress(body, most_bytes + 1)
        except zlib.error as exc:
            raise Rejection(Code.MESSAGE_CORRUPTED, f"the body is not gzip: {exc}") from exc
    if not body:
        raise Rejection(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if len(body) > most_bytes:
        raise Rejection(Code.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {most_bytes}")
    return body


def _message_id(given: str) -> str:
    if not given or given.isspace():
        raise Rejection(Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
    return _plain(given, BAD_ID, "message id", MOST_ID_BYTES)


def _add_user_properties(properties: dict[str, str], given: Mapping[str, str]) -> int:
    """Add what the application set; return its bytes. Raises Rejection."""
    if not given:
        return 0
    if len(given) > MOST_PROPERTIES:
        raise Rejection(Code.MESSAGE_PROPERTIES_TOO_LARGE, f"too many user properties, max is {MOST_PROPERTIES}")
    size = 0
    for name, value in given.items():
        if name in RESERVED:
            raise Rejection(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}")
        if has_control(name) or has_control(value):
            raise Rejection(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "a property cannot contain control character")
        properties[name] = value
        size += len(name.encode()) + len(value.encode())
    return size


def _add_search_terms(properties: dict[str, str], system: Any) -> int:
    """Add tag and keys; return their bytes, names and blanks not counted, as Apache's proxy does. Raises Rejection."""
    size, tag, keys = 0, system.tag, system.keys
    if tag:
        if tag.isspace() or "|" in tag or has_control(tag):
            text = "tag cannot be the char sequence of whitespace, contain '|' or a control character"
            raise Rejection(Code.ILLEGAL_MESSAGE_TAG, text)
        properties[TAGS] = tag
        size = len(tag.encode())
    if keys:
        for each in keys:
            if (each and each.isspace()) or has_control(each):
                text = "key cannot be the char sequence of whitespace or contain a control character"
                raise Rejection(Code.ILLEGAL_MESSAGE_KEY, text)
            size += len(each.encode())
        properties[KEYS] = " ".join(keys)
    return size


def _ms_of(stamp: Any) -> int:
    """As ToMilliseconds of the library, which takes five times as long. Raises Rejection."""
    seconds, nanos = stamp.seconds, stamp.nanos
    if not (0 <= seconds <= LATEST_S and 0 <= nanos < 1_000_000_000):
        raise Rejection(Code.BAD_REQUEST, f"a time of {seconds} s and {nanos} ns is out of range")
    return int(seconds * 1000 + nanos // 1_000_000)


def _add_delivery(properties: dict[str, str], system: Any, topic: str) -> int:
    """Add group, delivery time and the marks of a half message; return the record's flags. Raises Rejection."""
    if group := system.message_group:
        group = _plain(group, Code.ILLEGAL_MESSAGE_GROUP, "message group", MOST_GROUP_BYTES - 1)
        if group.isspace():
            raise Rejection(Code.ILLEGAL_MESSAGE_GROUP, "message group cannot be the char sequence of whitespace")
        properties[GROUP] = group
    if system.HasField("priority"):
        if system.priority < 0:
            raise Rejection(Code.BAD_REQUEST, f"the priority is {system.priority}, it must be 0 or more")
        properties[PRIORITY] = str(system.priority)
    properties[PRODUCER_GROUP] = topic  # gRPC producers have no group: who is asked about a half sends to its topic
    if system.message_type == TRANSACTION:
        properties[HALF] = "true"
        if system.HasField("orphaned_transaction_recovery_duration"):
            recovery_s = system.orphaned_transaction_recovery_duration.seconds
            if not 0 <= recovery_s <= MOST_RECOVERY_S:
                text = f"the transaction recovery time is {recovery_s} s, max is {MOST_RECOVERY_S}"
                raise Rejection(Code.BAD_REQUEST, text)
            properties[IMMUNITY] = str(recovery_s)
        return TRANSACTION_PREPARED
    if system.HasField("delivery_timestamp"):
        properties[DELIVER_MS] = str(_ms_of(system.delivery_timestamp))
    return 0


def _plain(text: str, code: int, what: str, most_bytes: int) -> str:
    """Return a text that is short and has no control characters. Raises Rejection."""
    if len(text) * 4 > most_bytes and len(text.encode()) > most_bytes:
        raise Rejection(code, f"{what} exceed the max size {most_bytes}")
    if has_control(text):
        raise Rejection(code, f"{what} cannot contain control character")
    return text


def has_control(text: str) -> bool:
    """Tell whether a text has a control character, as Java's Character.isISOControl."""
    return not text.isprintable() and _CONTROL.search(text) is not None
