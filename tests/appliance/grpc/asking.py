"""A box with its gRPC port open, and a RocketMQ 5 client that asks it in single calls."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from netstack.grpc.testing import GrpcTestClient, Outcome, enveloped, grpc_client
from netstack.grpc.v2 import definition_pb2, service_pb2
from tests.appliance.box import Box, ask, connected, messages_of, pull, running_box
from tests.ports import free_port

PATH = "/apache.rocketmq.v2.MessagingService/"
Code = definition_pb2.Code


class Asker:
    """One client id on one connection."""

    def __init__(self, client: GrpcTestClient, client_id: str = "client@1", **metadata: str) -> None:
        self.client = client
        self.metadata = {"x-mq-client-id": client_id, "x-mq-language": "JAVA", **metadata}

    async def outcome(self, method: str, request: Any) -> Outcome:
        return await self.client.call(f"{PATH}{method}", request.SerializeToString(), self.metadata)

    async def ask(self, method: str, request: Any) -> Any:
        """Return the response to a request."""
        found = await self.outcome(method, request)
        assert found.status == 0, found.text
        (raw,) = found.messages
        return getattr(service_pb2, f"{method}Response").FromString(raw)

    async def telemetry(self, settings: Any) -> int:
        """Open the stream of telemetry with these settings, and return its number."""
        number = await self.client.begin(f"{PATH}Telemetry", self.metadata)
        command = service_pb2.TelemetryCommand(settings=settings)
        await self.client.send(number, enveloped(command.SerializeToString()))
        return number

    async def receive(self, request: Any) -> tuple[Any, list[Any]]:
        """Return status and messages of one receive."""
        number = await self.client.begin(f"{PATH}ReceiveMessage", {**self.metadata, "grpc-timeout": "30S"})
        await self.client.send(number, enveloped(request.SerializeToString()), end=True)
        outcome = self.client.calls[number]
        await outcome.ended.wait()
        assert outcome.status == 0, outcome.text
        parts = [service_pb2.ReceiveMessageResponse.FromString(raw) for raw in outcome.messages]
        kinds = [part.WhichOneof("content") for part in parts]
        assert (kinds[0], kinds[-1], set(kinds[1:-1]) <= {"message"}) == ("status", "delivery_timestamp", True)
        return parts[0].status, [part.message for part in parts[1:-1]]

    async def told(self, number: int, count: int) -> list[Any]:
        """Return the first commands of a stream once there are as many."""
        outcome = self.client.calls[number]
        while len(outcome.messages) < count and not outcome.ended.is_set():
            await self.client.wait_changed()
        return [service_pb2.TelemetryCommand.FromString(raw) for raw in outcome.messages]


def message(topic: str, body: bytes = b"hello", message_id: str = "01AB", **system: Any) -> Any:
    """Return a message as a producer builds it."""
    kind = system.pop("message_type", definition_pb2.MessageType.NORMAL)
    made = definition_pb2.Message(body=body)
    made.topic.name = topic
    made.user_properties.update(system.pop("properties", {}))
    made.system_properties.CopyFrom(definition_pb2.SystemProperties(message_id=message_id, message_type=kind, **system))
    made.system_properties.born_timestamp.FromMilliseconds(1_700_000_000_123)
    return made


def sending(*messages: Any) -> Any:
    return service_pb2.SendMessageRequest(messages=messages)


def producer_settings(*topics: str) -> Any:
    made = definition_pb2.Settings(client_type=definition_pb2.ClientType.PRODUCER)
    for topic in topics:
        made.publishing.topics.add(name=topic)
    made.publishing.SetInParent()
    return made


def consumer_settings(group: str, *topics: str, push: bool = False, tags: str = "*") -> Any:
    kinds = definition_pb2.ClientType
    made = definition_pb2.Settings(client_type=kinds.PUSH_CONSUMER if push else kinds.SIMPLE_CONSUMER)
    made.subscription.group.name = group
    for topic in topics:
        entry = made.subscription.subscriptions.add()
        entry.topic.name, entry.expression.type, entry.expression.expression = topic, 1, tags
    return made


def receiving(group: str, topic: str, *, queue_id: int = -1, batch: int = 32, tags: str = "*", **more: Any) -> Any:
    """Return a receive; `invisible_s` of a simple consumer, else it is a push consumer's."""
    made = service_pb2.ReceiveMessageRequest(batch_size=batch)
    made.group.name, made.message_queue.topic.name, made.message_queue.id = group, topic, queue_id
    made.filter_expression.type, made.filter_expression.expression = more.pop("kind", 1), tags
    made.long_polling_timeout.seconds = more.pop("poll_s", 5)
    invisible_s = more.pop("invisible_s", None)
    made.auto_renew = invisible_s is None
    if invisible_s is not None:
        made.invisible_duration.seconds = invisible_s
    return made


def acking(group: str, topic: str, *messages: Any) -> Any:
    made = service_pb2.AckMessageRequest()
    made.group.name, made.topic.name = group, topic
    for each in messages:
        system = each.system_properties
        made.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
    return made


@asynccontextmanager
async def grpc_box(data: Path, toml: str = "", topics: tuple[str, ...] = ("T",)) -> AsyncIterator[tuple[Box, int]]:
    """Run a box with these topics of one queue each; yields it and the gRPC port."""
    port = free_port()
    async with running_box(data, f"[grpc]\nport = {port}\n{toml}") as box:
        for topic in topics:
            await make_topic(box, topic)
        yield box, port


async def make_topic(box: Box, topic: str, queues: int = 1, *, perm: int = 6, **more: str) -> None:
    fields = {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false", "defaultTopic": "TBW102"}
    async with connected(box) as channel:
        counts = {"readQueueNums": queues, "writeQueueNums": queues, "perm": perm}
        answer = await channel.ask(ask(17, topic=topic, **fields, **counts, **more))
        assert answer.code == 0, answer.remark


async def stored(box: Box, topic: str, queue_id: int = 0, at: int = 0) -> list[Any]:
    """Return what a stock consumer pulls."""
    async with connected(box) as channel:
        return list(messages_of(await channel.ask(pull(topic, at, queue_id))))


@asynccontextmanager
async def asking(port: int, client_id: str = "client@1", **metadata: str) -> AsyncIterator[Asker]:
    async with grpc_client(port) as client:
        yield Asker(client, client_id, **metadata)
