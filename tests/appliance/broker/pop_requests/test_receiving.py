"""POP_MESSAGE over a socket: answers, refusals in order, waits and their limits."""

from pathlib import Path
from typing import Any

import pytest
import trio

from netstack.wire.command import RemotingCommand
from tests.appliance.box import ask, connected, running_box, send
from tests.appliance.broker.pop_requests.requests import bodies, pop, popped, until_waiting


async def test_an_answer_has_what_a_client_makes_handles_of(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        for body, queue_id in ((b"1", 0), (b"2", 0), (b"3", 1)):
            await channel.ask(send("T", body, queue_id=queue_id))
        answer = await channel.ask(pop(invisibleTime=5000))
        assert (answer.code, answer.ext["invisibleTime"], answer.ext["reviveQid"]) == (0, "5000", "0")
        assert sorted(answer.ext["startOffsetInfo"].split(";")) == ["0 0 0", "0 1 0"]
        assert sorted(answer.ext["msgOffsetInfo"].split(";")) == ["0 0 0,1", "0 1 0"]
        assert answer.ext["restNum"] == "0"
        assert "orderCountInfo" not in answer.ext
        assert {each.message.body for each in popped(answer)} == {b"1", b"2", b"3"}


async def test_nothing_there_is_210_with_all_fields_that_a_client_needs(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        await channel.ask(send("T"))
        assert len(await bodies(channel, pop())) == 1
        answer = await channel.ask(pop())
        assert answer.code == 210
        assert {"popTime", "invisibleTime", "reviveQid", "restNum"} <= answer.ext.keys()


async def test_a_retry_comes_under_the_topic_that_was_asked_for_with_its_own_handle(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        await channel.ask(send("T", b"again"))
        (first,) = popped(await channel.ask(pop(invisibleTime=100)))
        (second,) = popped(await channel.ask(pop(poll_ms=10_000)))
        assert (second.message.topic, second.message.body, second.message.reconsume_times) == ("T", b"again", 1)
        assert second.handle.split()[4:] == ["1", "box", "0", "0"]
        assert second.message.property_map["1ST_POP_TIME"] == first.handle.split()[1]
        assert (await channel.ask(second.ack())).code == 0
        assert await bodies(channel, pop()) == []


@pytest.mark.parametrize(
    ("toml", "command", "code"),
    [
        ("[broker]\npermission = 2\n", pop(most=33), 16),
        ("", pop("Unknown", most=33), 29),
        ("", pop("Unknown"), 17),
        ("", pop(most=0), 29),
        ("", pop(invisibleTime=-1), 29),
        ("", pop(queueId=99), 29),
        ("[broker]\nauto_create_groups = false\n", pop(), 26),
        ("", pop(exp="a >", expType="SQL92"), 23),
        ("[broker]\nproperty_filter = false\n", pop(exp="a > 1", expType="SQL92"), 1),
    ],
)
async def test_what_may_not_be_popped_is_refused(
    tmp_path: Path, toml: str, command: RemotingCommand, code: int
) -> None:
    async with running_box(tmp_path, toml) as box, connected(box) as channel:
        await channel.ask(send("T"))
        assert (await channel.ask(command)).code == code


async def test_a_broker_that_answers_no_readers_takes_no_acknowledgements(tmp_path: Path) -> None:
    """A slave is one: takes are its master's."""
    async with running_box(tmp_path, "[broker]\npermission = 2\n") as box, connected(box) as channel:
        await channel.ask(send("T"))
        handle = {"consumerGroup": "CG", "topic": "T", "queueId": 0, "offset": 0, "extraInfo": "0 1 2 0 0 box 0 0"}
        for code in (200051, 200053):
            assert (await channel.ask(ask(code, **handle))).code == 16


async def test_a_pop_waits_whatever_the_clock_of_its_client_says(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel, connected(box) as other:
        await channel.ask(send("T", b"old"))
        await bodies(channel, pop())
        got: list[bytes] = []

        async def wait() -> None:
            got.extend(await bodies(channel, pop(poll_ms=60_000, bornTime=1)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await until_waiting(other, 1)
            await other.ask(send("T", b"new"))
        assert got == [b"new"]


async def test_beyond_the_limit_of_parked_pulls_a_pop_does_not_wait(tmp_path: Path) -> None:
    async with running_box(tmp_path, "[limits]\nparked_pulls = 0\n") as box, connected(box) as channel:
        await channel.ask(send("T", b"1"))
        assert await bodies(channel, pop(poll_ms=60_000)) == [b"1"]
        assert (await channel.ask(pop(poll_ms=60_000))).code == 209


@pytest.mark.parametrize(
    ("fields", "expected"), [({"exp": "A"}, [b"a"]), ({"exp": "n > 1", "expType": "SQL92"}, [b"b"])]
)
async def test_a_filter_of_the_request_counts(tmp_path: Path, fields: dict[str, Any], expected: list[bytes]) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        await channel.ask(send("T", b"a", "TAGS\x01A\x02n\x011\x02"))
        await channel.ask(send("T", b"b", "TAGS\x01B\x02n\x012\x02"))
        assert await bodies(channel, pop(**fields)) == expected


async def test_an_ordered_pop_counts_deliveries_and_says_so_in_its_handles(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        await channel.ask(send("T", b"1"))
        first = await channel.ask(pop(queueId=0, order="true", invisibleTime=50))
        assert (first.ext["reviveQid"], first.ext["orderCountInfo"]) == ("999", "0 qo0%0 0;0 0 0")
        again = await channel.ask(pop(queueId=0, order="true", poll_ms=10_000))
        assert again.ext["orderCountInfo"] == "0 qo0%0 1;0 0 1"
        (message,) = popped(again)
        assert (await channel.ask(message.ack())).code == 0
