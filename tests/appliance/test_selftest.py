import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from appliance.admin import ask
from appliance.commands.box.selftest import probed_host
from appliance.device.probe import Probe, answered
from appliance.selftest import SelfTest
from netstack.wire.command import RemotingCommand

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(module_path: Path) -> Iterator[tuple[Path, int, int]]:
    data = module_path
    words = [
        sys.executable,
        "-m",
        "appliance",
        "serve",
        "--data",
        str(data),
        "--broker-port",
        "0",
        "--namesrv-port",
        "0",
    ]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert process.stdout is not None
    said = dict(word.split("=", 1) for word in process.stdout.readline().split() if "=" in word)
    yield data, int(said["broker"].rpartition(":")[2]), int(said["namesrv"].rpartition(":")[2])
    process.terminate()
    process.wait(60)


async def test_a_message_goes_through_a_running_box(served: tuple[Path, int, int]) -> None:
    _, broker, namesrv = served
    result = await SelfTest("127.0.0.1", broker, namesrv, lambda: {"state": "ok"}).run(60)
    assert (result["ok"], list(result["steps"])) == (True, ["health", "route", "message"])


async def test_a_box_that_is_failing_or_silent_does_not_pass(served: tuple[Path, int, int]) -> None:
    _, broker, namesrv = served
    sick = {"state": "failing", "reasons": [{"text": "nothing reached the disk for 23 s"}]}
    failed = await SelfTest("127.0.0.1", broker, namesrv, lambda: sick)._once()
    assert failed["failed"] == "health: state failing nothing reached the disk for 23 s"
    silent = await SelfTest("127.0.0.1", 1, namesrv, lambda: {"state": "ok"})._once()
    assert silent["failed"].startswith("message: no answer")


def health_of(**told: object) -> dict[str, object]:
    row = {"connected": True, "behind_bytes": 0}
    members = [{**row, "member": "a"}, {**row, "member": "b"}]
    replication = {"role": "member", "member": "b", "serves": False, "term": 0, "leader": "", "members": members}
    return {"state": "ok", "replication": {**replication, **told}}


async def test_the_first_box_of_a_group_passes_before_there_is_a_leader(served: tuple[Path, int, int]) -> None:
    _, _, namesrv = served
    result = await SelfTest("127.0.0.1", 1, namesrv, health_of)._once()
    assert (result["ok"], list(result["steps"])) == (True, ["health", "route"])
    assert "no leader yet" in result["waits"]
    ran_alone = await SelfTest("127.0.0.1", 1, namesrv, lambda: health_of(term=1))._once()
    assert (ran_alone["ok"], "no leader yet" in ran_alone["waits"]) == (True, True)  # before it was set up as a member
    lost = await SelfTest("127.0.0.1", 1, namesrv, lambda: health_of(term=3))._once()
    assert lost["failed"].startswith("message:")  # a group that had a leader and has none is no reason to pass


async def test_a_follower_whose_key_the_leader_does_not_know_shows_that_it_copies(
    served: tuple[Path, int, int],
) -> None:
    _, _, namesrv = served
    follows = health_of(term=2, leader="a")
    result = await SelfTest("127.0.0.1", 1, namesrv, lambda: follows, by_key=True)._once()
    assert (result["ok"], list(result["steps"])) == (True, ["health", "route", "copy"])
    for change, said in (({"behind_bytes": 2 << 20}, "2097152 bytes behind that of a"), ({}, "no connection to a")):
        members = [{"member": "a", "connected": bool(change)}, {"member": "b", "behind_bytes": 0, **change}]
        sick = health_of(term=2, leader="a", members=members)
        assert said in (await SelfTest("127.0.0.1", 1, namesrv, lambda: sick, by_key=True)._once())["failed"]  # noqa: B023


async def test_the_probe_asks_both_ports(served: tuple[Path, int, int]) -> None:
    _, broker, namesrv = served
    assert await Probe("127.0.0.1", broker, namesrv)()
    assert not await Probe("127.0.0.1", broker, 1)()
    assert not await Probe("127.0.0.1", 1, namesrv)()
    with trio.fail_after(25):
        assert not await answered("127.0.0.1", broker, RemotingCommand(99_999))


def test_status_reads_what_the_box_wrote_and_exits_by_its_state(served: tuple[Path, int, int]) -> None:
    data, _, _ = served

    def status(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "appliance", "status", "--data", str(folder), *words]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    well = status(data, "--json")
    assert (well.returncode, json.loads(well.stdout)["state"]) == (0, "ok")
    gone = status(data / "nowhere")
    assert gone.returncode == 2
    assert "not running" in gone.stdout


async def test_an_uplink_that_is_set_but_not_running_does_not_pass(served: tuple[Path, int, int]) -> None:
    data, broker, namesrv = served

    def answering() -> object:
        return {"code": 0}

    good = await SelfTest("127.0.0.1", broker, namesrv, lambda: {"state": "ok"}, uplink=answering).run(20)
    assert (good["ok"], list(good["steps"])[-1]) == (True, "uplink")
    asked = partial(ask, data / "run/admin.sock", "uplink.status", timeout_s=5)  # this box was started without one
    bad = await SelfTest("127.0.0.1", broker, namesrv, lambda: {"state": "ok"}, uplink=asked).run(1)
    assert bad["failed"].startswith("uplink: the uplink is set but does not answer: 'uplink.status' is not available")


def test_a_box_is_tried_where_it_listens() -> None:
    assert [probed_host(host) for host in ("0.0.0.0", "10.1.0.11")] == ["127.0.0.1", "10.1.0.11"]
