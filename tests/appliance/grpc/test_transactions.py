"""Transactions of gRPC producers against a real box: decided, undecided and asked about, decided by a stranger."""

from pathlib import Path
from typing import Any

import pytest

from appliance.grpc.transactions import transaction_id
from netstack.grpc.v2 import definition_pb2, service_pb2
from storage_driver.record import encode_properties
from tests.appliance.box import connected, send
from tests.appliance.grpc.asking import Asker, Code, asking, grpc_box, message, producer_settings, sending, stored

COMMIT, ROLLBACK = definition_pb2.TransactionResolution.COMMIT, definition_pb2.TransactionResolution.ROLLBACK
TRANSACTION = definition_pb2.MessageType.TRANSACTION
MOST = (1 << 31) - 1
QUICK = "[broker]\ntransaction_timeout_s = 1\ntransaction_check_s = 1\n"


async def half(client: Asker, message_id: str = "01AB") -> str:
    answer = await client.ask("SendMessage", sending(message("T", b"half", message_id, message_type=TRANSACTION)))
    assert answer.status.code == Code.OK
    found: str = answer.entries[0].transaction_id
    return found


def ending(half_id: str, resolution: int, topic: str = "T") -> Any:
    made = service_pb2.EndTransactionRequest(transaction_id=half_id, resolution=resolution, message_id="01AB")
    made.topic.name = topic
    return made


async def test_a_half_message_is_seen_when_it_is_committed_and_never_when_not(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (box, port), asking(port) as client:
        first, second = await half(client), await half(client, "02AB")
        assert await stored(box, "T") == []
        assert (await client.ask("EndTransaction", ending(first, COMMIT))).status.code == Code.OK
        assert (await client.ask("EndTransaction", ending(second, ROLLBACK))).status.code == Code.OK
        assert [each.property_map["UNIQ_KEY"] for each in await stored(box, "T")] == ["01AB"]
        assert (await client.ask("EndTransaction", ending(first, COMMIT))).status.code == Code.OK
        assert len(await stored(box, "T")) == 1, "a repeated commit commits nothing more"


async def test_an_id_that_is_none_or_of_another_half_is_refused(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        for wrong in ("", "ABC", "x" * 32):
            found = await client.ask("EndTransaction", ending(wrong, COMMIT))
            assert found.status.code == Code.INVALID_TRANSACTION_ID
        other = await client.ask("EndTransaction", ending(transaction_id(7, 12345), COMMIT))
        assert other.status.code == Code.INTERNAL_SERVER_ERROR
        unknown = await client.ask("EndTransaction", ending(await half(client), 0))
        assert unknown.status.code == Code.OK


@pytest.mark.slow
async def test_an_undecided_half_is_asked_about_on_the_stream_of_a_producer_of_its_topic(tmp_path: Path) -> None:
    async with grpc_box(tmp_path, QUICK) as (box, port), asking(port) as client, asking(port, "other@2") as other:
        number = await client.telemetry(producer_settings("T"))
        await client.told(number, 1)
        await half(other)
        await other.client.stream.aclose()
        _, command = await client.told(number, 2)
        asked = command.recover_orphaned_transaction_command
        assert (asked.message.body, asked.message.topic.name) == (b"half", "T")
        assert asked.message.system_properties.message_id == "01AB"
        assert (await client.ask("EndTransaction", ending(asked.transaction_id, COMMIT))).status.code == Code.OK
        assert [each.body for each in await stored(box, "T")] == [b"half"]


@pytest.mark.slow
async def test_a_half_of_a_remoting_producer_with_the_largest_count_of_retries_is_asked_about(tmp_path: Path) -> None:
    own = encode_properties({"PGROUP": "T", "TRAN_MSG": "true", "UNIQ_KEY": "01AB"}).decode()
    made = send("T", b"half", own, reconsume_times=MOST)
    async with grpc_box(tmp_path, QUICK) as (box, port), asking(port) as client:
        number = await client.telemetry(producer_settings("T"))
        await client.told(number, 1)
        async with connected(box) as line:
            assert (await line.ask(made)).code == 0
        _, command = await client.told(number, 2)
        asked = command.recover_orphaned_transaction_command
        assert (asked.message.body, asked.message.system_properties.delivery_attempt) == (b"half", MOST)
