"""What tools ask of a gRPC consumer over the box: running state, stacks of its threads, consumption of one message."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from netstack.grpc.testing import enveloped
from netstack.grpc.v2 import definition_pb2, service_pb2
from netstack.serving.channel import Channel
from netstack.wire.bodies import ConsumeDirectlyResult, ConsumerRunningInfo
from netstack.wire.command import RemotingCommand
from tests.appliance.box import ask, connected, messages_of, pull
from tests.appliance.grpc.asking import Asker, Code, asking, consumer_settings, grpc_box, message, sending

WAIT_S = 60
Report = Callable[[Any], Any]
"""The command that the box sent → the client's report on it."""


class Line:
    """A tool's connection, a client's, and the client's stream."""

    def __init__(self, tool: Channel, client: Asker, stream: int) -> None:
        self.tool, self.client, self.stream = tool, client, stream

    async def ask(self, code: int, report: Report | None = None, **fields: object) -> RemotingCommand:
        """Ask the consumer through the box; it answers with a report."""
        answers: list[RemotingCommand] = []
        asked = ask(code, consumerGroup="G", clientId="client@1", **fields)

        async def run() -> None:
            answers.append(await self.tool.ask(asked, WAIT_S))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            if report is not None:
                command = (await self.client.told(self.stream, 2))[-1]
                await self.report(report(command))
        return answers[0]

    async def report(self, command: Any) -> None:
        await self.client.client.send(self.stream, enveloped(command.SerializeToString()))

    async def stored(self) -> str:
        """Return the id of a new message of T."""
        await self.client.ask("SendMessage", sending(message("T", b"verify me", tag="a", keys=["k"])))
        (found,) = messages_of(await self.tool.ask(pull("T")))
        return found.message_id


@asynccontextmanager
async def line(data: Path) -> AsyncIterator[Line]:
    async with grpc_box(data) as (box, port), asking(port) as client, connected(box) as tool:
        number = await client.telemetry(consumer_settings("G", "T", push=True, tags="a || b"))
        await client.told(number, 1)
        yield Line(tool, client, number)


def stacks(text: str, code: int = Code.OK, nonce: str = "") -> Report:
    def made(command: Any) -> Any:
        asked = command.print_thread_stack_trace_command
        assert asked.nonce
        found = service_pb2.TelemetryCommand(status=definition_pb2.Status(code=code, message="why"))
        found.thread_stack_trace.nonce, found.thread_stack_trace.thread_stack_trace = nonce or asked.nonce, text
        return found

    return made


def verified(code: int) -> Report:
    def made(command: Any) -> Any:
        asked = command.verify_message_command
        assert (asked.message.body, asked.message.topic.name) == (b"verify me", "T")
        system = asked.message.system_properties
        assert (system.tag, system.keys, system.message_id) == ("a", ["k"], "01AB")
        found = service_pb2.TelemetryCommand(status=definition_pb2.Status(code=code))
        found.verify_message_result.nonce = asked.nonce
        return found

    return made


async def test_a_running_consumer_is_described_without_asking_it(tmp_path: Path) -> None:
    async with line(tmp_path) as one:
        answer = await one.ask(307)
        info = ConsumerRunningInfo.from_bytes(answer.body)
    (subscription,) = info.subscription_set
    assert (answer.code, subscription.topic, subscription.sub_string) == (0, "T", "a || b")
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert (int(info.properties["PROP_CONSUMER_START_TIMESTAMP"]) > 0, info.jstack) == (True, None)


async def test_stacks_come_from_the_client_however_long_they_are(tmp_path: Path) -> None:
    async with line(tmp_path) as one:
        answer = await one.ask(307, stacks("thread " * 40_000), jstackEnable="true")
        assert ConsumerRunningInfo.from_bytes(answer.body).jstack == "thread " * 40_000
        assert (await one.client.ask("Heartbeat", service_pb2.HeartbeatRequest())).status.code == Code.OK


@pytest.mark.parametrize(
    ("code", "result"),
    [(Code.OK, "CR_SUCCESS"), (Code.FAILED_TO_CONSUME_MESSAGE, "CR_LATER"), (Code.MESSAGE_CORRUPTED, "CR_RETURN_NULL")],
)
async def test_a_client_consumes_one_message_directly(tmp_path: Path, code: int, result: str) -> None:
    async with line(tmp_path) as one:
        answer = await one.ask(309, verified(code), msgId=await one.stored())
    assert (answer.code, ConsumeDirectlyResult.from_bytes(answer.body).consume_result) == (0, result)


async def test_what_a_client_cannot_do_is_told_with_its_reason(tmp_path: Path) -> None:
    async with line(tmp_path) as one:
        answer = await one.ask(307, stacks("", Code.UNSUPPORTED), jstackEnable="true")
        assert (answer.code, answer.remark) == (1, "the client answered UNSUPPORTED: why")


async def test_a_client_that_leaves_answers_nothing_any_more(tmp_path: Path) -> None:
    async with line(tmp_path) as one:
        answers: list[RemotingCommand] = []

        async def run() -> None:
            answers.append(await one.ask(307, jstackEnable="true"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await one.client.told(one.stream, 2)
            await one.client.client.stream.aclose()
    assert (answers[0].code, "stream has ended" in (answers[0].remark or "")) == (1, True)


async def test_a_report_that_nobody_asked_for_is_passed_over(tmp_path: Path) -> None:
    async with line(tmp_path) as one:
        command = service_pb2.TelemetryCommand(status=definition_pb2.Status(code=Code.OK))
        command.thread_stack_trace.nonce = "unknown"
        await one.report(command)
        command.verify_message_result.nonce = "unknown"
        await one.report(command)
        assert (await one.client.ask("Heartbeat", service_pb2.HeartbeatRequest())).status.code == Code.OK


async def test_a_command_that_is_large_but_for_stacks_ends_the_stream(tmp_path: Path) -> None:
    async with line(tmp_path) as one:
        command = service_pb2.TelemetryCommand(settings=consumer_settings("G", *(f"T{n}" for n in range(8000))))
        await one.report(command)
        outcome = one.client.client.calls[one.stream]
        await outcome.ended.wait()
    assert (outcome.status, "at most" in outcome.text) == (8, True)
