"""Who may call: signed headers, keys and their permissions, sessions that end with their connection."""

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
import trio

from appliance.broker.access.accounts import Account
from appliance.broker.consume.reading import Room
from appliance.broker.pop.engine import PopAnswer, PopEngine
from appliance.broker.pop.pop_queue import PopKey
from appliance.broker.pop.taking import PopRequest
from appliance.grpc.clients import (
    MOST_GUESTS,
    MOST_SETTINGS_BYTES,
    SILENT_ALONE_S,
    SILENT_S,
    ClientSessions,
    credentials,
    proves,
)
from appliance.grpc.kept_settings import KeptSettings
from appliance.grpc.outcome import Rejection
from appliance.grpc.renewals import GIVEN_BACK_MS
from netstack.grpc.calls import Call
from netstack.grpc.v2 import definition_pb2, service_pb2
from netstack.serving.outbox import Outbox
from netstack.serving.peer import Peer
from storage_driver.record import MessageQueue
from tests.appliance.box import ask, connected, send
from tests.appliance.grpc.asking import (
    Asker,
    Code,
    acking,
    asking,
    consumer_settings,
    grpc_box,
    message,
    producer_settings,
    receiving,
    sending,
    stored,
)
from tests.appliance.grpc.test_methods import Open
from tests.appliance.keys import ADMIN, ADMIN_SECRET, DEVICE, KEYS_MODE, SECRET, write
from tests.appliance.keys import signed as signed_remoting

TIME = "20261125T101010Z"
NAMED = {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false", "defaultTopic": "TBW102"}


class NeverAsked:
    """A stream of telemetry that is open."""

    def tell(self, *_: Any) -> bool:
        raise AssertionError

    async def ask(self, *_: Any, timeout_s: float) -> Any:
        raise AssertionError


def peer_with_outbox() -> Peer:
    return Peer(1, ("10.0.0.1", 5), ("10.0.0.2", 8081), Outbox())


def call_of(peer: Peer, client_id: str) -> Call:
    return Call(peer, {b"x-mq-client-id": client_id.encode()}, lambda messages, now: True, trio.current_time())


def signed(name: str, secret: str, *, upper: bool = True) -> dict[str, str]:
    digest = hmac.new(secret.encode(), TIME.encode(), hashlib.sha1).hexdigest()
    digest = digest.upper() if upper else digest
    text = f"MQv2-HMAC-SHA1 Credential={name}, SignedHeaders=x-mq-date-time, Signature={digest}"
    return {"x-mq-date-time": TIME, "authorization": text}


async def test_only_a_key_with_the_permission_sends(tmp_path: Path) -> None:
    write(tmp_path, DEVICE, ADMIN, Account("reader-1", "reader-secret", topics={"T": DEVICE.topics["SUBONLY"]}))
    async with grpc_box(tmp_path, KEYS_MODE, topics=()) as (box, port):
        async with connected(box) as line:
            made = ask(17, topic="T", readQueueNums=1, writeQueueNums=1, perm=6, **NAMED)
            assert (await line.ask(signed_remoting(made, "admin-1", ADMIN_SECRET))).code == 0
        expected = [
            ({}, Code.UNAUTHORIZED),
            (signed("device-1", SECRET), Code.OK),
            (signed("device-1", SECRET, upper=False), Code.OK),
            (signed("device-1", "wrong"), Code.UNAUTHORIZED),
            (signed("nobody-1", SECRET), Code.UNAUTHORIZED),
            (signed("reader-1", "reader-secret"), Code.FORBIDDEN),
        ]
        for metadata, code in expected:
            async with asking(port, **metadata) as client:
                found = await client.ask("SendMessage", sending(message("T")))
                assert Code.Name(found.status.code) == Code.Name(code)
        async with asking(port, **signed("reader-1", "reader-secret")) as client:
            route = service_pb2.QueryRouteRequest()
            route.topic.name = "T"
            assert (await client.ask("QueryRoute", route)).status.code == Code.OK
            number = await client.telemetry(producer_settings("T"))
            await client.client.calls[number].ended.wait()
            assert client.client.calls[number].status == 3, "it may not send to T"


async def test_a_transaction_is_ended_by_the_key_that_began_it(tmp_path: Path) -> None:
    other = Account("device-2", "other-secret", topics={"T": DEVICE.topics["T"]})
    write(tmp_path, DEVICE, ADMIN, other)
    async with grpc_box(tmp_path, KEYS_MODE, topics=()) as (box, port):
        async with connected(box) as line:
            made = ask(17, topic="T", readQueueNums=1, writeQueueNums=1, perm=6, **NAMED)
            await line.ask(signed_remoting(made, "admin-1", ADMIN_SECRET))
        half = message("T", message_type=definition_pb2.MessageType.TRANSACTION)
        async with asking(port, **signed("device-1", SECRET)) as client:
            (entry,) = (await client.ask("SendMessage", sending(half))).entries
        ending = service_pb2.EndTransactionRequest(transaction_id=entry.transaction_id, resolution=1)
        ending.topic.name = "T"
        for metadata, code in (
            (signed("device-2", "other-secret"), Code.FORBIDDEN),
            (signed("device-1", SECRET), Code.OK),
        ):
            async with asking(port, **metadata) as client:
                assert (await client.ask("EndTransaction", ending)).status.code == code


async def test_a_connection_keeps_few_client_ids_and_serves_all(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (box, port), asking(port) as client:
        for number in range(MOST_GUESTS + 3):
            one = Asker(client.client, f"client@{number}")
            assert (await one.ask("SendMessage", sending(message("T", b"%d" % number)))).status.code == Code.OK
        assert len(await stored(box, "T")) == 32
        long = Asker(client.client, "c" * 1025)
        assert (await long.ask("SendMessage", sending(message("T")))).status.code == Code.CLIENT_ID_REQUIRED


HEARTBEAT = service_pb2.HeartbeatRequest(client_type=definition_pb2.ClientType.PUSH_CONSUMER)
LEAVE = service_pb2.NotifyClientTerminationRequest()


async def test_a_client_is_one_whatever_connections_its_calls_come_on(tmp_path: Path) -> None:
    async with grpc_box(tmp_path) as (box, port), asking(port, "c@1") as first, asking(port, "c@1") as second:
        await first.told(await first.telemetry(consumer_settings("G", "T", push=True)), 1)
        await first.ask("SendMessage", sending(message("T")))
        assert (await second.ask("Heartbeat", HEARTBEAT)).status.code == Code.OK
        _, (found,) = await second.receive(receiving("G", "T"))
        async with connected(box) as line:
            members = await line.ask(ask(38, consumerGroup="G"))
        assert json.loads(members.body) == {"consumerIdList": ["c@1"]}
        await first.client.stream.aclose()
        assert (await second.ask("Heartbeat", HEARTBEAT)).status.code == Code.OK, "it lives on its other connection"
        assert (await second.ask("AckMessage", acking("G", "T", found))).status.code == Code.OK


async def test_a_client_of_another_key_is_another_client(tmp_path: Path) -> None:
    write(tmp_path, DEVICE, ADMIN, Account("device-2", "other-secret", topics={"T": DEVICE.topics["T"]}))
    async with grpc_box(tmp_path, KEYS_MODE, topics=()) as (box, port):
        async with connected(box) as line:
            made = ask(17, topic="T", readQueueNums=1, writeQueueNums=1, perm=6, **NAMED)
            await line.ask(signed_remoting(made, "admin-1", ADMIN_SECRET))
        mine, others = signed("device-1", SECRET), signed("device-2", "other-secret")
        async with asking(port, "c@1", **mine) as client, asking(port, "c@1", **others) as other:
            await client.told(await client.telemetry(producer_settings("T")), 1)
            assert (await other.ask("Heartbeat", HEARTBEAT)).status.code == Code.UNRECOGNIZED_CLIENT_TYPE
            await other.ask("NotifyClientTermination", LEAVE)
            assert (await client.ask("Heartbeat", HEARTBEAT)).status.code == Code.OK


async def test_what_a_client_of_another_key_has_in_flight_is_not_counted_for_one_of_the_same_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Account("device-2", "other-secret", topics=DEVICE.topics, groups=DEVICE.groups)
    write(tmp_path, DEVICE, ADMIN, other)
    owners, receive = set[str](), PopEngine.receive

    async def noted(engine: PopEngine, wanted: PopRequest, room: Room, *, parked: object = None) -> PopAnswer:
        owners.add(wanted.owner)
        return await receive(engine, wanted, room, parked=parked)

    monkeypatch.setattr(PopEngine, "receive", noted)
    async with grpc_box(tmp_path, KEYS_MODE, topics=()) as (box, port), connected(box) as line:
        made = ask(17, topic="T", readQueueNums=1, writeQueueNums=1, perm=6, **NAMED)
        await line.ask(signed_remoting(made, "admin-1", ADMIN_SECRET))
        for keys in (signed("device-1", SECRET), signed("device-2", "other-secret")):
            assert (await line.ask(signed_remoting(send("T")))).code == 0
            async with asking(port, "c@1", **keys) as client:
                await client.receive(receiving("CG", "T", invisible_s=30))
    assert owners == {"device-1/c@1", "device-2/c@1"}


async def test_more_clients_than_are_allowed_are_told_so(tmp_path: Path) -> None:
    async with grpc_box(tmp_path, "[limits]\nclients = 16\n") as (_, port), asking(port) as client:
        for number in range(18):
            one = Asker(client.client, f"client@{number}")
            stream = await one.telemetry(producer_settings())
            if number < 16:
                assert (await one.told(stream, 1))[0].status.code == Code.OK
                continue
            await client.client.calls[stream].ended.wait()
            assert "limits.clients allows 16" in client.client.calls[stream].text
        first = Asker(client.client, "client@0")
        assert (await first.ask("Heartbeat", HEARTBEAT)).status.code == Code.OK, "nobody makes room for others"
        await first.ask("NotifyClientTermination", LEAVE)
        await one.told(await one.telemetry(producer_settings()), 1)


async def test_the_settings_of_all_clients_have_a_budget_in_bytes() -> None:
    sessions, peer = ClientSessions(Open(), Open(), lambda handle, time_ms: None), peer_with_outbox()
    large, small = (KeptSettings(consumer_settings("G", *["T"] * count)) for count in (5000, 1))
    kept = [sessions.of(call_of(peer, "large@0"))]
    for number in range(MOST_SETTINGS_BYTES // len(large)):
        kept.append(sessions.of(call_of(peer, f"large@{number + 1}")))
        sessions.settle(kept[-2], large)
    one = kept.pop()
    with pytest.raises(Rejection) as refused:
        sessions.settle(one, large)
    assert (refused.value.status.code, one.settings) == (Code.TOO_MANY_REQUESTS, None)
    for _ in range(3):
        sessions.settle(kept[0], large)  # counts once
    sessions.settle(kept[0], small)
    sessions.settle(one, large)
    with pytest.raises(Rejection):
        sessions.settle(kept[0], large)
    assert kept[0].settings is small, "those before stay in force"
    kept[1].left()
    sessions.settle(kept[0], large)


async def test_a_silent_client_gives_its_messages_back_while_others_share_its_connection(
    autojump_clock: object,
) -> None:
    renewed: list[int] = []
    sessions = ClientSessions(Open(), Open(), lambda handle, time_ms: renewed.append(time_ms))
    peer = peer_with_outbox()
    lives, silent, cut = (sessions.of(call_of(peer, name)) for name in ("lives@1", "silent@1", "cut@1"))
    for each in (lives, silent, cut):
        sessions.settle(each, KeptSettings(consumer_settings("G", "T", push=True)))
        each.stream = NeverAsked() if each is not cut else None
        each.leases.add((PopKey("G", MessageQueue("T", 0)), 7, 1000), peer)
    await trio.sleep(SILENT_ALONE_S + 1)
    sessions.of(call_of(peer, "lives@1"))
    assert set(map(id, sessions.renewed())) == {id(lives.leases), id(silent.leases)}
    assert renewed == [GIVEN_BACK_MS], "what the one gave back whose stream had ended"
    await trio.sleep(SILENT_S - SILENT_ALONE_S)
    assert list(map(id, sessions.renewed())) == [id(lives.leases)]
    assert silent.settings is not None, "a client that only slept goes on"


async def test_a_call_that_began_long_ago_makes_no_client_silent(autojump_clock: object) -> None:
    sessions = ClientSessions(Open(), Open(), lambda handle, time_ms: None)
    peer = peer_with_outbox()
    first = call_of(peer, "lives@1")
    session = sessions.of(first)
    await trio.sleep(SILENT_S + 1)
    assert session.is_silent(trio.current_time())
    sessions.of(call_of(peer, "lives@1"))
    sessions.of(first)
    assert not session.is_silent(trio.current_time())


def test_a_client_that_said_nothing_of_itself_ends_with_its_first_connection() -> None:
    async def run() -> None:
        sessions = ClientSessions(Open(), Open(), lambda handle, time_ms: None)
        first, second = peer_with_outbox(), peer_with_outbox()
        sessions.of(call_of(first, "guest@1"))
        sessions.of(call_of(second, "guest@1"))
        first.end("eof")
        assert len(sessions) == 0

    trio.run(run)


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("MQv2-HMAC-SHA1 Credential=ak/region/x, SignedHeaders=x-mq-date-time, Signature=AB", ("ak", "AB")),
        ("MQv2-HMAC-SHA1 Signature=AB", ("", "")),
        ("Basic Credential=ak,Signature=AB", ("", "")),
        ("MQv2-HMAC-SHA1 " + "Credential=ak," * 200, ("", "")),
        ("", ("", "")),
    ],
)
def test_credentials_are_read_as_clients_write_them(header: str, found: tuple[str, str]) -> None:
    assert credentials(header) == found


def test_nothing_signed_proves_nothing() -> None:
    empty = hmac.new(b"secret", b"", hashlib.sha1).hexdigest()
    assert not proves("secret", b"", empty)
    assert not proves("secret", b"20261125T101010Z", "ü" * 40)
