"""The stream of a client: settings in, settings in force out; heartbeats and leave of known clients alone."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio

from appliance.__main__ import main
from appliance.grpc import telemetry
from appliance.grpc.clients import ClientSessions
from appliance.grpc.outcome import Rejection
from appliance.grpc.refusals import Refusals
from appliance.grpc.settings_waits import SettingsWaits
from appliance.grpc.telemetry import ClientStreams, TelemetryRules, check_settings
from netstack.grpc.v2 import definition_pb2, service_pb2
from tests.appliance.grpc.asking import (
    Code,
    acking,
    asking,
    consumer_settings,
    grpc_box,
    message,
    producer_settings,
    receiving,
    sending,
)
from tests.appliance.grpc.test_clients import call_of, peer_with_outbox
from tests.appliance.grpc.test_methods import Open

HEARTBEAT = service_pb2.HeartbeatRequest(client_type=definition_pb2.ClientType.PRODUCER)
LEAVE = service_pb2.NotifyClientTerminationRequest()


async def test_a_producer_gets_its_settings_back_with_what_the_box_adds(tmp_path: Path) -> None:
    async with grpc_box(tmp_path, "[limits]\nmessage_mib = 2\n") as (_, port), asking(port) as client:
        (answer,) = await client.told(await client.telemetry(producer_settings("T")), 1)
    settings = answer.settings
    assert (answer.status.code, [topic.name for topic in settings.publishing.topics]) == (Code.OK, ["T"])
    assert (settings.publishing.max_body_size, settings.publishing.validate_message_type) == (2 << 20, True)
    assert (settings.backoff_policy.max_attempts, settings.metric.on) == (3, False)
    assert settings.backoff_policy.exponential_backoff.initial.ToMilliseconds() == 10


async def test_heartbeat_and_leave_need_settings(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        assert (await client.ask("Heartbeat", HEARTBEAT)).status.code == Code.UNRECOGNIZED_CLIENT_TYPE
        assert (await client.ask("NotifyClientTermination", LEAVE)).status.code == Code.OK, "it may have left already"
        await client.told(await client.telemetry(producer_settings("T")), 1)
        for method, request in (("Heartbeat", HEARTBEAT), ("NotifyClientTermination", LEAVE)):
            assert (await client.ask(method, request)).status.code == Code.OK
        assert (await client.ask("Heartbeat", HEARTBEAT)).status.code == Code.UNRECOGNIZED_CLIENT_TYPE


async def test_a_client_outlives_its_stream_until_it_leaves(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        number = await client.telemetry(producer_settings("T"))
        await client.told(number, 1)
        client.client.h2.end_stream(number)
        await client.client.flush()
        await client.client.calls[number].ended.wait()
        assert client.client.calls[number].status == 0
        assert (await client.ask("Heartbeat", HEARTBEAT)).status.code == Code.OK
        assert (await client.ask("NotifyClientTermination", LEAVE)).status.code == Code.OK
        assert (await client.ask("Heartbeat", HEARTBEAT)).status.code == Code.UNRECOGNIZED_CLIENT_TYPE


async def test_a_push_consumer_keeps_its_messages_when_its_stream_breaks(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        number = await client.telemetry(consumer_settings("G", "T", push=True))
        await client.told(number, 1)
        await client.ask("SendMessage", sending(message("T")))
        _, (found,) = await client.receive(receiving("G", "T"))
        client.client.h2.reset_stream(number)
        await client.client.flush()
        assert (await client.ask("SendMessage", sending(message("T", b"2", "02")))).status.code == Code.OK
        _, (second,) = await client.receive(receiving("G", "T"))
        assert second.body == b"2"
        answer = await client.ask("AckMessage", acking("G", "T", found, second))
        assert [each.status.code for each in answer.entries] == [Code.OK, Code.OK]
        assert (await client.ask("Heartbeat", HEARTBEAT)).status.code == Code.OK


async def test_a_newer_stream_of_a_client_outlives_the_older(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        older = await client.telemetry(producer_settings("T"))
        await client.told(older, 1)
        await client.told(await client.telemetry(producer_settings("T")), 1)
        client.client.h2.end_stream(older)
        await client.client.flush()
        await client.client.calls[older].ended.wait()
        assert (await client.ask("Heartbeat", HEARTBEAT)).status.code == Code.OK


async def test_what_a_client_says_on_a_stream_that_it_opened_long_ago_is_heard_now(autojump_clock: object) -> None:
    gate, peer = Open(), peer_with_outbox()
    sessions = ClientSessions(gate, gate, lambda handle, time_ms: None)
    rules = TelemetryRules(1 << 20, Refusals(Counter()))
    streams = ClientStreams(rules, sessions, None, None, now_ms=lambda: 0)  # type: ignore[arg-type]
    call = call_of(peer, "client@1")
    await trio.sleep(3600)
    report = service_pb2.TelemetryCommand(thread_stack_trace=service_pb2.ThreadStackTrace(nonce="1"))
    call.arrived(report.SerializeToString())
    call.half_closed()
    await streams.handle(call)
    assert sessions.of(call).heard_s == trio.current_time()


@pytest.mark.parametrize(
    ("settings", "code", "text"),
    [
        (definition_pb2.Settings(), Code.BAD_REQUEST, "no publishing or subscription data"),
        (consumer_settings("a b", "T"), Code.ILLEGAL_CONSUMER_GROUP, "is not a name"),
        (consumer_settings("G", "T", tags="||"), Code.ILLEGAL_FILTER_EXPRESSION, "has no tag"),
    ],
    ids=["no role", "group", "tags"],
)
async def test_settings_that_are_refused_get_the_code_and_end_the_stream(
    tmp_path: Path, settings: Any, code: int, text: str
) -> None:
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        number = await client.telemetry(settings)
        outcome = client.client.calls[number]
        await outcome.ended.wait()
        (told,) = await client.told(number, 1)
        assert (told.status.code, told.WhichOneof("command"), outcome.status) == (code, None, 3)
        assert text in told.status.message
        assert text in outcome.text


async def test_refused_settings_are_counted_and_told_once_for_each_address_and_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = (consumer_settings("G", "T", tags="||"), consumer_settings("G", "T", tags="||"), consumer_settings("a b"))
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        for settings in refused:
            await client.client.calls[await client.telemetry(settings)].ended.wait()
        assert await trio.to_thread.run_sync(main, ["metrics", "--data", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    lines = [record.getMessage() for record in caplog.records if "grpc_settings_refused" in record.getMessage()]
    assert [line.partition("reason")[0] for line in lines] == [
        "event=grpc_settings_refused peer=127.0.0.1 client='client@1' code=ILLEGAL_FILTER_EXPRESSION ",
        "event=grpc_settings_refused peer=127.0.0.1 client='client@1' code=ILLEGAL_CONSUMER_GROUP ",
    ]
    named = 'rocketbox_refusals_total{port="grpc",request="Telemetry",response="%s"} %d.0'
    assert named % ("ILLEGAL_FILTER_EXPRESSION", 2) in text
    assert named % ("ILLEGAL_CONSUMER_GROUP", 1) in text


async def test_a_receive_says_why_settings_were_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SettingsWaits.wait, "__defaults__", (0.05,))
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        await client.client.calls[await client.telemetry(consumer_settings("G", "T", tags="||"))].ended.wait()
        status, _ = await client.receive(receiving("G", "T", tags="||"))
        assert status.code == Code.ILLEGAL_FILTER_EXPRESSION


async def test_a_consumer_with_sql_that_does_not_compile_starts_and_its_receives_are_refused(tmp_path: Path) -> None:
    settings = consumer_settings("G", "T", "U")
    settings.subscription.subscriptions[0].expression.type = definition_pb2.FilterType.SQL
    settings.subscription.subscriptions[0].expression.expression = "a >"
    async with grpc_box(tmp_path, topics=("T", "U")) as (_, port), asking(port) as client:
        (answer,) = await client.told(await client.telemetry(settings), 1)
        assert (answer.status.code, len(answer.settings.subscription.subscriptions)) == (Code.OK, 2)
        status, _ = await client.receive(receiving("G", "T", tags="a >", kind=definition_pb2.FilterType.SQL))
        assert status.code == Code.ILLEGAL_FILTER_EXPRESSION
        await client.ask("SendMessage", sending(message("U")))
        assert len((await client.receive(receiving("G", "U")))[1]) == 1


async def test_large_settings_that_nobody_reads_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "MOST_UNREAD_BYTES", 100_000)
    large = producer_settings(*["T"] * 13_000)  # the first fills the window
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        client.client.acknowledging = False
        numbers = [await client.telemetry(large) for _ in range(3)]
        refused = client.client.calls[numbers[2]]
        await refused.ended.wait()
        assert (refused.status, "still to read" in refused.text) == (8, True)


async def test_a_stream_whose_client_does_not_read_its_settings_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "UNREAD_S", 0.05)
    large = producer_settings(*["T"] * 13_000)
    async with grpc_box(tmp_path) as (_, port), asking(port) as client:
        client.client.acknowledging = False
        numbers = [await client.telemetry(large) for _ in range(2)]
        stuck = client.client.calls[numbers[1]]
        await stuck.ended.wait()
        assert stuck.status == 1


def test_client_properties_have_bounds() -> None:
    settings = producer_settings("T")
    settings.client_properties.update({f"k{n}": "v" for n in range(32)})
    check_settings(settings)
    settings.client_properties["k0"] = "v" * 4097
    with pytest.raises(Rejection):
        check_settings(settings)
    settings.client_properties["k0"] = ""
    settings.client_properties["k32"] = ""
    with pytest.raises(Rejection):
        check_settings(settings)
