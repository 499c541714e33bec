"""What the page changes, over plain HTTP: planned, confirmed once, logged, refused without the token."""

from __future__ import annotations

import html
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
import trio

from appliance.access.page_token import read_token
from appliance.page.changes import ChangeRefused, moment_of, number
from appliance.page.tickets import BURST
from netstack.serving.channel import Channel
from netstack.wire.codes import RequestCode
from tests.appliance.box import Box, ask, connected, heartbeat, messages_of, pull, running_box, send
from tests.appliance.page.test_answer import question, raw
from tests.ports import free_port
from tests.waiting import until

KEYS = "[access]\nmode = 'keys'\nadmin = 'keys'\n"


class Client:
    """Somebody with the token."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._bearer = port, f"Authorization: Bearer {token}"

    async def post(self, path: str, *lines: str, **form: str) -> tuple[int, str]:
        said = (
            await raw(self._port, question(path, self._bearer, *lines, method="POST", body=urlencode(form)))
        ).decode()
        return int(said.split()[1]), html.unescape(said)

    async def plan(self, do: str, **form: str) -> str:
        """Return the ticket of a change."""
        status, said = await self.post("/plan", do=do, **form)
        assert status == 200, said
        return str(re.findall(r'name="ticket" value="([^"]+)"', said)[0])

    async def change(self, do: str, **form: str) -> str:
        """Plan and confirm."""
        status, said = await self.post("/confirm", ticket=await self.plan(do, **form))
        assert status == 200, said
        return said


@asynccontextmanager
async def changing(folder: Path, more: str = "") -> AsyncIterator[tuple[Box, Client]]:
    port = free_port()
    async with running_box(folder, f"[page]\nport = {port}\n{more}") as box:
        yield box, Client(port, await trio.to_thread.run_sync(read_token, folder))


async def offset_of(channel: Channel, group: str, topic: str, queue_id: int = 0) -> int:
    answer = await channel.ask(ask(14, consumerGroup=group, topic=topic, queueId=queue_id), timeout_s=5)
    return int(answer.ext["offset"])


@pytest.mark.slow
async def test_a_topic_is_made_once_it_is_confirmed_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "appliance.page")
    async with changing(tmp_path) as (box, client), connected(box) as channel:
        ticket = await client.plan("create-topic", name="orders", queues="3")
        stored = ask(RequestCode.GET_TOPIC_CONFIG, topic="orders")
        assert (await channel.ask(stored, timeout_s=5)).code != 0  # planned is not made
        status, said = await client.post("/confirm", ticket=ticket)
        assert status == 200
        assert "with 3 queues" in said
        assert (await channel.ask(stored, timeout_s=5)).code == 0
        assert (await client.post("/confirm", ticket=ticket))[0] == 409  # a second click does nothing
        assert (await client.post("/plan", do="create-topic", name="orders", queues="3"))[0] == 400
    assert caplog.text.count("event=page_change do=create-topic by=") == 1
    assert "orders" in caplog.text


@pytest.mark.slow
async def test_a_box_with_keys_is_changed_by_its_own_key(tmp_path: Path) -> None:
    async with changing(tmp_path, KEYS) as (_, client):
        await client.change("create-topic", name="orders", queues="1")
        assert "Stored in orders" in await client.change("send-message", topic="orders", body="hello")


@pytest.mark.slow
async def test_a_group_without_members_goes_back_and_on(tmp_path: Path) -> None:
    async with changing(tmp_path) as (box, client), connected(box) as channel:
        for _ in range(9):
            await channel.ask(send("readings"), timeout_s=5)
        await channel.ask(ask(15, consumerGroup="billing", topic="readings", queueId=0, commitOffset=4), timeout_s=5)
        _, shown = await client.post("/plan", do="reset-group", group="billing", topic="readings", to="first")
        assert "4 messages" in shown
        assert await offset_of(channel, "billing", "readings") == 4
        await client.change("reset-group", group="billing", topic="readings", to="first")
        assert await offset_of(channel, "billing", "readings") == 0
        await client.change("reset-group", group="billing", topic="readings", to="last")
        assert await offset_of(channel, "billing", "readings") == 9
        await client.change("reset-group", group="billing", topic="readings", to="time", time="2020-01-01")
        assert await offset_of(channel, "billing", "readings") == 0
        await client.change("reset-group", group="billing", topic="readings", to="time", time="2100-01-01")
        assert await offset_of(channel, "billing", "readings") == 9  # the last message does not come again
        assert (await client.post("/plan", do="reset-group", group="nobody", topic="readings", to="first"))[0] == 400


@pytest.mark.slow
async def test_members_are_told_of_a_reset_where_a_queue_has_no_offset_unless_their_group_is_deleted(
    tmp_path: Path,
) -> None:
    async with changing(tmp_path) as (box, client), connected(box) as channel:
        await client.change("create-topic", name="readings", queues="2")
        await channel.ask(send("readings"), timeout_s=5)
        await channel.ask(heartbeat("c1", consumers={"billing": {"readings": "*"}}), timeout_s=5)
        await channel.ask(ask(15, consumerGroup="billing", topic="readings", queueId=0, commitOffset=1), timeout_s=5)
        assert "continue there" in await client.change("reset-group", group="billing", topic="readings", to="first")
        assert (await channel.ask(ask(207, groupName="billing"), timeout_s=5)).code == 0
        ticket = await client.plan("reset-group", group="billing", topic="readings", to="first")
        status, said = await client.post("/confirm", ticket=ticket)
        assert (status, "stop them" in said) == (409, True)
        assert await offset_of(channel, "billing", "readings") == 1


@pytest.mark.slow
async def test_a_test_message_arrives_with_key_and_tag(tmp_path: Path) -> None:
    async with changing(tmp_path) as (box, client), connected(box) as channel:
        await client.change("create-topic", name="orders", queues="1")
        await client.change("send-message", topic="orders", body="grüße", key="k-1", tag="test")
        (message,) = messages_of(await channel.ask(pull("orders"), timeout_s=5))
        assert bytes(message.body) == "grüße".encode()
        assert "Stored in" in await client.change("send-message", topic="orders", body="\x01" * 2048)  # %01 each
        assert (message.property_map["KEYS"], message.property_map["TAGS"]) == ("k-1", "test")
        for form in (
            {"topic": "TBW102", "body": "x"},
            {"topic": "nothing", "body": "x"},
            {"topic": "orders", "body": ""},
        ):
            assert (await client.post("/plan", do="send-message", **form))[0] == 400
        assert (await client.post("/plan", do="send-message", topic="orders", body="x", key="a\1b\2"))[0] == 400
        assert (await client.post("/plan", do="send-message", topic="orders", body="x" * 2049))[0] == 400


@pytest.mark.slow
async def test_a_dead_letter_comes_again_to_its_group_alone(tmp_path: Path) -> None:
    async with changing(tmp_path) as (box, client), connected(box) as channel:
        await channel.ask(heartbeat("c1", consumers={"billing": {"orders": "*"}}), timeout_s=5)
        sent = await channel.ask(send("orders", b"pay", "KEYS\1k-1"), timeout_s=5)
        (message,) = messages_of(await channel.ask(pull("orders"), timeout_s=5))
        back = ask(36, offset=message.log_offset, group="billing", delayLevel=-1, originTopic="orders")
        assert (await channel.ask(back, timeout_s=5)).code == 0
        (dead,) = messages_of(await channel.ask(pull("%DLQ%billing"), timeout_s=5))
        said = await client.change("resend", at=dead.message_id)
        assert "%RETRY%billing" in said
        found = messages_of(await channel.ask(pull("%RETRY%billing", group="billing"), timeout_s=5))
        assert [bytes(each.body) for each in found] == [b"pay"]
        assert found[0].property_map["RETRY_TOPIC"] == "orders"
        assert found[0].property_map["KEYS"] == "k-1"
        assert found[0].reconsume_times == 0
        noted = tmp_path / "store/rocketbox/resent.json"  # so that the condition `dead_letters` ends
        await until(noted.exists)
        assert json.loads(noted.read_text()) == {"resent": [["%DLQ%billing", 0, [0]]]}
        not_dead = sent.ext["msgId"]
        for at in (not_dead, "nothing", ""):
            assert (await client.post("/plan", do="resend", at=at))[0] == 400


@pytest.mark.slow
async def test_without_the_token_and_from_other_sites_nothing_is_planned(tmp_path: Path) -> None:
    async with changing(tmp_path) as (_, client):
        nobody = Client(client._port, "guessed")
        for path in ("/plan", "/confirm", "/uplink"):
            assert (await nobody.post(path, do="create-topic", name="x"))[0] == 401
            for line in ("Origin: http://evil.example", "Sec-Fetch-Site: cross-site"):
                assert (await client.post(path, line, do="create-topic", name="x"))[0] == 403
        assert b" 401 " in await raw(client._port, question("/create"))
        assert b" 413 " in await raw(client._port, question("/plan", method="POST", body="x" * 9000))
        assert (await client.post("/plan", do="format-disk"))[0] == 400


@pytest.mark.slow
async def test_too_many_changes_are_told_to_wait(tmp_path: Path) -> None:
    async with changing(tmp_path) as (_, client):
        found = [(await client.post("/plan", do="nothing"))[0] for _ in range(BURST + 3)]
        assert found[: BURST - 1] == [400] * (BURST - 1)
        assert found[-1] == 429


@pytest.mark.parametrize("text", ["", "0", "129", "-1", "1.5", "²", "1" * 5000])
def test_a_count_outside_of_its_bounds_is_refused(text: str) -> None:
    with pytest.raises(ChangeRefused, match="from 1 to 128"):
        number(text, "queues", 128)


@pytest.mark.parametrize("text", ["", "soon", "0001-01-01T00:00+23:00", "1950-01-01", "9" * 4000])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ChangeRefused):
        moment_of({"to": "time", "time": text})
