"""Subscriptions of consumer groups: expressions, tag hashes, and the predicates made of them.

Tags are filtered by hash, as RocketMQ does; clients look at the real tags again, so collisions cost bytes only.
"""

from collections.abc import Callable, Iterator, Mapping
from struct import Struct
from struct import error as StructError
from typing import Final

from storage_driver.named_tuple import NamedTuple
from storage_driver.record import BORN_V6, STORE_V6, decode_properties, java_hash

TAG, SQL92 = "TAG", "SQL92"
EVERYTHING: Final = "*"
MOST_TAGS_TEXT: Final = 32_768  # characters, as of an SQL92 expression
HOSTS_V6: Final = BORN_V6 | STORE_V6
BODY_AT: Final = {0: 88, BORN_V6: 100, STORE_V6: 100, HOSTS_V6: 112}  # where the body of a record begins
SHORT_TOPIC: Final = 0xA7  # magic of records whose topic has one length byte
_INT, _SHORT = Struct(">i"), Struct(">H")

AcceptsTags = Callable[[int], bool]
AcceptsRecord = Callable[[memoryview], bool]


class SubscriptionError(ValueError):
    """An invalid subscription; `kind_unknown` when its expression type does not exist."""

    def __init__(self, reason: str, *, kind_unknown: bool = False) -> None:
        super().__init__(reason)
        self.kind_unknown = kind_unknown


class Subscription(NamedTuple):
    """A topic and its filter; `codes` are the tags' hashes, empty for everything."""

    topic: str
    text: str = EVERYTHING
    kind: str = TAG
    version: int = 0
    tags: tuple[str, ...] = ()
    codes: frozenset[int] = frozenset()
    class_filter: bool = False

    @property
    def by_tags(self) -> bool:
        return self.kind == TAG

    @property
    def everything(self) -> bool:
        """Whether each message passes without a look at it."""
        return self.class_filter or (self.by_tags and not self.codes)


def parse_subscription(topic: str, text: str | None, kind: str | None = None, version: int = 0) -> Subscription:
    """Return the subscription a pull carries. Raises SubscriptionError.

    Source: RocketMQ 4.9.8 FilterAPI.build and buildSubscriptionData.
    """
    kind = kind or TAG
    if kind == SQL92:
        check_sql(text or "")
        return Subscription(topic, text or "", SQL92, version)
    if kind != TAG:
        raise SubscriptionError(f"expression type {kind!r}, use {TAG} or {SQL92}", kind_unknown=True)
    if text is None or text in ("", EVERYTHING):
        return Subscription(topic, EVERYTHING, TAG, version)
    if len(text) > MOST_TAGS_TEXT:
        raise SubscriptionError(f"tags of {len(text)} characters, at most {MOST_TAGS_TEXT} are allowed")
    tags = tuple(dict.fromkeys(part for piece in text.split("||") if (part := piece.strip())))
    if not tags:
        raise SubscriptionError(f"subscription {text[:80]!r} has no tag")
    return Subscription(topic, text, TAG, version, tags, frozenset(map(java_hash, tags)))


def check_sql(text: str) -> None:
    """Raise SubscriptionError unless the expression compiles."""
    _compiled(text)


def _compiled(text: str) -> Callable[[Mapping[str, str]], bool]:
    from appliance.broker.filter.sql92 import ExpressionError, compile_expression  # most boxes filter by tags alone

    try:
        return compile_expression(text)
    except ExpressionError as exc:
        raise SubscriptionError(str(exc)) from exc


def tags_predicate(subscription: Subscription) -> AcceptsTags | None:
    """Return what decides by the tag hash of a queue entry, None when every hash passes."""
    if subscription.everything or not subscription.by_tags:
        return None
    return subscription.codes.__contains__


def record_predicate(subscription: Subscription) -> AcceptsRecord | None:
    """Return what decides by a whole record, None when tags decide. Raises SubscriptionError."""
    if subscription.everything or subscription.by_tags:
        return None
    matches = _compiled(subscription.text)
    return lambda record: matches(properties_of(record))


def split_records(chunk: bytes) -> Iterator[memoryview]:
    """Yield each whole record of a piece of the log that begins and ends with one."""
    view, at = memoryview(chunk), 0
    while at < len(chunk):
        size = int.from_bytes(chunk[at : at + 4], "big")
        yield view[at : at + size]
        at += size


def properties_of(record: memoryview) -> Mapping[str, str]:
    """Return the properties of a whole record, found from its lengths; none of a damaged one, so that none takes it."""
    try:
        body_at = BODY_AT[record[39] & HOSTS_V6]  # low byte of sys_flag
        topic_at = body_at + _INT.unpack_from(record, body_at - 4)[0]
        if record[7] == SHORT_TOPIC:  # last byte of the magic
            at = topic_at + 1 + record[topic_at] + 2
        else:
            at = topic_at + 2 + _SHORT.unpack_from(record, topic_at)[0] + 2
        return decode_properties(bytes(record[at:]))
    except (StructError, IndexError):
        return {}
