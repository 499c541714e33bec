"""SendMessage against a real box: what a stock remoting consumer then pulls, and what is refused with which code."""

import gzip
from pathlib import Path
from typing import Any

import pytest
import trio

from netstack.grpc.v2 import definition_pb2, service_pb2
from tests.appliance.grpc.asking import Asker, Code, asking, grpc_box, make_topic, message, sending, stored

FIFO, DELAY, TRANSACTION = (
    definition_pb2.MessageType.FIFO,
    definition_pb2.MessageType.DELAY,
    definition_pb2.MessageType.TRANSACTION,
)


async def test_a_send_is_stored_with_its_id_tag_keys_and_properties(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (box, port), asking(port) as client:
        sent = message("T", b"hello", "01AB", tag="red", keys=["k1", "k2"], properties={"läge": "ü ✓"})
        answer = await client.ask("SendMessage", sending(sent))
        assert answer.status.code == Code.OK
        (entry,) = answer.entries
        assert (entry.status.code, entry.message_id, entry.offset) == (Code.OK, "01AB", 0)
        (found,) = await stored(box, "T")
    properties = found.property_map
    assert (found.body, found.born_ms, found.sys_flag) == (b"hello", 1_700_000_000_123, 0)
    assert {name: properties[name] for name in ("UNIQ_KEY", "TAGS", "KEYS", "läge", "PGROUP")} == {
        "UNIQ_KEY": "01AB",
        "TAGS": "red",
        "KEYS": "k1 k2",
        "läge": "ü ✓",
        "PGROUP": "T",
    }


async def test_several_messages_are_one_request_with_an_entry_each(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (box, port), asking(port) as client:
        answer = await client.ask("SendMessage", sending(*(message("T", b"%d" % n, f"01{n}") for n in range(5))))
        assert [(entry.message_id, entry.offset) for entry in answer.entries] == [(f"01{n}", n) for n in range(5)]
        assert [found.body for found in await stored(box, "T")] == [b"%d" % n for n in range(5)]


async def test_a_send_that_is_repeated_is_stored_once(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (box, port), asking(port) as client:
        places = []
        for body in (b"one", b"one", b"two"):  # clients give each send an id of its own, and repeat it alone
            (entry,) = (await client.ask("SendMessage", sending(message("T", body, "01AB")))).entries
            places.append((entry.status.code, entry.offset))
        assert places == [(Code.OK, 0), (Code.OK, 0), (Code.OK, 1)]
        assert [found.body for found in await stored(box, "T")] == [b"one", b"two"]


async def test_a_message_group_stays_in_one_queue(tmp_path: Path) -> None:
    async with grpc_box(tmp_path, topics=()) as (box, port), asking(port) as client:
        await make_topic(box, "F", queues=4)
        for n in range(6):
            sent = message("F", b"%d" % n, f"01{n}", message_group="g1", message_type=FIFO)
            assert (await client.ask("SendMessage", sending(sent))).status.code == Code.OK
        filled = [[found.body for found in await stored(box, "F", queue)] for queue in range(4)]
    assert sorted(filled) == [[], [], [], [b"%d" % n for n in range(6)]]


async def test_a_delayed_message_rests_and_its_handle_recalls_it(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (box, port), asking(port) as client:
        due = definition_pb2.SystemProperties().delivery_timestamp
        due.GetCurrentTime()
        due.seconds += 600
        answer = await client.ask("SendMessage", sending(message("T", message_type=DELAY, delivery_timestamp=due)))
        (entry,) = answer.entries
        assert (answer.status.code, await stored(box, "T")) == (Code.OK, [])
        recall = service_pb2.RecallMessageRequest(recall_handle=entry.recall_handle)
        recall.topic.name = "T"
        recalled = await client.ask("RecallMessage", recall)
        assert (recalled.status.code, recalled.message_id) == (Code.OK, "01AB")
        recall.recall_handle = "bm90IG9uZQ=="
        assert (await client.ask("RecallMessage", recall)).status.code == Code.MESSAGE_NOT_FOUND


async def test_a_message_that_is_due_too_late_is_refused_by_its_own_code(tmp_path: Path) -> None:
    async with grpc_box(tmp_path, "[broker]\ntimer_days = 1\n") as (box, port), asking(port) as client:
        due = definition_pb2.SystemProperties().delivery_timestamp
        due.GetCurrentTime()
        due.seconds += 2 * 86_400
        answer = await client.ask("SendMessage", sending(message("T", message_type=DELAY, delivery_timestamp=due)))
        assert (answer.status.code, await stored(box, "T")) == (Code.ILLEGAL_DELIVERY_TIME, [])
        assert "at most 86400000 are allowed" in answer.status.message


@pytest.mark.slow
async def test_a_packed_body_is_unpacked_for_readers_of_4x(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (box, port), asking(port) as client:
        body = b"hello " * 100
        packed = message("T", gzip.compress(body), body_encoding=definition_pb2.Encoding.GZIP)
        assert (await client.ask("SendMessage", sending(packed))).status.code == Code.OK
        bomb = message("T", gzip.compress(bytes(64 << 20)), body_encoding=definition_pb2.Encoding.GZIP)
        assert (await client.ask("SendMessage", sending(bomb))).status.code == Code.MESSAGE_BODY_TOO_LARGE
        broken = message("T", b"no gzip", body_encoding=definition_pb2.Encoding.GZIP)
        assert (await client.ask("SendMessage", sending(broken))).status.code == Code.MESSAGE_CORRUPTED
        assert [found.body for found in await stored(box, "T")] == [body]


@pytest.mark.slow
async def test_a_body_of_the_largest_size_passes_and_one_byte_more_does_not(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        assert (await client.ask("SendMessage", sending(message("T", bytes(4 << 20))))).status.code == Code.OK
        more = await client.ask("SendMessage", sending(message("T", bytes((4 << 20) + 1))))
        assert more.status.code == Code.MESSAGE_BODY_TOO_LARGE


async def test_a_request_that_is_no_message_or_mostly_fields_ends_before_it_is_read(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        path = "/apache.rocketmq.v2.MessagingService/SendMessage"
        assert (await client.client.call(path, b"\xff\xff", client.metadata)).status == 3
        assert (await client.client.call(path, b"\x0a\x00" * 100_000, client.metadata)).status == 8
        assert (await client.ask("SendMessage", sending(message("T")))).status.code == Code.OK


REFUSED: list[tuple[int, dict[str, Any]]] = [
    (Code.ILLEGAL_MESSAGE_ID, {"message_id": " "}),
    (Code.ILLEGAL_MESSAGE_TAG, {"tag": "a|b"}),
    (Code.ILLEGAL_MESSAGE_KEY, {"keys": ["a\x01b"]}),
    (Code.ILLEGAL_MESSAGE_GROUP, {"message_group": "g" * 64}),
    (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, {"properties": {"UNIQ_KEY": "x"}}),
    (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, {"properties": {"a": "b\x02TRAN_MSG\x01true"}}),
    (Code.MESSAGE_PROPERTIES_TOO_LARGE, {"properties": {str(n): "" for n in range(129)}}),
    (Code.MESSAGE_PROPERTIES_TOO_LARGE, {"properties": {"a": "x" * 17_000}}),
    (Code.MESSAGE_BODY_EMPTY, {"body": b""}),
    (Code.UNSUPPORTED, {"message_type": definition_pb2.MessageType.LITE}),
    (Code.BAD_REQUEST, {"priority": -1}),
    (Code.TOPIC_NOT_FOUND, {"topic": "Unknown"}),
    (Code.ILLEGAL_TOPIC, {"topic": "a b"}),
    (Code.ILLEGAL_TOPIC, {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}),
]


async def test_what_is_wrong_with_a_message_has_a_code_and_stores_nothing(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (box, port), asking(port) as client:
        for code, fields in REFUSED:
            found = await client.ask("SendMessage", sending(message(**{"topic": "T", **fields})))
            assert Code.Name(found.status.code) == Code.Name(code), fields
        two = sending(message("T"), message("Other"))
        assert (await client.ask("SendMessage", two)).status.code == Code.MESSAGE_CORRUPTED
        assert (await client.ask("SendMessage", sending())).status.code == Code.MESSAGE_CORRUPTED
        assert await stored(box, "T") == []


async def test_a_topic_with_a_type_takes_messages_of_this_type_alone(tmp_path: Path) -> None:
    async with grpc_box(tmp_path, topics=()) as (box, port), asking(port) as client:
        await make_topic(box, "Orders", attributes="+message.type=FIFO")
        refused = await client.ask("SendMessage", sending(message("Orders")))
        assert refused.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        fifo = message("Orders", message_group="g", message_type=FIFO)
        assert (await client.ask("SendMessage", sending(fifo))).status.code == Code.OK
        implied = message("Orders", message_id="02", message_group="g")
        assert (await client.ask("SendMessage", sending(implied))).status.code == Code.OK


async def test_sends_of_many_clients_share_syncs_and_are_all_stored(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (box, port), asking(port) as client:

        async def send(number: int) -> None:
            sent = sending(message("T", b"%d" % number, f"01{number:04}"))
            assert (await client.ask("SendMessage", sent)).status.code == Code.OK

        async with trio.open_nursery() as nursery:
            for number in range(32):
                nursery.start_soon(send, number)
        assert sorted(int(found.body) for found in await stored(box, "T")) == list(range(32))


async def test_a_send_without_client_id_is_refused(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        nobody = Asker(client.client, "")
        assert (await nobody.ask("SendMessage", sending(message("T")))).status.code == Code.CLIENT_ID_REQUIRED


async def test_a_topic_that_may_not_be_written_refuses(tmp_path: Path) -> None:
    async with grpc_box(tmp_path, topics=()) as (box, port), asking(port) as client:
        await make_topic(box, "ReadOnly", perm=4)
        assert (await client.ask("SendMessage", sending(message("ReadOnly")))).status.code == Code.FORBIDDEN
