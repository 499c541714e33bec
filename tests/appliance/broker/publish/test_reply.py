"""Replies to request messages."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from appliance.broker.access.accounts import Account
from appliance.broker.intake import Intake
from appliance.broker.publish.questions import Questions
from appliance.broker.publish.reply import Askers, Replies, ReplyRules
from appliance.broker.tables.clients import ClientTable, Member
from appliance.broker.tables.topics import Topic
from appliance.testing import STORE_HOST, FakePeer, SmallStore, answered, small_store
from netstack.errors import AskTimeout, Refused
from netstack.wire.codes import RequestCode
from netstack.wire.command import RemotingCommand, request
from netstack.wire.message_headers import SendMessageHeader
from storage_driver.record import decode_properties

PROPERTIES = "CORRELATION_ID\x01c1\x02REPLY_TO_CLIENT\x01asker@1\x02TTL\x013000\x02MSG_TYPE\x01reply\x02"


def reply(properties: str = PROPERTIES) -> RemotingCommand:
    header = SendMessageHeader("P", "Edge_REPLY_TOPIC", "TBW102", 4, 0, 0, 55, 3, properties)
    return request(RequestCode.SEND_REPLY_MESSAGE_V2, header.to_ext(), b"answer")


@asynccontextmanager
async def replies(folder: Path) -> AsyncIterator[tuple[Replies, ClientTable, SmallStore]]:
    async with small_store(folder) as small:
        clients = ClientTable(now_ms=lambda: 1)
        rules = ReplyRules(lambda header, peer: Topic(header.topic, 1, 1), lambda properties: None, STORE_HOST)
        yield (
            Replies(rules, Askers(clients, Questions()), small.store, Intake(small.store), now_ms=lambda: 77),
            clients,
            small,
        )


def asker(clients: ClientTable, answer: RemotingCommand | Exception) -> FakePeer:
    peer = FakePeer(9)
    peer.answers[int(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)] = answer
    clients.producer_joined(peer, "ASKERS", Member("asker@1", "JAVA", 409, 1))
    return peer


async def test_a_reply_reaches_the_client_that_asked_and_is_kept(tmp_path: Path) -> None:
    async with replies(tmp_path) as (handler, clients, small):
        peer = asker(clients, request(0).reply())
        response = await answered(handler.handle(reply(), FakePeer(2, ("10.0.0.7", 4711))))
        (kept,) = await small.all("Edge_REPLY_TOPIC")
    code, ext, body = peer.told[0]
    assert (response.code, response.ext["queueId"], response.ext["TRACE_ON"]) == (0, "0", "true")
    assert response.ext["msgId"] == kept.message_id
    assert (code, body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"answer")
    assert (ext["bornHost"], ext["storeHost"], ext["storeTimestamp"]) == ("10.0.0.7:4711", "127.0.0.1:10911", "77")
    assert (ext["bornTimestamp"], ext["flag"], ext["producerGroup"]) == ("55", "3", "P")
    assert decode_properties(ext["properties"]) == decode_properties(PROPERTIES) | {"PUSH_REPLY_TIME": "77"}
    assert kept.body == b"answer"


async def test_the_replier_learns_that_the_asker_is_gone(tmp_path: Path) -> None:
    async with replies(tmp_path) as (handler, clients, small):
        response = await answered(handler.handle(reply(), FakePeer()))
        assert response.code == 1
        assert "asker@1" in str(response.remark)
        peer = asker(clients, AskTimeout("10.0.0.9:1", 326, 10.0))
        assert (await answered(handler.handle(reply(), FakePeer()))).code == 1
        peer.close()
        assert (await answered(handler.handle(reply(), FakePeer()))).code == 1
        assert len(peer.told) == 1
        assert len(await small.all("Edge_REPLY_TOPIC")) == 3


@pytest.mark.parametrize("properties", ["", "CORRELATION_ID\x01c1\x02"])
async def test_a_reply_to_nobody_fails_and_is_kept_all_the_same(tmp_path: Path, properties: str) -> None:
    async with replies(tmp_path) as (handler, _, small):
        response = await answered(handler.handle(reply(properties), FakePeer()))
        assert response.code == 1
        assert "REPLY_TO_CLIENT" in str(response.remark)
        assert len(await small.all("Edge_REPLY_TOPIC")) == 1


async def test_a_client_that_refuses_the_reply_is_reported(tmp_path: Path) -> None:
    async with replies(tmp_path) as (handler, clients, _):
        asker(clients, request(0).reply(1, "no such request"))
        response = await answered(handler.handle(reply(), FakePeer()))
        assert (response.code, str(response.remark).endswith("no such request")) == (1, True)


class MuteAsker(FakePeer):
    """It takes replies and answers none."""

    async def ask(self, code: int, ext: Mapping[str, str], body: bytes = b"", *, timeout_s: float) -> RemotingCommand:
        await trio.sleep_forever()
        raise AssertionError


async def test_replies_whose_askers_do_not_answer_hold_a_part_of_what_all_requests_may_have(tmp_path: Path) -> None:
    async with replies(tmp_path) as (handler, clients, _), trio.open_nursery() as nursery:
        clients.producer_joined(MuteAsker(9), "ASKERS", Member("asker@1", "JAVA", 409, 1))

        async def push(address: str, size: int) -> None:
            sent = reply()
            sent.body = bytes(size)
            await answered(handler.handle(sent, FakePeer(2, (address, 4711))))

        for address, size in (("10.0.0.7", 8 << 20), ("10.0.0.8", 4 << 20)):
            nursery.start_soon(push, address, size)
            await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(Refused, match="replies of 12582912 bytes wait for their askers") as refused:
            await push("10.0.0.7", 64 << 10)
        assert refused.value.code == 2
        nursery.start_soon(push, "10.0.0.9", 2 << 20)
        await trio.testing.wait_all_tasks_blocked()
        assert handler._pushed_bytes == 14 << 20
        nursery.cancel_scope.cancel()
    assert (handler._pushed_bytes, dict(handler._shares._of)) == (0, {})


def test_who_asked_without_a_key_is_answered_without_a_key_whatever_id_a_key_takes() -> None:
    clients, plain, keyed = ClientTable(now_ms=lambda: 1), FakePeer(1), FakePeer(2)
    keyed.signer = key = Account("device-1", "not-used-here")
    for peer in (plain, keyed):
        clients.producer_joined(peer, "P", Member("asker@1", "JAVA", 409, 1))
    askers = Askers(clients, Questions())
    asked = {"REPLY_TO_CLIENT": "asker@1", "CORRELATION_ID": "c1"}
    assert (askers.find(asked, None), askers.find(asked, key)) == (plain, None)
    plain.close()
    assert askers.find(asked, key) is keyed
