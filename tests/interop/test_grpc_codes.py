"""The code that a gRPC call is answered with, on a box and on Apache's proxy: one table for both.

Official clients check most of what they are given themselves, so these calls are made by hand. The second code of a row
is that of Apache's proxy where it has another one: docs/limits.md.
"""

import time
from typing import Any, NamedTuple

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from netstack.grpc.testing import enveloped
from netstack.grpc.v2 import definition_pb2, service_pb2
from tests.appliance.grpc.asking import (
    PATH,
    Asker,
    Code,
    acking,
    asking,
    consumer_settings,
    message,
    producer_settings,
    receiving,
    sending,
)
from tests.interop.served import Served

pytestmark = pytest.mark.slow

MIB, DAY_S = 1 << 20, 86_400
TYPES = definition_pb2.MessageType
NOBODYS, NOT_A_HANDLE = "no_such_topic", "garbage"
RELEASE = {"x-mq-client-version": "5.0.8"}  # an older client is told BAD_REQUEST for ILLEGAL_POLLING_TIME
FAULT = Code.INTERNAL_SERVER_ERROR


class Case(NamedTuple):
    """A call, and the code of its answer; `proxy`: that of Apache's proxy, 0 where it has the same."""

    name: str
    method: str
    request: Any
    code: int
    proxy: int = 0


def after(seconds: int) -> Timestamp:
    return Timestamp(seconds=int(time.time()) + seconds)


def sends(topic: str) -> list[Case]:
    def case(name: str, code: int, proxy: int = 0, *, body: bytes = b"hello", **system: Any) -> Case:
        given = system.pop("given_id", f"id of {name}")
        return Case(name, "SendMessage", sending(message(topic, body, given, **system)), code, proxy)

    def to(name: str, other: str, code: int, proxy: int = 0) -> Case:
        return Case(name, "SendMessage", sending(message(other)), code, proxy)

    two = sending(message(topic), message("other"))
    return [
        case("a message", Code.OK),
        Case("no message", "SendMessage", sending(), Code.MESSAGE_CORRUPTED),
        Case("two topics", "SendMessage", two, Code.MESSAGE_CORRUPTED),
        to("a topic that is not there", NOBODYS, Code.TOPIC_NOT_FOUND, FAULT),
        to("no topic", "", Code.ILLEGAL_TOPIC),
        to("no name of a topic", "a b/c", Code.ILLEGAL_TOPIC),
        to("a topic of the system", "SCHEDULE_TOPIC_XXXX", Code.ILLEGAL_TOPIC),
        case("no body", Code.MESSAGE_BODY_EMPTY, body=b""),
        case("a body of 4 MiB", Code.OK, body=b"x" * (4 * MIB)),
        case("a body above", Code.MESSAGE_BODY_TOO_LARGE, body=b"x" * (4 * MIB + 1)),
        case("no id", Code.ILLEGAL_MESSAGE_ID, given_id=""),
        case("a blank id", Code.ILLEGAL_MESSAGE_ID, given_id=" "),
        case("a blank tag", Code.ILLEGAL_MESSAGE_TAG, tag=" "),
        case("two tags", Code.ILLEGAL_MESSAGE_TAG, tag="a|b"),
        case("a control character in a tag", Code.ILLEGAL_MESSAGE_TAG, tag="a\x02"),
        case("a blank key", Code.ILLEGAL_MESSAGE_KEY, keys=[" "]),
        case("a control character in a key", Code.ILLEGAL_MESSAGE_KEY, keys=["a\x01"]),
        case("a blank message group", Code.ILLEGAL_MESSAGE_GROUP, message_group=" ", message_type=TYPES.FIFO),
        case("a message group of 63", Code.OK, message_group="x" * 63, message_type=TYPES.FIFO),
        case("a message group of 64", Code.ILLEGAL_MESSAGE_GROUP, message_group="x" * 64, message_type=TYPES.FIFO),
        case("a delay", Code.OK, delivery_timestamp=after(2), message_type=TYPES.DELAY),
        case("a delay that is over", Code.OK, delivery_timestamp=after(-100), message_type=TYPES.DELAY),
        case("two days", Code.OK, Code.ILLEGAL_DELIVERY_TIME, delivery_timestamp=after(2 * DAY_S), message_type=3),
        case("four days", Code.ILLEGAL_DELIVERY_TIME, delivery_timestamp=after(4 * DAY_S), message_type=TYPES.DELAY),
        case("a half message", Code.OK, message_type=TYPES.TRANSACTION),
        case("a lite message", Code.UNSUPPORTED, Code.OK, message_type=TYPES.LITE),
        case("a priority", Code.OK, message_type=TYPES.PRIORITY),
        case("a reserved property", Code.ILLEGAL_MESSAGE_PROPERTY_KEY, properties={"KEYS": "x"}),
        case("a control character in a property", Code.ILLEGAL_MESSAGE_PROPERTY_KEY, properties={"a": "b\x02"}),
        case("128 properties", Code.OK, properties={f"k{n}": "v" for n in range(128)}),
        case("129 properties", Code.MESSAGE_PROPERTIES_TOO_LARGE, properties={f"k{n}": "v" for n in range(129)}),
        case("properties of 17,000 bytes", Code.MESSAGE_PROPERTIES_TOO_LARGE, properties={"a": "x" * 17_000}),
    ]


def routes(topic: str, group: str) -> list[Case]:
    def route(name: str, asked: str, code: int) -> Case:
        request = service_pb2.QueryRouteRequest()
        request.topic.name, request.endpoints.scheme = asked, definition_pb2.AddressScheme.IPv4
        request.endpoints.addresses.add(host="127.0.0.1", port=8081)
        return Case(name, "QueryRoute", request, code)

    def assignment(name: str, asked: str, of_group: str, code: int) -> Case:
        request = service_pb2.QueryAssignmentRequest()
        request.topic.name, request.group.name = asked, of_group
        request.endpoints.scheme = definition_pb2.AddressScheme.IPv4
        request.endpoints.addresses.add(host="127.0.0.1", port=8081)
        return Case(name, "QueryAssignment", request, code)

    return [
        route("a route", topic, Code.OK),
        route("the route of a topic that is not there", NOBODYS, Code.TOPIC_NOT_FOUND),
        route("the route of a topic of the system", "SCHEDULE_TOPIC_XXXX", Code.ILLEGAL_TOPIC),
        route("the route of no topic", "", Code.ILLEGAL_TOPIC),
        assignment("an assignment", topic, group, Code.OK),
        assignment("the assignment of a group that is not there", topic, "no_such_group", Code.OK),
        assignment("the assignment of a topic that is not there", NOBODYS, group, Code.TOPIC_NOT_FOUND),
        assignment("the assignment of no group", topic, "", Code.ILLEGAL_CONSUMER_GROUP),
    ]


def wrong_handles(topic: str, group: str) -> list[Case]:
    """A handle that no server made, and what else is wrong about the end of a message."""
    change = service_pb2.ChangeInvisibleDurationRequest(receipt_handle=NOT_A_HANDLE, message_id="1")
    change.topic.name, change.group.name, change.invisible_duration.seconds = topic, group, 15
    forward = service_pb2.ForwardMessageToDeadLetterQueueRequest(receipt_handle=NOT_A_HANDLE, message_id="1")
    forward.topic.name, forward.group.name = topic, group
    recall, end = service_pb2.RecallMessageRequest(recall_handle=NOT_A_HANDLE), service_pb2.EndTransactionRequest()
    recall.topic.name = end.topic.name = topic
    end.message_id, end.resolution, end.source = "1", 1, 1
    other = service_pb2.EndTransactionRequest()
    other.CopyFrom(end)
    other.transaction_id = NOT_A_HANDLE
    ack = service_pb2.AckMessageRequest()
    ack.group.name, ack.topic.name = group, topic
    ack.entries.add(message_id="1", receipt_handle=NOT_A_HANDLE)
    return [
        Case("acknowledges no handle", "AckMessage", ack, Code.INVALID_RECEIPT_HANDLE, FAULT),
        Case("acknowledges nothing", "AckMessage", acking(group, topic), Code.BAD_REQUEST, FAULT),
        Case("acknowledges for no group", "AckMessage", acking("", topic), Code.ILLEGAL_CONSUMER_GROUP),
        Case("changes no handle", "ChangeInvisibleDuration", change, Code.INVALID_RECEIPT_HANDLE, FAULT),
        Case("forwards no handle", "ForwardMessageToDeadLetterQueue", forward, Code.INVALID_RECEIPT_HANDLE, FAULT),
        Case("recalls no handle", "RecallMessage", recall, Code.MESSAGE_NOT_FOUND, FAULT),
        Case("ends no transaction", "EndTransaction", end, Code.INVALID_TRANSACTION_ID),
        Case("ends one that is not there", "EndTransaction", other, Code.INVALID_TRANSACTION_ID, FAULT),
    ]


def receives(topic: str, group: str) -> list[Case]:
    """All are refused at once: what waits for messages is in test_grpc_beside.py."""

    def case(name: str, code: int, proxy: int = 0, **asked: Any) -> Case:
        request = receiving(asked.pop("group", group), asked.pop("topic", topic), **{"invisible_s": 20, **asked})
        return Case(name, "ReceiveMessage", request, code, proxy)

    return [
        case("receives for 1 s", Code.ILLEGAL_INVISIBLE_TIME, invisible_s=1),
        case("receives for 13 h", Code.ILLEGAL_INVISIBLE_TIME, invisible_s=13 * 3600),
        case("receives by no SQL", Code.ILLEGAL_FILTER_EXPRESSION, FAULT, kind=2, tags="a >"),
        case("receives from no topic", Code.TOPIC_NOT_FOUND, FAULT, topic=NOBODYS),
        case("receives for no group", Code.ILLEGAL_CONSUMER_GROUP, group=""),
    ]


async def answered(client: Asker, case: Case, timeout: str = "30S") -> int:
    """Return the code in the status of an answer, or of the first message of a stream of them."""
    number = await client.client.begin(f"{PATH}{case.method}", {**client.metadata, "grpc-timeout": timeout})
    await client.client.send(number, enveloped(case.request.SerializeToString()), end=True)
    outcome = client.client.calls[number]
    await outcome.ended.wait()
    assert outcome.messages, f"{case.name}: gRPC status {outcome.status}, {outcome.text}"
    kind = getattr(service_pb2, f"{case.method}Response")
    return int(kind.FromString(outcome.messages[0]).status.code)


async def check(client: Asker, cases: list[Case], *, apache: bool) -> None:
    wanted = {case.name: Code.Name(case.proxy if apache and case.proxy else case.code) for case in cases}
    assert {case.name: Code.Name(await answered(client, case)) for case in cases} == wanted


async def test_a_call_is_answered_with_the_same_code(served: Served) -> None:
    topic, group, port = served.topic("codes"), served.group("codes"), int(served.endpoint.rpartition(":")[2])
    async with asking(port, f"producer@{topic}", **RELEASE) as client:
        beat = service_pb2.HeartbeatRequest(client_type=definition_pb2.ClientType.PRODUCER)
        unknown = Case("is not known yet", "Heartbeat", beat, Code.UNRECOGNIZED_CLIENT_TYPE)
        await check(client, [unknown], apache=served.apache)
        (answer,) = await client.told(await client.telemetry(producer_settings(topic)), 1)
        assert answer.status.code == Code.OK
        known = [unknown._replace(code=Code.OK), *routes(topic, group), *sends(topic)]
        await check(client, known, apache=served.apache)
        leave = Case("leaves", "NotifyClientTermination", service_pb2.NotifyClientTerminationRequest(), Code.OK)
        await check(client, [leave], apache=served.apache)
        await check(client, [unknown], apache=served.apache)
    async with asking(port, f"consumer@{topic}", **RELEASE) as client:
        early = receiving(group, topic, invisible_s=20)
        gathered = Case("receives without settings", "ReceiveMessage", early, Code.OK, FAULT)
        await check(client, [gathered], apache=served.apache)
        (answer,) = await client.told(await client.telemetry(consumer_settings(group, topic)), 1)
        assert answer.status.code == Code.OK
        await check(client, [*wrong_handles(topic, group), *receives(topic, group)], apache=served.apache)
        late = receiving(group, topic, invisible_s=20)
        assert await answered(client, Case("has no time", "ReceiveMessage", late, 0), "2S") == Code.ILLEGAL_POLLING_TIME
    async with asking(port, "", **RELEASE) as client:
        await check(client, [unknown._replace(code=Code.CLIENT_ID_REQUIRED)], apache=served.apache)
