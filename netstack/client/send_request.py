"""From a message to a request, and from an answer to a result. Source: RocketMQ 4.9.8 DefaultMQProducerImpl."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from types import TracebackType
from typing import Protocol

from netstack.client.compression import compressed
from netstack.client.errors import BadAnswer, BrokerRefused, ClientError, MessageRejected
from netstack.client.messages import (
    MAX_BODY,
    TRANSACTION_PREPARED,
    Message,
    SendResult,
    check_batch,
    check_message,
    encode_batch,
    properties_text,
)
from netstack.client.routes import TEMPLATE_TOPIC
from netstack.client.text import RETRY
from netstack.wire import fastjson
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand, encode_command, request
from netstack.wire.json_body import MessageQueue
from netstack.wire.message_headers import SendMessageHeader

STATUSES: dict[int, str] = {
    ResponseCode.SUCCESS: "SEND_OK",
    ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    ResponseCode.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
}
LANGUAGE = "PYTHON"
_LENGTHS = Struct(">ii")
_PLACE, _OPAQUE = "\ue000\ue001", 2_000_000_011  # where a template's values go: nothing else looks like these
RETRIED_ELSEWHERE = frozenset((17, 14, 1, 16, 204, 205))
Ended = Callable[[SendResult | None, ClientError | None], None]


class SendSpans(Protocol):
    """What `telemetry.Telemetry` does for a producer: begins a span, puts its context in, says how to end it."""

    def publishing(
        self, messages: Sequence[Message], group: str, client_id: str, /
    ) -> tuple[Sequence[Message], Ended]: ...


class EndsOnFailure:
    """A block of a send: left by an error or a cancellation it tells `ended`, else whoever has the result does."""

    __slots__ = ("_ended",)

    def __init__(self, ended: Ended | None) -> None:
        self._ended = ended

    def __enter__(self) -> None:
        """Nothing has failed yet."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and self._ended is not None:
            self._ended(None, error if isinstance(error, ClientError) else None)


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """Options of a producer. `timeout_s` covers all attempts together; `window` limits `submit`'s sends in flight."""

    timeout_s: float = 3.0
    retries: int = 2
    retry_when_not_stored: bool = False
    max_body: int = MAX_BODY
    compress_from: int = 4096
    compress_level: int = 5
    template: str = TEMPLATE_TOPIC
    new_topic_queues: int = 4
    avoid_slow_brokers: bool = False
    window: int = 256
    window_bytes: int = 16 * 1024 * 1024
    trace_topic: str | None = None
    telemetry: SendSpans | None = None


@dataclass(slots=True)
class EncodedRequest:
    """Encoded once, sent as often as needed."""

    topic: str
    code: int
    body: bytes
    properties: str
    message_ids: tuple[str, ...]
    sys_flag: int = 0
    flag: int = 0
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
    ended: Ended | None = None  # told once of the result, or of the error after all attempts

    def frame(self, group: str, queue: MessageQueue, options: ProducerOptions, now_ms: int, opaque: int) -> bytes:
        """Return the whole unsigned request to one queue: what `header` says, at a third of the time."""
        key = (int(self.code), group, queue, options.template, options.new_topic_queues)
        template = None if self.reconsume_times or self.max_reconsume_times is not None else _header_template(*key)
        if template is None:
            ext = self.header(group, queue, options, now_ms)
            command = request(self.code, ext, self.body, language=LANGUAGE)
            command.opaque = opaque
            return encode_command(command)
        body = self.body
        header = template % (self.sys_flag, now_ms, self.flag, fastjson.dumps(self.properties), opaque)
        size = len(header)
        return _LENGTHS.pack(4 + size + len(body), size) + header + body

    def header(self, group: str, queue: MessageQueue, options: ProducerOptions, now_ms: int) -> dict[str, str]:
        """Return the ext fields of the request to one queue."""
        batch = self.code == RequestCode.SEND_BATCH_MESSAGE
        ext = _fixed_fields(group, queue, options.template, options.new_topic_queues, batch).copy()
        ext["f"], ext["g"], ext["h"], ext["i"] = str(self.sys_flag), str(now_ms), str(self.flag), self.properties
        if self.reconsume_times:
            ext["j"] = str(self.reconsume_times)
        if self.max_reconsume_times is not None:
            ext["l"] = str(self.max_reconsume_times)
        return ext


@lru_cache(1024)
def _fixed_fields(group: str, queue: MessageQueue, template: str, queue_count: int, batch: bool) -> dict[str, str]:
    """Return the header fields that all messages to a queue share: copying is 5 µs cheaper than making."""
    header = SendMessageHeader(group, queue.topic, template, queue_count, queue.queue_id, 0, 0, 0)
    header.batch, header.broker_name = batch, queue.broker_name
    return header.to_ext()


@lru_cache(1024)
def _header_template(code: int, group: str, queue: MessageQueue, template: str, queue_count: int) -> bytes | None:
    """Return the header of requests to a queue as a format of sys_flag, born ms, flag, properties in JSON, opaque.

    None when the fixed fields are such that the places of these cannot be told.
    """
    ext = _fixed_fields(group, queue, template, queue_count, code == RequestCode.SEND_BATCH_MESSAGE)
    command = request(code, {**ext, **dict.fromkeys("fghi", _PLACE)}, language=LANGUAGE)
    command.opaque = _OPAQUE
    parts = encode_command(command)[8:].replace(b"%", b"%%").split(fastjson.dumps(_PLACE))
    if len(parts) != 5:
        return None
    before, _, behind = parts[4].rpartition(b"%d" % _OPAQUE)
    return b'"%d"'.join(parts[:4]) + b"%b" + before + b"%d" + behind


def outgoing(message: Message, message_id: str, options: ProducerOptions) -> EncodedRequest:
    """Return one message ready to be sent. Raises MessageRejected."""
    check_message(message, options.max_body)
    body, sys_flag = message.body, 0
    if len(body) >= options.compress_from:
        body, sys_flag = compressed(body, options.compress_from, options.compress_level)
    code, topic = RequestCode.SEND_MESSAGE_V2, message.topic
    if message.is_bare and not topic.startswith(RETRY):
        text = f"UNIQ_KEY\x01{message_id}\x02WAIT\x01true\x02"
        return EncodedRequest(topic, code, body, text, (message_id,), sys_flag, message.flag)
    properties = message.property_map(message_id)
    if properties.get("TRAN_MSG") == "true":
        sys_flag |= TRANSACTION_PREPARED
    if properties.get("MSG_TYPE") == "reply":
        code = RequestCode.SEND_REPLY_MESSAGE_V2
    text = properties_text(properties)
    out = EncodedRequest(topic, code, body, text, (properties["UNIQ_KEY"],), sys_flag, message.flag)
    if topic.startswith(RETRY):
        _move_retry_fields(properties, out)
    return out


def _move_retry_fields(properties: Mapping[str, str], out: EncodedRequest) -> None:
    if "RECONSUME_TIME" in properties:
        out.reconsume_times = _count(properties, "RECONSUME_TIME")
    if "MAX_RECONSUME_TIMES" in properties:
        out.max_reconsume_times = _count(properties, "MAX_RECONSUME_TIMES")


def _count(properties: Mapping[str, str], name: str) -> int:
    try:
        return int(properties[name])
    except ValueError as error:
        raise MessageRejected(f"property {name} is {properties[name]!r}, a retry needs a whole number") from error


def outgoing_batch(messages: Sequence[Message], message_ids: Sequence[str], options: ProducerOptions) -> EncodedRequest:
    """Return several messages as one batch. Raises MessageRejected."""
    check_batch(messages)
    for message in messages:
        check_message(message, options.max_body)
    body = encode_batch(zip(messages, message_ids, strict=True))
    wait = "true" if messages[0].wait_stored else "false"
    ids = tuple(message.properties.get("UNIQ_KEY", made) for message, made in zip(messages, message_ids, strict=True))
    code = RequestCode.SEND_BATCH_MESSAGE
    return EncodedRequest(messages[0].topic, code, body, f"WAIT\x01{wait}\x02", ids)


def send_result(answer: RemotingCommand, out: EncodedRequest, queue: MessageQueue, address: str) -> SendResult:
    """Return the result in an answer. Raises BrokerRefused unless it is a success."""
    status = STATUSES.get(answer.code)
    if status is None:
        server = f"{queue.broker_name} ({address})"
        raise BrokerRefused(server, answer.code, answer.remark, f"message for {out.topic}")
    ext = answer.ext
    try:
        queue_id = int(ext["queueId"])
        placed = queue if queue_id == queue.queue_id else queue._replace(queue_id=queue_id)
        queue_offset, offset_id = int(ext["queueOffset"]), ext["msgId"]
    except (KeyError, ValueError) as error:
        raise BadAnswer(
            f"{queue.broker_name} ({address})", f"message for {out.topic}", f"queue or offset missing: {error}"
        ) from error
    ids = out.message_ids
    return SendResult(
        status,
        ids[0] if len(ids) == 1 else ",".join(ids),
        offset_id,
        placed,
        queue_offset,
        ext.get("transactionId"),
        ext.get("MSG_REGION") or "DefaultRegion",
        ext.get("TRACE_ON") != "false",
        ext.get("recallHandle"),
        ids,
    )
