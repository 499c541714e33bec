"""A whole box at which requests wait for messages: what each keeps is small, however long its fields are."""

from pathlib import Path

import pytest
import trio
import trio.testing

from netstack.wire.command import RemotingCommand, encode_command
from netstack.wire.message_headers import PullMessageHeader
from tests.appliance.box import ask, connected, pull, running_box, send
from tests.appliance.broker.pop_requests.requests import pop
from tests.costs import kept

LONG = "x" * 100_000
TAGS = "||".join(f"t{number}" for number in range(4500))
COUNT, POLL_MS = 60, 60_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "waits",
    [
        pull("T", 1, expression_type=LONG, flags=PullMessageHeader.CLASS_FILTER, suspend_ms=POLL_MS),
        pop("Empty", poll_ms=POLL_MS, order="true", attemptId=LONG),
        ask(200054, consumerGroup="CG", topic="Empty", queueId=-1, pollTime=POLL_MS, order="true", attemptId=LONG),
        ask(200054, consumerGroup="CG", topic="Empty", queueId=-1, pollTime=POLL_MS, exp=TAGS, expType="TAG"),
        pop("Empty", poll_ms=POLL_MS, exp=TAGS, expType="TAG"),
        pull("T", 1, subscription=TAGS, suspend_ms=POLL_MS),
    ],
    ids=[
        *("type of a filter", "attempt of a pop", "attempt of a notification"),
        *("tags of a notification", "tags of a pop", "tags of a pull"),
    ],
)
async def test_what_waits_keeps_little_of_its_request(tmp_path: Path, waits: RemotingCommand) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        await channel.ask(send("T"))
        await channel.ask(send("Empty"))
        await channel.ask(pop("Empty"))  # what is there is taken, and the code of POP loaded
        await channel.ask(ask(200054, consumerGroup="CG", topic="Empty", queueId=-1, pollTime=0, bornTime=1))
        stream = await trio.open_tcp_stream("127.0.0.1", box.broker_port)
        frame = encode_command(waits)
        with kept() as taken:
            for _ in range(COUNT):
                await stream.send_all(frame)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert taken() < COUNT * 25_000, "one filter is kept, of all others nothing"
        await channel.ask(send("T"))
        await channel.ask(send("Empty"))
        await stream.aclose()
