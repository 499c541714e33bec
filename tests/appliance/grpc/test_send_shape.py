"""A SendMessage is walked before it is read: few fields beside the bodies, whatever their order."""

import pytest

from appliance.grpc.send_shape import BESIDE_BYTES, MOST_FIELDS, SMALL, check_command, check_send, check_small
from netstack.grpc.status import CallFailed, GrpcStatus
from netstack.grpc.v2 import definition_pb2, service_pb2

MIB = 1 << 20


def request(count: int, body: bytes, properties: int = 0) -> bytes:
    made = service_pb2.SendMessageRequest()
    for _ in range(count):
        made.messages.add(body=body).user_properties.update({str(n): "x" * 10 for n in range(properties)})
    return bytes(made.SerializeToString())


def field(number: int, content: bytes) -> bytes:
    size, out = len(content), bytearray([number << 3 | 2])
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(out) + bytes([size]) + content


HOLLOW = (
    b"\x0a\x00" * 100_000,  # messages of nothing
    field(1, b"\x12\x00" * 100_000),  # properties of nothing
    field(1, field(3, bytes(BESIDE_BYTES + 1))),  # keys, or what else system properties hold
    field(15, bytes(BESIDE_BYTES + 1)),  # unknown
    b"\x08\x01" * (MOST_FIELDS + 1),  # numbers
)


def test_what_would_become_a_hundred_times_as_large_is_refused() -> None:
    for raw in HOLLOW:
        with pytest.raises(CallFailed) as failed:
            check_send(raw)
        assert failed.value.status is GrpcStatus.RESOURCE_EXHAUSTED


def test_broken_fields_are_no_request() -> None:
    for tail in (b"\x0b", b"\x0a", b"\x0a\xff\xff\x03", b"\xff" * 11, b"\x0d\x00"):
        with pytest.raises(CallFailed) as failed:
            check_send(field(1, field(4, bytes(SMALL))) + tail)
        assert failed.value.status is GrpcStatus.INVALID_ARGUMENT


def test_a_request_without_bodies_is_small() -> None:
    check_small(bytes(SMALL))
    with pytest.raises(CallFailed):
        check_small(bytes(SMALL + 1))


def test_a_message_in_the_tests_is_one_of_the_protocol() -> None:
    assert definition_pb2.Message.DESCRIPTOR.fields_by_name["body"].number == 4
    assert service_pb2.SendMessageRequest.DESCRIPTOR.fields_by_name["messages"].number == 1


def test_a_command_may_be_large_by_its_stacks_alone() -> None:
    command = service_pb2.TelemetryCommand()
    command.thread_stack_trace.nonce, command.thread_stack_trace.thread_stack_trace = "n", "x" * 400_000
    check_command(command.SerializeToString())
    command.thread_stack_trace.nonce = "n" * 70_000
    with pytest.raises(CallFailed, match="beside stacks"):
        check_command(command.SerializeToString())
    command.thread_stack_trace.nonce, command.thread_stack_trace.thread_stack_trace = "n", "x" * 600_000
    with pytest.raises(CallFailed, match="at most 524288"):
        check_command(command.SerializeToString())
