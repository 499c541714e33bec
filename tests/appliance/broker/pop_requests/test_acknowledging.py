"""Acknowledgements and renewals over a socket."""

from pathlib import Path

import pytest

from tests.appliance.box import ask, connected, running_box, send
from tests.appliance.broker.pop_requests.requests import batch, bodies, pop, popped


async def test_an_acknowledged_message_moves_the_offset_of_its_group(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        await channel.ask(send("T", b"1"))
        (message,) = popped(await channel.ask(pop()))
        offset = ask(14, consumerGroup="CG", topic="T", queueId=0)
        assert (await channel.ask(offset)).ext["offset"] == "0"
        assert (await channel.ask(message.ack())).code == 0
        assert (await channel.ask(offset)).ext["offset"] == "1"
        assert (await channel.ask(message.ack())).code == 0  # twice is once


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"topic": "Unknown"}, 17),
        ({"queueId": 99}, 13),
        ({"queueId": -1}, 13),
        ({"offset": 77}, 208),
        ({"offset": -1}, 208),
        ({"extraInfo": "no handle"}, 13),
    ],
)
@pytest.mark.parametrize("code_of_request", [200051, 200053])
async def test_what_names_no_message_is_refused(
    tmp_path: Path, wrong: dict[str, object], code: int, code_of_request: int
) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        await channel.ask(send("T", b"1"))
        (message,) = popped(await channel.ask(pop()))
        assert (await channel.ask(message.ack(code_of_request, invisibleTime=5, **wrong))).code == code


async def test_a_renewal_moves_the_time_and_both_handles_are_valid(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        await channel.ask(send("T", b"1"))
        (message,) = popped(await channel.ask(pop(invisibleTime=30_000)))
        answer = await channel.ask(message.ack(200053, invisibleTime=60_000))
        fields = message.handle.split()
        assert (answer.code, answer.ext["popTime"], answer.ext["reviveQid"]) == (0, fields[1], "0")
        assert 60_000 <= int(answer.ext["invisibleTime"]) < 70_000
        assert (await channel.ask(message.ack())).code == 0
        gone = await channel.ask(message.ack(200053, invisibleTime=1))
        assert (gone.code, "no longer in flight" in (gone.remark or "")) == (208, True)
        assert (await channel.ask(message.ack(200053, invisibleTime=-1))).code == 29


async def test_a_batch_acknowledges_what_it_can(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        for number in range(4):
            await channel.ask(send("T", b"%d" % number))
        taken = popped(await channel.ask(pop(invisibleTime=300)))
        of_take = {"c": "CG", "t": "T", "r": "0", "so": 0, "q": 0, "rq": 0, "it": 300, "pt": taken[0].handle.split()[1]}
        unknown, unreadable = {**of_take, "t": "Unknown", "b": "AQ=="}, {**of_take, "b": "%"}
        answer = await channel.ask(batch(unknown, {**of_take, "b": "BQ=="}, unreadable))  # offsets 0 and 2
        assert answer.code == 0
        again: list[bytes] = []
        while len(again) < 2:
            again += await bodies(channel, pop(poll_ms=10_000))
        assert sorted(again) == [b"1", b"3"]


async def test_a_batch_without_acknowledgements_or_with_too_many_is_refused(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        assert (await channel.ask(batch())).code == 208
        assert (await channel.ask(batch(*[{"c": "CG", "t": "T", "b": "AQ=="}] * 1025))).code == 13
