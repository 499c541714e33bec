"""OpenTelemetry: what the real SDK records of sends and consumptions, and how one trace spans both."""

import subprocess
import sys
from pathlib import Path

import pytest
import trio

pytest.importorskip("opentelemetry.sdk", reason="needs opentelemetry-sdk: make setup")
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from netstack.client import (
    ConsumerOptions,
    Message,
    MessageRejected,
    Producer,
    ProducerOptions,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
)
from netstack.client.telemetry import Telemetry
from tests.appliance.box import Box, running_box

pytestmark = pytest.mark.slow


class Recorded:
    """A provider of the application's own, and the spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.telemetry = Telemetry(self.provider)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


async def consume(box: Box, recorded: Recorded, topic: str, count: int, *, fail: bool = False) -> list[int]:
    """Consume so many messages with a handler; return the trace that was current in each call."""
    current: list[int] = []
    enough = trio.Event()

    async def handle(message: ReceivedMessage) -> None:
        await trio.lowlevel.checkpoint()
        current.append(trace.get_current_span().get_span_context().trace_id)
        if len(current) >= count:
            enough.set()
        if fail:
            raise ValueError("not today")

    options = ConsumerOptions(start_from=StartFrom.FIRST, telemetry=recorded.telemetry)
    namesrv = f"127.0.0.1:{box.namesrv_port}"
    async with PushConsumer("CG", namesrv, topics={topic: "*"}, options=options) as consumer, trio.open_nursery() as n:
        n.start_soon(consumer.run, handle)
        with trio.fail_after(60):
            await enough.wait()
            while len(recorded.spans(f"process {topic}")) < count:  # noqa: ASYNC110 the SDK has no event
                await trio.sleep(0.01)
        n.cancel_scope.cancel()
    return current


async def test_one_trace_goes_from_the_sender_through_the_broker_into_the_handler(tmp_path: Path) -> None:
    recorded = Recorded()
    async with running_box(tmp_path) as box:
        options = ProducerOptions(telemetry=recorded.telemetry)
        async with Producer("PG", f"127.0.0.1:{box.namesrv_port}", options=options) as producer:
            with recorded.provider.get_tracer("test").start_as_current_span("order"):
                result = await producer.send(Message("T", b"hello", tags="a", keys="k1 k2"))
            pending = await producer.submit(Message("T", b"later"))
            await pending.wait()
            await producer.send_batch([Message("T", b"1"), Message("T", b"2")])
        current = await consume(box, recorded, "T", 4)
    sent, submitted, batch = recorded.spans("send T")
    (order,) = recorded.spans("order")
    assert sent.kind is SpanKind.PRODUCER
    assert sent.parent is not None
    assert sent.parent.span_id == order.context.span_id
    said = dict(sent.attributes or {})
    assert {name: said[f"messaging.{name}"] for name in ("system", "operation.type", "destination.name")} == {
        "system": "rocketmq",
        "operation.type": "send",
        "destination.name": "T",
    }
    assert said["messaging.message.id"] == result.message_id
    assert said["messaging.rocketmq.message.keys"] == ("k1", "k2")
    assert dict(batch.attributes or {})["messaging.batch.message_count"] == 2
    processed = {dict(span.attributes or {})["messaging.message.id"]: span for span in recorded.spans("process T")}
    consumed = processed[result.message_id]
    assert consumed.parent is not None
    assert (consumed.context.trace_id, consumed.parent.span_id) == (sent.context.trace_id, sent.context.span_id)
    assert consumed.kind is SpanKind.CONSUMER
    assert dict(consumed.attributes or {})["messaging.consumer.group.name"] == "CG"
    expected = [sent, submitted, batch, batch]
    assert sorted(current) == sorted(span.context.trace_id for span in expected)


async def test_a_failed_handler_and_a_refused_message_are_errors_in_their_spans(tmp_path: Path) -> None:
    recorded = Recorded()
    async with running_box(tmp_path) as box:
        options = ProducerOptions(telemetry=recorded.telemetry)
        async with Producer("PG", f"127.0.0.1:{box.namesrv_port}", options=options) as producer:
            await producer.send(Message("F", b"x"))
            with pytest.raises(MessageRejected):
                await producer.send(Message("F", b""))
        await consume(box, recorded, "F", 1, fail=True)
    assert [span.status.status_code for span in recorded.spans("send F")] == [StatusCode.UNSET, StatusCode.ERROR]
    (failed,) = recorded.spans("process F")
    assert failed.status.status_code is StatusCode.ERROR
    assert dict(failed.attributes or {})["error.type"] == "ValueError"


async def test_a_send_that_was_cancelled_before_it_left_ends_its_span(tmp_path: Path) -> None:
    recorded = Recorded()
    async with running_box(tmp_path) as box:
        options = ProducerOptions(telemetry=recorded.telemetry)
        async with Producer("PG", f"127.0.0.1:{box.namesrv_port}", options=options) as producer:
            with trio.CancelScope() as scope:
                scope.cancel()
                await producer.submit(Message("C", b"x"))
            with trio.CancelScope() as scope:
                scope.cancel()
                await producer.send_oneway(Message("O", b"x"))
    assert len(recorded.spans("send C")) == 1
    assert len(recorded.spans("send O")) == 1


async def test_a_traceparent_of_the_applications_own_is_left_alone(tmp_path: Path) -> None:
    recorded, own = Recorded(), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with running_box(tmp_path) as box:
        options = ProducerOptions(telemetry=recorded.telemetry)
        async with Producer("PG", f"127.0.0.1:{box.namesrv_port}", options=options) as producer:
            await producer.send(Message("O", b"x", properties={"traceparent": own}))
        assert await consume(box, recorded, "O", 1) == [int(own.split("-")[1], 16)]


def test_nothing_of_opentelemetry_is_loaded_by_a_client_without_it() -> None:
    code = "import sys, netstack.client; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
