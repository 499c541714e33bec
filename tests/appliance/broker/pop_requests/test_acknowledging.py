"""Acknowledgements and renewals over a socket."""

import base64
from pathlib import Path

import pytest
import trio
import trio.testing

from appliance.broker.pop.pop_queue import Take
from appliance.broker.pop.pop_table import key_of
from appliance.broker.pop_requests.acknowledging import Acknowledging
from appliance.broker.pop_requests.checks import PopChecks, PopRules
from appliance.broker.tables.compile_pace import CompilePace
from appliance.requests import Answer
from appliance.testing import FakePeer, answered
from tests.appliance.box import ask, connected, running_box, send
from tests.appliance.broker.pop.bench import pop_bench
from tests.appliance.broker.pop_requests.requests import batch, bodies, pop, popped
from tests.costs import steps
from tests.waiting import until


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


async def test_a_repeated_acknowledgement_is_answered_no_sooner_than_the_first(tmp_path: Path) -> None:
    async with pop_bench(tmp_path, run=False) as bench, trio.open_nursery() as nursery:
        await bench.send(b"1")
        checks = PopChecks(PopRules("address", "box"), bench.topics, bench.groups, CompilePace(lambda: 0.0))
        acks = Acknowledging(bench.engine, checks, bench.small.store, bench.topics)
        due = bench.table.due_in(60_000)
        queue = bench.table.open(key_of("G", "T", 0), 0)
        bench.table.take(Take(queue, (0,), 5, due), 1)
        ack = ask(200051, consumerGroup="G", topic="T", queueId=0, offset=0, extraInfo="0 5 60000 0 0 box 0 0")
        done: list[int] = []

        async def wait(answer: Answer) -> None:
            done.append((await answered(answer)).code)

        for _ in range(2):
            nursery.start_soon(wait, acks.handle(ack, FakePeer()))
        await trio.testing.wait_all_tasks_blocked()
        assert done == []
        nursery.start_soon(bench.engine.run)
        await until(lambda: done == [0, 0])
        nursery.cancel_scope.cancel()


async def test_a_deleted_topic_takes_its_retry_topics_with_it(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        await channel.ask(send("T", b"1"))
        await bodies(channel, pop(invisibleTime=1))
        (again,) = popped(await channel.ask(pop(poll_ms=10_000)))
        assert again.real_topic == "%RETRY%CG_T"
        route = ask(351, topic=again.real_topic)
        assert (await channel.ask(route)).code == 0
        assert (await channel.ask(ask(215, topic="T"))).code == 0
        assert (await channel.ask(route)).code == 17


async def test_a_batch_of_too_many_messages_is_refused_before_they_are_looked_for(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        await channel.ask(send("T", b"1"))
        (message,) = popped(await channel.ask(pop()))
        fields = message.handle.split()
        bits = base64.b64encode(b"\xff" * 64).decode()
        take = {"c": "CG", "t": "T", "r": "0", "so": 0, "q": int(fields[6]), "pt": int(fields[1]), "it": 1, "b": bits}
        with steps() as taken:
            refused = await channel.ask(batch(*[take] * 1024))
        assert (refused.code, "at most 4096 are acknowledged together" in (refused.remark or "")) == (13, True)
        assert taken() < 150_000
        assert (await channel.ask(batch(*[take] * 8))).code == 0
