"""The contents of a heartbeat, parsed leniently: client libraries encode some fields differently.

C++ leaves empty sets out, sends enums as numbers and versions as text; Go sends tag hashes as text; fields that nobody
knows are ignored.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from appliance.broker.filter.subscriptions import TAG, Subscription, SubscriptionError, parse_subscription
from appliance.broker.tables.clients import LONGEST_GROUP, LONGEST_ID, Joining
from appliance.broker.tables.topics import MOST_QUEUES
from netstack.errors import ProtocolError, Refused
from netstack.wire import fastjson
from netstack.wire.codes import ResponseCode
from netstack.wire.ext import INT32
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import MessageQueue

CONSUME_TYPES: Final = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS: Final = ("BROADCASTING", "CLUSTERING")
CONSUME_FROM: Final = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
MOST_GROUPS, MOST_SUBSCRIPTIONS = 1000, 1000
MOST_BYTES: Final = 4 << 20  # five thousand topics of one client are 1.3 MB


class Heartbeat(NamedTuple):
    """One client with its producer and consumer groups."""

    client_id: str
    producers: tuple[str, ...]
    consumers: tuple[Joining, ...]


class QueueLockRequest(NamedTuple):
    """Which queues a client wants to lock or free."""

    group: str
    client_id: str
    queues: tuple[MessageQueue, ...]


def read_heartbeat(body: bytes) -> Heartbeat:
    """Return the contents of a heartbeat. Raises Refused when it has none."""
    content = _object(body, "heartbeat")
    client_id = str(content.get("clientID") or "")
    if not client_id:
        raise Refused(ResponseCode.SYSTEM_ERROR, "the heartbeat has no clientID")
    producers = [str(item.get("groupName") or "") for item in _objects(content.get("producerDataSet"))]
    consumers = [_joining(item) for item in _objects(content.get("consumerDataSet"))]
    if len(producers) + len(consumers) > MOST_GROUPS:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"{len(producers) + len(consumers)} groups in one heartbeat")
    return Heartbeat(client_id, tuple(filter(None, producers)), tuple(item for item in consumers if item.group))


def read_check(
    body: bytes, admit: Callable[[str, str], None] = lambda text, kind: None
) -> tuple[str, Subscription | None]:
    """Return group and subscription of CHECK_CLIENT_CONFIG. Raises Refused, SubscriptionError.

    `admit` is told the expression and its type before it is compiled.
    """
    content = _object(body, "client configuration") if body else {}
    given = content.get("subscriptionData")
    if not isinstance(given, dict):
        return str(content.get("group") or ""), None
    kind = given.get("expressionType") or TAG
    if kind == TAG:
        return str(content.get("group") or ""), _subscription(given)
    text = str(given.get("subString"))
    admit(text, str(kind))
    return str(content.get("group") or ""), parse_subscription(str(given.get("topic")), text, str(kind))


def read_lock(body: bytes) -> QueueLockRequest:
    """Return the contents of a lock or unlock request. Raises Refused."""
    content = _object(body, "lock request")
    queues = [queue for item in _objects(content.get("mqSet")) if (queue := _queue(item)) is not None]
    group, client_id = str(content.get("consumerGroup") or ""), str(content.get("clientId") or "")
    if not group or not client_id:
        raise Refused(ResponseCode.SYSTEM_ERROR, "the lock request has no consumerGroup or no clientId")
    if len(group) > LONGEST_GROUP or len(client_id) > LONGEST_ID:
        text = f"consumerGroup of {len(group)}, clientId of {len(client_id)} characters"
        raise Refused(ResponseCode.SYSTEM_ERROR, f"{text}, at most {LONGEST_GROUP} and {LONGEST_ID} are allowed")
    return QueueLockRequest(group, client_id, tuple(queues))


def lock_reply(queues: Iterable[MessageQueue], broker: str) -> bytes:
    """Return the body that names the granted queues."""
    granted = [{"brokerName": broker, "queueId": queue.queue_id, "topic": queue.topic} for queue in queues]
    return fastjson.dumps({"lockOKMQSet": granted})


def _joining(item: Mapping[str, Any]) -> Joining:
    given = _objects(item.get("subscriptionDataSet"))
    if len(given) > MOST_SUBSCRIPTIONS:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"{len(given)} subscriptions of one group in a heartbeat")
    return Joining(
        group=str(item.get("groupName") or ""),
        consume_type=_word(item.get("consumeType"), CONSUME_TYPES, "CONSUME_PASSIVELY"),
        message_model=_word(item.get("messageModel"), MESSAGE_MODELS, "CLUSTERING"),
        consume_from=_word(item.get("consumeFromWhere"), CONSUME_FROM, "CONSUME_FROM_LAST_OFFSET"),
        subscriptions=tuple(_subscription(subscription) for subscription in given if subscription.get("topic")),
        unit=bool(item.get("unitMode", False)),
    )


def _subscription(item: Mapping[str, Any]) -> Subscription:
    """Return a subscription as the client made it; its hashes are taken, or made when it sends tags alone."""
    topic, kind = str(item.get("topic") or ""), str(item.get("expressionType") or TAG)
    text = str(item.get("subString") or "")
    try:
        version = int(item.get("subVersion") or 0)
        codes = frozenset(_hash_code(code) for code in item.get("codeSet") or ())
        tags = tuple(str(tag) for tag in item.get("tagsSet") or ())
    except (TypeError, ValueError, OverflowError) as exc:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"subscription of {topic}: {exc}") from exc
    if kind == TAG and not codes and text not in ("", "*"):
        try:
            made = parse_subscription(topic, text, TAG, version)
            codes, tags = made.codes, made.tags
        except SubscriptionError:
            pass  # names no tag: everything, as RocketMQ does
    return Subscription(topic, text, kind, version, tags, codes, bool(item.get("classFilterMode", False)))


def _hash_code(value: Any) -> int:
    """Return a tag's hash. Raises ValueError beyond 32 bits: larger numbers can be chosen to collide in a set."""
    if (code := int(value)) not in INT32:
        raise ValueError(f"a tag's hash of more than 32 bits: {str(value)[:40]}")
    return code


def _queue(item: Mapping[str, Any]) -> MessageQueue | None:
    topic, queue_id = item.get("topic"), item.get("queueId")
    if not isinstance(topic, str) or not isinstance(queue_id, int) or len(topic) > LONGEST_GROUP:
        return None
    return MessageQueue(topic, queue_id) if 0 <= queue_id < MOST_QUEUES else None


def _word(value: object, words: tuple[str, ...], otherwise: str) -> str:
    if isinstance(value, int) and 0 <= value < len(words):
        return words[value]
    return value if isinstance(value, str) and value in words else otherwise


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _object(body: bytes, what: str) -> dict[str, Any]:
    if len(body) > MOST_BYTES:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the {what} has {len(body)} bytes, at most {MOST_BYTES} are allowed")
    try:
        content = fastjson.loads(body)
    except ProtocolError as exc:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the {what} cannot be read: {exc}") from exc
    if not isinstance(content, dict):
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the {what} is not a JSON object")
    return content
