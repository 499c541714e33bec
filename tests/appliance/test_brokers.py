"""`rocketbox brokers` against a box in this process."""

import argparse
import json
from pathlib import Path

import pytest

from appliance.__main__ import main
from appliance.commands.messaging.brokers import add_arguments, list_brokers
from netstack.client.admin import Admin
from netstack.client.instance import Instance
from tests.appliance.box import connected, running_box, send


async def brokers(port: int, *words: str) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    async with Instance(f"127.0.0.1:{port}") as instance:
        assert await list_brokers(Admin(instance), parser.parse_args(words)) == 0


async def test_a_row_has_what_the_broker_says_and_all_its_numbers_only_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_box(tmp_path, name="press-17") as box, connected(box) as channel:
        for number in range(3):
            assert (await channel.ask(send("T", b"%d" % number), timeout_s=5)).code == 0
        await brokers(box.namesrv_port, "--json")
        row = json.loads(capsys.readouterr().out)
        assert (row["broker"], row["version"], row["today"], "numbers" in row) == ("press-17", "V4_9_8", 3, False)
        assert row["address"].endswith(f":{box.broker_port}")
        await brokers(box.namesrv_port, "--all", "--json")
        row = json.loads(capsys.readouterr().out)
        assert int(row["numbers"]["putMessageTimesTotal"]) >= 3
        await brokers(box.namesrv_port, "--all")
        text = capsys.readouterr().out
        assert text.index("putTps") < text.index("BROKER")
        assert "press-17" in text[text.index("BROKER") :]


def test_without_a_name_server_the_command_ends_with_an_error_that_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["brokers", "--namesrv", "127.0.0.1:1"]) == 1
    said = capsys.readouterr()
    assert (said.out, "127.0.0.1:1" in said.err) == ("", True)
