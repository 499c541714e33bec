"""Who may call: signed headers, keys and their permissions, sessions that end with their connection."""

import hashlib
import hmac
from pathlib import Path

import pytest

from appliance.broker.access.accounts import Account
from appliance.grpc.clients import MOST_SESSIONS, credentials, proves
from netstack.grpc.v2 import definition_pb2, service_pb2
from tests.appliance.box import ask, connected
from tests.appliance.grpc.asking import Asker, Code, asking, grpc_box, message, producer_settings, sending, stored
from tests.appliance.keys import ADMIN, ADMIN_SECRET, DEVICE, KEYS_MODE, SECRET, write
from tests.appliance.keys import signed as signed_remoting

TIME = "20261125T101010Z"
NAMED = {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false", "defaultTopic": "TBW102"}


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
        for number in range(MOST_SESSIONS + 3):
            one = Asker(client.client, f"client@{number}")
            assert (await one.ask("SendMessage", sending(message("T", b"%d" % number)))).status.code == Code.OK
        assert len(await stored(box, "T")) == 32
        long = Asker(client.client, "c" * 1025)
        assert (await long.ask("SendMessage", sending(message("T")))).status.code == Code.CLIENT_ID_REQUIRED


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
