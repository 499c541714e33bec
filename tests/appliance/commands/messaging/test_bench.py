"""bench: its figures are what was acknowledged and consumed, and it leaves nothing behind."""

import json
import sys
from functools import partial
from typing import Any

import pytest
import trio

from netstack.serving.peer import Peer
from netstack.testing import serving
from netstack.wire.command import RemotingCommand
from netstack.wire.conversation import Answer, AsyncReply, Reply
from tests.interop.box import ROOT
from tests.netstack.client.small_cluster import ROUTE

STORED = {"msgId": "7F00000100002A9F00000000000003E8", "queueId": "0", "queueOffset": "5"}
SENDS = 310


@pytest.mark.slow
def test_bench_prints_its_figures(rocketbox: Any) -> None:
    code, (figures,), err = rocketbox("bench", "-n", "2000", "--size", "200")
    assert code == 0
    assert figures["failed"] == 0
    assert figures["produced_per_s"] > 100 < figures["consumed_per_s"]
    assert "2,000 messages sent" in err
    assert "left_behind" not in figures
    topics = {row["topic"] for row in rocketbox("topics", "list", "--all", "--json")[1]}
    groups = {row["group"] for row in rocketbox("groups", "list", "--all", "--json")[1]}
    assert not [name for name in topics | groups if "bench_" in name], "nothing is left behind"
    code, (figures,), _ = rocketbox("bench", "-n", "2000", "--batch", "50", "--only", "produce")
    assert code == 0
    assert [row["topic"] for row in rocketbox("tail", figures["topic"], "-n", "1")[1]] == [figures["topic"]]
    topic = figures["topic"]
    code, (figures,), _ = rocketbox("bench", "-n", "2000", "--only", "consume", "--topic", topic)
    assert (code, figures["topic"], "produced_per_s" in figures) == (0, topic, False)


def test_bench_does_not_wait_for_messages_of_a_topic_that_nobody_named(rocketbox: Any) -> None:
    code, rows, err = rocketbox("bench", "--only", "consume")
    assert (code, rows, err) == (2, [], "rocketbox: --only consume needs --topic with messages in it\n")


@pytest.mark.slow
async def test_what_was_not_acknowledged_in_time_counts_as_failed() -> None:
    ports, seen = [0], 0

    def answer(request: RemotingCommand, peer: Peer) -> Answer:
        nonlocal seen
        if request.code != SENDS:
            return Reply(request.reply(body=ROUTE % (ports[0], 1, 1)))
        seen += 1
        if seen <= 31:  # one to warm up, thirty of the fifty
            return Reply(request.reply(0, None, STORED))

        async def late() -> RemotingCommand:
            await trio.sleep(2)
            return request.reply(0, None, STORED)

        return AsyncReply(late)

    async with serving(answer) as ports[0]:
        words = ["--only", "produce", "--topic", "T", "-n", "50", "--timeout", "0.5"]
        command = [sys.executable, "-m", "appliance", "bench", "--namesrv", f"127.0.0.1:{ports[0]}", *words]
        run = partial(trio.run_process, command, cwd=ROOT, check=False, capture_stdout=True, capture_stderr=True)
        done = await run()
    assert done.stdout, done.stderr.decode()
    figures = json.loads(done.stdout)
    assert (done.returncode, figures["failed"]) == (1, 20), done.stderr
    assert figures["produced_per_s"] <= 30 / 0.5
    assert figures["first_failure"] == "20 messages were not acknowledged within 0.5 s"
