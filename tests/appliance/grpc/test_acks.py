"""What consumers say of their messages, against a real box: answers for good and bad handles."""

from pathlib import Path
from typing import Any

from netstack.grpc.v2 import service_pb2
from tests.appliance.grpc.asking import (
    Asker,
    Code,
    acking,
    asking,
    consumer_settings,
    grpc_box,
    message,
    receiving,
    sending,
    stored,
)


async def received(client: Asker, count: int = 1) -> list[Any]:
    await client.told(await client.telemetry(consumer_settings("G", "T")), 1)
    for number in range(count):
        await client.ask("SendMessage", sending(message("T", b"%d" % number, f"01{number}")))
    return (await client.receive(receiving("G", "T", invisible_s=60)))[1]


def about(kind: Any, found: Any, **more: Any) -> Any:
    made = kind(receipt_handle=found.system_properties.receipt_handle, **more)
    made.group.name, made.topic.name = "G", "T"
    return made


async def test_each_entry_has_its_own_status(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        first, second = await received(client, 2)
        second.system_properties.receipt_handle = "nonsense"
        answer = await client.ask("AckMessage", acking("G", "T", first, second))
        assert answer.status.code == Code.MULTIPLE_RESULTS
        assert [each.status.code for each in answer.entries] == [Code.OK, Code.INVALID_RECEIPT_HANDLE]
        assert (await client.ask("AckMessage", acking("G", "T"))).status.code == Code.BAD_REQUEST


async def test_a_changed_time_keeps_the_message_and_both_handles_name_it(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        (found,) = await received(client)
        request = about(service_pb2.ChangeInvisibleDurationRequest, found)
        request.invisible_duration.seconds = 300
        changed = await client.ask("ChangeInvisibleDuration", request)
        assert (changed.status.code, len(changed.receipt_handle.split())) == (Code.OK, 8)
        request.invisible_duration.seconds = 12 * 3600 + 1
        refused = await client.ask("ChangeInvisibleDuration", request)
        assert refused.status.code == Code.ILLEGAL_INVISIBLE_TIME
        old = acking("G", "T", found)
        found.system_properties.receipt_handle = changed.receipt_handle
        assert (await client.ask("AckMessage", acking("G", "T", found))).status.code == Code.OK
        assert (await client.ask("AckMessage", old)).status.code == Code.OK
        gone = await client.ask("ChangeInvisibleDuration", about(service_pb2.ChangeInvisibleDurationRequest, found))
        assert gone.status.code == Code.INVALID_RECEIPT_HANDLE


async def test_a_message_is_forwarded_to_the_dead_letters_once(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (box, port), asking(port) as client:
        (found,) = await received(client)
        request = about(service_pb2.ForwardMessageToDeadLetterQueueRequest, found)
        forwarded = await client.ask("ForwardMessageToDeadLetterQueue", request)
        assert forwarded.status.code == Code.OK
        again = await client.ask("ForwardMessageToDeadLetterQueue", request)
        assert again.status.code == Code.INVALID_RECEIPT_HANDLE
        assert [each.body for each in await stored(box, "%DLQ%G")] == [b"0"]
