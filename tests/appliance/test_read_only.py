"""A box whose disk takes no writes any more: it starts, gives what it has, refuses what it cannot keep, and says so."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from appliance.configuration.config import load_config
from appliance.health.health_file import read_health
from appliance.ports import Ports, open_ports
from appliance.serve import serve
from appliance.supervision import Supervision
from netstack.wire.codes import RequestCode, ResponseCode
from tests.appliance.box import FACTS, Box, ask, connected, messages_of, pull, running_box, send
from tests.protection import protected

pytestmark = pytest.mark.slow
REASON = "the disk still fails after a reboot, the log can be read"


def prints(folder: Path) -> dict[str, str]:
    """Return every file of a folder and the hash of what it holds."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@asynccontextmanager
async def read_only_box(data: Path, folder: Path) -> AsyncIterator[Box]:
    """Run a box under the escalation's mark."""
    (folder / "mark").write_text(REASON + "\n")
    async with supervised_box(data, folder) as box:
        yield box


@asynccontextmanager
async def supervised_box(data: Path, folder: Path, host: str = "127.0.0.1", told: str = "") -> AsyncIterator[Box]:
    """Run a box that systemd watches, with the ports of `host`; its configuration has `told`, where it is given."""
    toml = "[listen]\nbroker_port = 0\nnamesrv_port = 0\nhost = '{}'\n[store]\nsegment_mib = 16\n"
    config = load_config(toml.format(told or host), source="test", facts=FACTS)
    environ = {"RUNTIME_DIRECTORY": str(folder / "run"), "NOTIFY_SOCKET": "@nobody"}
    supervision = Supervision.begin(config, data, None, environ, mark=folder / "mark")
    ports: Ports = await open_ports(load_config(toml.format(host), source="test", facts=FACTS), {})
    async with trio.open_nursery() as nursery:
        up = trio.Event()

        async def run() -> None:
            await serve(config, data, ports, ready=lambda _: up.set(), supervision=supervision)

        nursery.start_soon(run)
        await up.wait()
        yield Box(ports.broker_port, ports.namesrv_port, data)
        nursery.cancel_scope.cancel()


async def test_what_was_stored_is_read_what_is_sent_is_refused_and_the_disk_stays_as_it_was(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with running_box(data) as box, connected(box) as channel:
        for number in range(20):
            await channel.ask(send("Kept", b"%d" % number), timeout_s=5)
        await channel.ask(
            ask(RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="CG", topic="Kept", queueId=0, commitOffset=7),
            timeout_s=5,
        )
    before = prints(data)
    async with read_only_box(data, tmp_path) as box, connected(box) as channel:
        found = messages_of(await channel.ask(pull("Kept"), timeout_s=5))
        assert [message.body for message in found] == [b"%d" % number for number in range(20)]
        answer = await channel.ask(send("Kept", b"more"), timeout_s=5)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert f"this box is read-only: {REASON}" in (answer.remark or "")
        answer = await channel.ask(send("New", b"more"), timeout_s=5)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        committed = ask(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="CG", topic="Kept", queueId=0)
        assert (await channel.ask(committed, timeout_s=5)).ext["offset"] == "7"
        health = read_health(tmp_path / "run/health.json")
        assert health["state"] == "read_only"
        assert health["reasons"][0]["code"] == "D501"
        assert REASON in health["reasons"][0]["text"]
    assert prints(data) == before


@pytest.mark.parametrize("name", ["abort", "rocketbox/position", "commitlog/00000000000000000000", "commitlog"])
async def test_a_box_with_a_file_that_nobody_may_write_is_read_until_it_may(tmp_path: Path, name: str) -> None:
    data = tmp_path / "data"
    async with running_box(data) as box, connected(box) as channel:
        await channel.ask(send("Kept", b"0"), timeout_s=5)
    with protected(data / "store" / name):
        before = prints(data / "store")
        async with supervised_box(data, tmp_path) as box, connected(box) as channel:
            answer = await channel.ask(send("Kept", b"refused"), timeout_s=5)
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert f"{name} cannot be written" in (answer.remark or "")
            assert [message.body for message in messages_of(await channel.ask(pull("Kept"), timeout_s=5))] == [b"0"]
            health = read_health(tmp_path / "run/health.json")
            assert (health["state"], health["reasons"][0]["code"]) == ("read_only", "D501")
            assert "chattr -i" in health["reasons"][0]["next"]
        after = prints(data / "store")
        assert {name: after[name] for name in before if "commitlog" in name} == {
            name: text for name, text in before.items() if "commitlog" in name
        }
    async with running_box(data) as box, connected(box) as channel:
        assert (await channel.ask(send("Kept", b"1"), timeout_s=5)).code == ResponseCode.SUCCESS
        found = messages_of(await channel.ask(pull("Kept"), timeout_s=5))
        assert [message.body for message in found] == [b"0", b"1"]


async def test_once_the_disk_works_again_the_box_takes_messages_as_before(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with running_box(data) as box, connected(box) as channel:
        await channel.ask(send("Kept", b"0"), timeout_s=5)
    async with read_only_box(data, tmp_path) as box, connected(box) as channel:
        await channel.ask(send("Kept", b"refused"), timeout_s=5)
    async with running_box(data) as box, connected(box) as channel:
        assert (await channel.ask(send("Kept", b"1"), timeout_s=5)).code == ResponseCode.SUCCESS
        found = messages_of(await channel.ask(pull("Kept"), timeout_s=5))
        assert [message.body for message in found] == [b"0", b"1"]


async def test_a_box_whose_address_is_gone_works_on_at_the_ports_that_systemd_holds(tmp_path: Path) -> None:
    with trio.fail_after(60):
        there = supervised_box(tmp_path / "data", tmp_path, "0.0.0.0", told="192.0.2.7")
        async with there as box, connected(box) as channel:
            assert (await channel.ask(send("T"), timeout_s=5)).code == ResponseCode.SUCCESS
