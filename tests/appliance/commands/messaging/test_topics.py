"""`rocketbox topics` against two brokers of one cluster that have a topic with settings of their own."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from appliance.commands.messaging.topics import add_arguments
from netstack.client.admin import Admin
from netstack.wire.bodies_route import TopicConfig
from tests.appliance.commands.messaging.two_brokers import two_brokers


async def topics(admin: Admin, *words: str) -> Any:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    arguments = parser.parse_args([*words, "--json"])
    return await arguments.act(admin, arguments)


async def test_a_change_leaves_what_it_does_not_name_as_each_broker_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with two_brokers(tmp_path) as admin:
        await admin.put_topic_config(TopicConfig("T", 4, 4), "+message.type=FIFO", at="a")
        await admin.put_topic_config(TopicConfig("T", 6, 6, 4), at="b")
        await admin.put_topic_config(TopicConfig("Alone", 2, 2), at="b")

        assert await topics(admin, "change", "T", "--type", "MIXED") == 0
        there = (await admin.topics())["T"]
        assert {broker: (c.read_queue_count, c.perm, c.attributes) for broker, c in there.items()} == {
            "a": (4, 6, {"message.type": "MIXED"}),
            "b": (6, 4, {"message.type": "MIXED"}),
        }
        told = json.loads(capsys.readouterr().out)
        assert {name: row["queues"] for name, row in told["brokers"].items()} == {"a": 4, "b": 6}

        assert await topics(admin, "change", "T", "--queues", "8", "--perm", "rw") == 0
        assert json.loads(capsys.readouterr().out)["queues"] == 8, "told once where all have the same"
        assert await topics(admin, "change", "Alone", "--queues", "3") == 0
        assert list((await admin.topics())["Alone"]) == ["b"], "a change creates no topic elsewhere"
