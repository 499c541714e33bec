"""OpenTelemetry for producers and consumers: spans by the messaging conventions, context in W3C `traceparent`.

Needs the package opentelemetry-api (extra `tracing`); nothing else here imports it. Hand `Telemetry()` to
ProducerOptions and ConsumerOptions. Source: OpenTelemetry semantic conventions 1.28, messaging spans, RocketMQ.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from opentelemetry import context, propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from netstack.client.errors import ClientError
from netstack.client.messages import Message, ReceivedMessage, SendResult

SYSTEM = {"messaging.system": "rocketmq"}


class Telemetry:
    """Spans of one application. Without a provider it uses the application's global one."""

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("netstack.client", tracer_provider=provider)

    def publishing(
        self, messages: Sequence[Message], group: str, client_id: str
    ) -> tuple[list[Message], Callable[[SendResult | None, ClientError | None], None]]:
        """Begin a span for one send; return the messages with the context inside, and what ends the span."""
        first = messages[0]
        attributes: dict[str, Any] = {
            **_common("send", first.topic, group, client_id),
            "messaging.rocketmq.message.type": _kind(first),
            "messaging.message.body.size": sum(len(each.body) for each in messages),
        }
        if first.tags:
            attributes["messaging.rocketmq.message.tag"] = first.tags
        if first.keys:
            attributes["messaging.rocketmq.message.keys"] = tuple(first.keys.split())
        if len(messages) > 1:
            attributes["messaging.batch.message_count"] = len(messages)
        span = self._tracer.start_span(f"send {first.topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        inside = [replace(each, properties={**carrier, **each.properties}) for each in messages]

        def ended(result: SendResult | None, error: ClientError | None) -> None:
            if result is not None:
                span.set_attribute("messaging.message.id", result.message_id)
                span.set_attribute("messaging.destination.partition.id", _partition(result.queue))
            if error is not None:
                _failed(span, error)
            span.end()

        return inside, ended

    @contextmanager
    def processing(self, messages: Sequence[ReceivedMessage], *, group: str, client_id: str) -> Iterator[None]:
        """A `process` span around the block, current for all it calls.

        One message continues its sender's trace; a batch begins one of its own. Both are linked to the senders' spans.
        """
        first, origins = messages[0], [self.context_of(each) for each in messages]
        links = [Link(trace.get_current_span(origin).get_span_context()) for origin in origins]
        attributes = {**_common("process", first.topic, group, client_id), **_of_received(messages)}
        with self._tracer.start_as_current_span(
            f"process {first.topic}",
            context=origins[0] if len(messages) == 1 else None,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=[link for link in links if link.context.is_valid],
        ) as span:
            done = False
            try:
                yield
                done = True
            finally:
                if not done:  # status and exception are recorded by the span itself
                    kind = sys.exc_info()[0]
                    span.set_attribute("error.type", kind.__name__ if kind else "_OTHER")

    @staticmethod
    def context_of(message: ReceivedMessage) -> context.Context:
        """Return the context that the sender put in, for a span of the application's own."""
        return propagate.extract(message.properties)


def _common(operation: str, topic: str, group: str, client_id: str) -> dict[str, Any]:
    return {
        **SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
        "messaging.client.id": client_id,
        ("messaging.consumer.group.name" if operation == "process" else "messaging.rocketmq.producer.group"): group,
    }


def _of_received(messages: Sequence[ReceivedMessage]) -> dict[str, Any]:
    if len(messages) > 1:
        return {"messaging.batch.message_count": len(messages)}
    message = messages[0]
    found: dict[str, Any] = {
        "messaging.message.id": message.message_id,
        "messaging.message.body.size": len(message.stored_body),
        "messaging.destination.partition.id": _partition(message.queue),
        "messaging.rocketmq.message.delivery_attempt": message.reconsume_times + 1,
    }
    if message.tags:
        found["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        found["messaging.rocketmq.message.keys"] = tuple(message.keys.split())
    return found


def _partition(queue: Any) -> str:
    return f"{queue.broker_name}:{queue.queue_id}"


def _kind(message: Message) -> str:
    if message.properties.get("TRAN_MSG") == "true":
        return "transaction"
    return "delay" if message.is_delayed else "normal"


def _failed(span: Span, error: BaseException) -> None:
    code = getattr(error, "code", 0)
    span.set_attribute("error.type", str(int(code)) if isinstance(code, int) and code else type(error).__name__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
