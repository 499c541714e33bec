"""The headers that come with every message: of sends and their replies, and of pulls.

Plain classes with constructors written out, which the compiler turns into C structures; `headers` has the others.
Source: RocketMQ 4.9.8 protocol.header.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from netstack.errors import Refused
from netstack.wire.ext import INT32, INT64, bool_text, malformed, missing, to_bool

_V1: Final = (
    *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag"),
    *("properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch", "bname"),
)
_V2: Final = tuple("abcdefghijklmn")
_PULL_NUMBERS: Final = (
    ("queueId", "maxMsgNums", "sysFlag", "maxMsgBytes"),
    ("queueOffset", "commitOffset", "suspendTimeoutMillis", "subVersion"),
    ("maxMsgBytes",),
)


class SendMessageHeader:
    """10, 310, 320, 324, 325. `properties` is the text as sent: name 0x01 value 0x02 …"""

    WIRE: ClassVar = _V1  # names of the fields, in their order; _V2 are the one-letter ones
    REQUIRED: ClassVar = 8  # the first of them

    __slots__ = (
        "batch",
        "born_ms",
        "broker_name",
        "default_queue_count",
        "default_topic",
        "flag",
        "max_reconsume_times",
        "producer_group",
        "properties",
        "queue_id",
        "reconsume_times",
        "sys_flag",
        "topic",
        "unit_mode",
    )

    def __init__(
        self,
        producer_group: str,
        topic: str,
        default_topic: str,
        default_queue_count: int,
        queue_id: int,
        sys_flag: int,
        born_ms: int,
        flag: int,
        properties: str = "",
        reconsume_times: int = 0,
        unit_mode: bool = False,
        max_reconsume_times: int | None = None,
        batch: bool = False,
        broker_name: str | None = None,
    ) -> None:
        self.producer_group = producer_group
        self.topic = topic
        self.default_topic = default_topic
        self.default_queue_count = default_queue_count
        self.queue_id = queue_id
        self.sys_flag = sys_flag
        self.born_ms = born_ms
        self.flag = flag
        self.properties = properties
        self.reconsume_times = reconsume_times
        self.unit_mode = unit_mode
        self.max_reconsume_times = max_reconsume_times
        self.batch = batch
        self.broker_name = broker_name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SendMessageHeader) and self.to_ext() == other.to_ext()

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> "SendMessageHeader":
        """Return the header, from the one-letter names or the long ones, whichever are there. Raises Refused."""
        names = _V2
        if "b" not in ext and "topic" in ext:
            names = _V1
            ext = {short: ext[long] for short, long in zip(_V2, _V1, strict=True) if long in ext}
        get = ext.get
        try:
            count, queue_id, sys_flag = int(ext["d"]), int(ext["e"]), int(ext["f"])
            born_ms, flag = int(ext["g"]), int(ext["h"])
            reconsumed, limit = int(get("j") or 0), get("l") or None
            if (count | queue_id | sys_flag | flag | reconsumed) >> 31 or born_ms >> 63 or limit is not None:
                for number in (count, queue_id, sys_flag, flag, reconsumed, int(limit or 0)):
                    if number not in INT32:
                        raise ValueError
                if born_ms not in INT64:
                    raise ValueError
            fixed = (ext["a"], ext["b"], ext["c"], count, queue_id, sys_flag, born_ms, flag, get("i") or "", reconsumed)
        except KeyError as absent:
            raise missing(cls, names[_V2.index(absent.args[0])]) from None
        except ValueError:
            spelled = {names[_V2.index(short)]: text for short, text in ext.items() if short in _V2}
            narrow, optional = [names[at] for at in (3, 4, 5, 7, 9, 11)], (names[9], names[11])
            raise _number_at_fault(cls, spelled, narrow, [names[6]], optional) from None
        limited = None if limit is None else int(limit)
        return cls(*fixed, get("k") == "true", limited, get("m") == "true", get("n"))

    def to_ext(self) -> dict[str, str]:
        """Return the one-letter form."""
        values = (self.producer_group, self.topic, self.default_topic, str(self.default_queue_count))
        more = (str(self.queue_id), str(self.sys_flag), str(self.born_ms), str(self.flag), self.properties)
        ext = dict(
            zip("abcdefghijk", (*values, *more, str(self.reconsume_times), bool_text(self.unit_mode)), strict=True)
        )
        if self.max_reconsume_times is not None:
            ext["l"] = str(self.max_reconsume_times)
        ext["m"] = bool_text(self.batch)
        if self.broker_name is not None:
            ext["n"] = self.broker_name
        return ext


def _check_widths(narrow: Iterable[int], wide: Iterable[int]) -> None:
    """Raise ValueError for a number that needs more than 32 or 64 bits."""
    for numbers, allowed in ((narrow, INT32), (wide, INT64)):
        if not all(number in allowed for number in numbers):
            raise ValueError


def _number_at_fault(
    header: type, ext: Mapping[str, str], narrow: Iterable[str], wide: Iterable[str], optional: Iterable[str]
) -> Refused:
    """Return the refusal that names the first of these fields which is no number of its width, or empty."""
    name = text = ""
    for name, allowed in [*((name, INT32) for name in narrow), *((name, INT64) for name in wide)]:
        text = ext.get(name, "")
        if not text and name in optional:
            continue
        if not text:
            return missing(header, name)
        try:
            if int(text) not in allowed:
                break
        except ValueError:
            break
    return malformed(header, name, text, "a number within its range")


class SendMessageReply:
    """Every send reply with code 0, 10, 11 or 12 carries it; Java reads it without a null check."""

    __slots__ = ("message_id", "queue_id", "queue_offset", "region", "trace_on", "transaction_id")

    def __init__(
        self,
        message_id: str,
        queue_id: int,
        queue_offset: int,
        transaction_id: str | None = None,
        region: str = "DefaultRegion",
        trace_on: bool = True,
    ) -> None:
        self.message_id = message_id
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.transaction_id = transaction_id
        self.region = region
        self.trace_on = trace_on

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SendMessageReply) and self.to_ext() == other.to_ext()

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> "SendMessageReply":
        try:
            queue_id, queue_offset = int(ext["queueId"]), int(ext["queueOffset"])
            message_id = ext["msgId"]
        except KeyError as absent:
            raise missing(cls, absent.args[0]) from None
        except ValueError:
            raise malformed(cls, "queueId or queueOffset", str(ext), "a number") from None
        trace_on = to_bool(ext.get("TRACE_ON", ""))
        return cls(message_id, queue_id, queue_offset, ext.get("transactionId"), ext.get("MSG_REGION", ""), trace_on)

    def to_ext(self) -> dict[str, str]:
        ext = {
            "msgId": self.message_id,
            "queueId": str(self.queue_id),
            "queueOffset": str(self.queue_offset),
            "MSG_REGION": self.region,
            "TRACE_ON": bool_text(self.trace_on),
        }
        if self.transaction_id is not None:
            ext["transactionId"] = self.transaction_id
        return ext


class PullMessageHeader:
    """11 and 361."""

    WIRE: ClassVar = (
        *("consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset"),
        *("suspendTimeoutMillis", "subVersion", "subscription", "expressionType", "maxMsgBytes"),
    )
    REQUIRED: ClassVar = 9

    COMMIT_OFFSET: ClassVar = 1
    SUSPEND: ClassVar = 2
    SUBSCRIPTION: ClassVar = 4
    CLASS_FILTER: ClassVar = 8
    LITE_PULL: ClassVar = 16

    __slots__ = (
        "commit_offset",
        "consumer_group",
        "expression_type",
        "max_bytes",
        "max_count",
        "queue_id",
        "queue_offset",
        "sub_version",
        "subscription",
        "suspend_ms",
        "sys_flag",
        "topic",
    )

    def __init__(
        self,
        consumer_group: str,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        sys_flag: int,
        commit_offset: int,
        suspend_ms: int,
        sub_version: int,
        subscription: str | None = None,
        expression_type: str | None = None,
        max_bytes: int | None = None,
    ) -> None:
        self.consumer_group = consumer_group
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.max_count = max_count
        self.sys_flag = sys_flag
        self.commit_offset = commit_offset
        self.suspend_ms = suspend_ms
        self.sub_version = sub_version
        self.subscription = subscription
        self.expression_type = expression_type
        self.max_bytes = max_bytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PullMessageHeader) and self.to_ext() == other.to_ext()

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> "PullMessageHeader":
        """Return the header. Raises Refused naming the field at fault."""
        get = ext.get
        try:
            queue_id, max_count, sys_flag = int(ext["queueId"]), int(ext["maxMsgNums"]), int(ext["sysFlag"])
            queue_offset, commit_offset = int(ext["queueOffset"]), int(ext["commitOffset"])
            suspend_ms, sub_version, max_bytes = (
                int(ext["suspendTimeoutMillis"]),
                int(ext["subVersion"]),
                get("maxMsgBytes"),
            )
            narrow, wide = queue_id | max_count | sys_flag, queue_offset | commit_offset | suspend_ms | sub_version
            if narrow >> 31 or wide >> 63 or max_bytes:  # most have none and are not negative
                narrower = (queue_id, max_count, sys_flag, int(max_bytes or 0))
                _check_widths(narrower, (queue_offset, commit_offset, suspend_ms, sub_version))
            fixed = (ext["consumerGroup"], ext["topic"], queue_id, queue_offset, max_count, sys_flag, commit_offset)
        except KeyError as absent:
            raise missing(cls, absent.args[0]) from None
        except ValueError:
            raise _number_at_fault(cls, ext, *_PULL_NUMBERS) from None
        expression, kind = get("subscription"), get("expressionType") or None
        return cls(*fixed, suspend_ms, sub_version, expression, kind, int(max_bytes) if max_bytes else None)

    def to_ext(self) -> dict[str, str]:
        ext = {
            "consumerGroup": self.consumer_group,
            "topic": self.topic,
            "queueId": str(self.queue_id),
            "queueOffset": str(self.queue_offset),
            "maxMsgNums": str(self.max_count),
            "sysFlag": str(self.sys_flag),
            "commitOffset": str(self.commit_offset),
            "suspendTimeoutMillis": str(self.suspend_ms),
            "subVersion": str(self.sub_version),
        }
        if self.subscription is not None:
            ext["subscription"] = self.subscription
        if self.expression_type is not None:
            ext["expressionType"] = self.expression_type
        if self.max_bytes is not None:
            ext["maxMsgBytes"] = str(self.max_bytes)
        return ext
