"""Message trace: what was sent and consumed, as messages on a trace topic. Source: RocketMQ 4.9.8 TraceDataEncoder."""

import logging
from collections import deque
from collections.abc import Sequence

import trio

from netstack.client.errors import ClientError
from netstack.client.instance import Instance
from netstack.client.messages import Message, ReceivedMessage, SendResult
from netstack.client.produce.sending import Sender
from netstack.client.send_request import EncodedRequest, ProducerOptions
from netstack.client.text import decode_properties
from netstack.wire.json_body import MessageQueue

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
WAITING, LOT, LOT_BYTES, OLDEST_S = 1024, 100, 128_000, 0.5
_log = logging.getLogger("netstack.client")


def record(*fields: object) -> str:
    """Return one trace record: fields joined by 0x01, ended by 0x02."""
    return "\x01".join("null" if field is None else str(field) for field in fields) + "\x02"


def truth(value: bool) -> str:
    return "true" if value else "false"


class Tracer:
    """Collects records and sends them in lots; drops what overflows and never disturbs the traced clients."""

    def __init__(self, instance: Instance, group: str, topic: str | None, kind: str = "PRODUCE") -> None:
        self._instance, self._group, self._topic = instance, group, topic
        self._sender = Sender(instance, f"_INNER_TRACE_PRODUCER-{group}-{kind}-1", ProducerOptions(timeout_s=5.0))
        self._records: deque[tuple[tuple[str, ...], str]] = deque()
        self._more = trio.Event()
        self.dropped = 0

    @property
    def on(self) -> bool:
        return self._topic is not None

    def note(self, keys: Sequence[str], text: str) -> None:
        """Queue one record under the ids it is to be found by."""
        if len(self._records) >= WAITING:
            self.dropped += 1
            return
        self._records.append((tuple(keys), text))
        self._more.set()

    def sent(self, out: EncodedRequest, result: SendResult | None, queue: MessageQueue, took_s: float) -> None:
        """Note an attempt to send."""
        if self._topic is None or out.topic == self._topic or (result is not None and not result.trace_on):
            return
        properties = decode_properties(out.properties)
        kind = 1 if out.sys_flag & 0xC else 3 if "DELAY" in properties else 0
        began_ms = self._instance.now_ms() - int(took_s * 1000)
        region = result.region if result else "DefaultRegion"
        message_id, keys = ",".join(out.message_ids), properties.get("KEYS", "")
        address = self._instance.addresses_of(queue.broker_name).get(0, queue.broker_name)
        text = record(
            *("Pub", began_ms, region, self._group, out.topic, message_id, properties.get("TAGS", ""), keys),
            *(address, len(out.body), int(took_s * 1000), kind, result.offset_message_id if result else None),
            truth(result is not None and result.status == "SEND_OK"),
        )
        self.note((*out.message_ids, *keys.split()), text)

    def ended(self, result: SendResult, verdict: str, *, from_check: bool) -> None:
        """Note the verdict on a half message."""
        if self._topic is None:
            return
        state = {"COMMIT": "COMMIT_MESSAGE", "ROLLBACK": "ROLLBACK_MESSAGE"}.get(verdict, "UNKNOW")
        address = self._instance.addresses_of(result.queue.broker_name).get(0, "")
        text = record(
            *("EndTransaction", self._instance.now_ms(), result.region, self._group, result.queue.topic),
            *(result.message_id, "", "", address, 2, result.message_id, state, truth(from_check)),
        )
        self.note((result.message_id,), text)

    def consuming(self, messages: Sequence[ReceivedMessage], request_id: str) -> None:
        """Note that messages are handed to the application."""
        if self._topic is None:
            return
        for message in messages:
            if message.topic == self._topic or message.properties.get("TRACE_ON") == "false":
                continue
            region = message.properties.get("MSG_REGION") or "DefaultRegion"
            text = record(
                *("SubBefore", self._instance.now_ms(), region, self._group, request_id, message.message_id),
                *(message.reconsume_times, message.keys),
            )
            self.note((message.message_id, *message.keys.split()), text)

    def consumed(self, messages: Sequence[ReceivedMessage], request_id: str, took_ms: int, *, failed: bool) -> None:
        """Record the application's outcome."""
        if self._topic is None:
            return
        for message in messages:
            if message.topic == self._topic or message.properties.get("TRACE_ON") == "false":
                continue
            text = record(
                *("SubAfter", request_id, message.message_id, took_ms // max(1, len(messages)), truth(not failed)),
                *(message.keys, 4 if failed else 0, self._instance.now_ms(), self._group),
            )
            self.note((message.message_id, *message.keys.split()), text)

    async def run(self) -> None:
        """Send lots until cancelled."""
        while True:
            await self._more.wait()
            if len(self._records) < LOT:
                await trio.sleep(OLDEST_S)
            await self.flush()
            self._more = trio.Event()
            if self._records:
                self._more.set()

    async def flush(self) -> None:
        """Send all that waits; what cannot be sent is dropped and logged."""
        while self._records and self._topic is not None:
            keys: dict[str, None] = {}
            texts: list[str] = []
            size = 0
            while self._records and len(texts) < LOT and size < LOT_BYTES:
                more, text = self._records.popleft()
                keys.update(dict.fromkeys(more))
                texts.append(text)
                size += len(text)
            lot = Message(self._topic, "".join(texts).encode("utf-8", "replace"), keys=" ".join(keys))
            try:
                await self._sender.send(self._sender.make(lot))
            except ClientError as error:
                self.dropped += len(texts)
                _log.warning("event=trace_dropped records=%d reason=%s", len(texts), error)
