"""A whole box whose peer asks for much at once and reads nothing: what it takes is bounded, and others are answered."""

import json
from pathlib import Path

import pytest
import trio
import trio.testing

from netstack.testing import read_commands
from netstack.wire.codes import RequestCode
from netstack.wire.command import RemotingCommand, encode_command, request
from netstack.wire.frame import MIB
from netstack.wire.message_headers import PullMessageHeader
from tests.appliance.box import ask, connected, pull, running_box, send
from tests.costs import peak

TABLES = 10_000  # as many topics and groups as a box takes
MOST_MIB = 40  # 8 MiB unread of the connection, the table, its encoding, what is being made


def fill_tables(data: Path) -> None:
    """Let a box start with all the topics and groups it takes."""
    config = data / "store" / "config"
    config.mkdir(parents=True)
    topics = {f"T{n}": {"topicName": f"T{n}", "readQueueNums": 4, "writeQueueNums": 4} for n in range(TABLES - 20)}
    groups = {f"G{n}": {"groupName": f"G{n}"} for n in range(TABLES - 20)}
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    (config / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": groups}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "count", "name"),
    [
        (RequestCode.GET_ALL_TOPIC_CONFIG, 100, b"T9000"),
        (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, 100, b"G9000"),
        (RequestCode.GET_ALL_TOPIC_CONFIG, 8_760, b"T9000"),
    ],
)
async def test_whole_tables_that_nobody_reads_take_a_bounded_room_and_hold_nobody_up(
    tmp_path: Path, code: int, count: int, name: bytes
) -> None:
    fill_tables(tmp_path)
    async with running_box(tmp_path) as box, connected(box) as channel, trio.open_nursery() as nursery:
        assert (await channel.ask(send("T"), 60)).code == 0  # whoever says nothing at first is not kept long
        stream = await trio.open_tcp_stream("127.0.0.1", box.broker_port)
        with peak() as taken:
            nursery.start_soon(stream.send_all, encode_command(request(code)) * count)  # it may never be done
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert (await channel.ask(ask(RequestCode.GET_BROKER_RUNTIME_INFO), 30)).code == 0
        assert taken() < MOST_MIB * MIB
        assert name in (await read_commands(stream, 1))[0].body
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_fifty_kilobytes_of_pulls_that_nobody_reads_take_a_bounded_room(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        for _ in range(4):
            assert (await channel.ask(send("T", bytes(MIB)))).code == 0
        frame = encode_command(pull("T"))
        stream = await trio.open_tcp_stream("127.0.0.1", box.broker_port)
        with peak() as taken:
            await stream.send_all(frame * (51_000 // len(frame)))
            await trio.testing.wait_all_tasks_blocked(0.05)
        assert taken() < MOST_MIB * MIB
        answers = await read_commands(stream, 51_000 // len(frame))
        assert {answer.code for answer in answers} == {0}, "whoever reads at last gets all of it"


@pytest.mark.parametrize("part", ["body", "remark", "text"])
async def test_pulls_that_wait_keep_little_of_what_came_with_them(tmp_path: Path, part: str) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        assert (await channel.ask(send("T"))).code == 0
        stream = await trio.open_tcp_stream("127.0.0.1", box.broker_port)
        with peak() as taken:
            for _ in range(100):
                await stream.send_all(encode_command(_waiting(part)))
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert (await channel.ask(ask(RequestCode.GET_BROKER_RUNTIME_INFO), 30)).code == 0
        assert taken() < 4 * MIB
        await stream.aclose()


def _waiting(part: str) -> RemotingCommand:
    """Return a pull that waits and has a large part."""
    flags = PullMessageHeader.CLASS_FILTER if part == "text" else 0
    waiting = pull("T", 1, suspend_ms=20_000, flags=flags, subscription="t" * 100_000 if part == "text" else "*")
    waiting.body, waiting.remark = bytes(100_000 * (part == "body")), "r" * (100_000 * (part == "remark"))
    return waiting
