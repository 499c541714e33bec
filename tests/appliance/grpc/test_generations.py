"""Clients of both generations at one box: what tools, metrics and offsets know of a gRPC client."""

from pathlib import Path

import pytest
import trio

from appliance.__main__ import main
from netstack.grpc.v2.definition_pb2 import MessageType
from netstack.wire.bodies_admin import ConsumerConnection
from tests.appliance.box import ask, connected, pull, send
from tests.appliance.grpc.asking import Code, acking, asking, consumer_settings, grpc_box, message, receiving, sending
from uplink_spark.spark.rows import Origin, RawPiece, RowSelection, decode


async def test_a_reset_moves_a_group_of_grpc_consumers_of_any_language(tmp_path: Path) -> None:
    node = {"x-mq-language": "NODE_JS", "x-mq-client-version": "1.0.8"}
    async with grpc_box(tmp_path) as (box, port), asking(port, **node) as client, connected(box) as tool:
        await client.told(await client.telemetry(consumer_settings("G", "T")), 1)
        for number in range(3):
            sent = await client.ask("SendMessage", sending(message("T", b"%d" % number, f"01{number}")))
            assert sent.status.code == Code.OK
        _, found = await client.receive(receiving("G", "T", invisible_s=60))
        assert (await client.ask("AckMessage", acking("G", "T", *found))).status.code == Code.OK
        reset = await tool.ask(ask(222, topic="T", group="G", timestamp=0, isForce="true"))
        assert (reset.code, len(found)) == (0, 3)
        _, again = await client.receive(receiving("G", "T", invisible_s=60))
    assert [each.body for each in again] == [b"0", b"1", b"2"]


async def test_tools_see_language_and_version_of_a_grpc_client(tmp_path: Path) -> None:
    python = {"x-mq-language": "PYTHON", "x-mq-client-version": "5.1.2"}
    async with grpc_box(tmp_path) as (box, port), asking(port, **python) as client, connected(box) as tool:
        await client.told(await client.telemetry(consumer_settings("G", "T", push=True)), 1)
        answer = await tool.ask(ask(203, consumerGroup="G"))
    (seen,) = ConsumerConnection.from_bytes(answer.body).connection_set
    assert (seen.client_id, seen.language, seen.version) == ("client@1", "PYTHON", 437)


@pytest.mark.slow
async def test_metrics_count_the_calls_of_grpc_clients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port, **{"x-mq-client-version": "5.0.8"}) as client:
        await client.told(await client.telemetry(consumer_settings("G", "T", push=True)), 1)
        await client.ask("SendMessage", sending(message("T")))
        assert (await client.ask("SendMessage", sending(message("T", message_id="")))).status.code != Code.OK
        await client.receive(receiving("G", "T"))
        assert (await client.client.call("/other/Method", b"", client.metadata)).status == 12
        assert await trio.to_thread.run_sync(main, ["metrics", "--data", str(tmp_path)]) == 0
    scraped = capsys.readouterr().out
    for line in (
        'rocketbox_requests_total{port="grpc",request="SendMessage"} 2.0',
        'rocketbox_requests_total{port="grpc",request="ReceiveMessage"} 1.0',
        'rocketbox_refusals_total{port="grpc",request="SendMessage",response="ILLEGAL_MESSAGE_ID"} 1.0',
        'rocketbox_unknown_requests_total{port="grpc"} 1.0',
        'protocol_type="grpc_v2",version="v5_0_8"} 1.0',
        'rocketmq_messages_out_total{cluster="DefaultCluster",consumer_group="G"',
    ):
        assert line in scraped, line


@pytest.mark.slow
async def test_spark_reads_id_message_group_and_lite_topic_of_rocketmq_5(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (box, port), asking(port) as client, connected(box) as remoting:
        fifo = message("T", message_id="01FE", message_type=MessageType.FIFO, message_group="orders")
        assert (await client.ask("SendMessage", sending(fifo))).status.code == Code.OK
        assert (await remoting.ask(send("T", properties="UNIQ_KEY\x01AB\x02__LITE_TOPIC\x01room-7"))).code == 0
        log = (await remoting.ask(pull("T"))).body
    piece = RawPiece(Origin("box", 1, 0, 1, 0, 1 << 62, 0, True), log)
    first, second = decode([piece], RowSelection()).to_pylist()
    assert (first["msg_id"], second["msg_id"]) == ("01FE", "AB")
    assert dict(first["properties"])["__SHARDINGKEY"] == "orders"
    assert dict(second["properties"])["__LITE_TOPIC"] == "room-7"
