"""Routes name the address that the asking client reached: two network namespaces, four cables between them.

Needs root and the program `ip`; skips without.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMESRV_PORT, BROKER_PORT = 19876, 10911  # of the namespace's own: nobody else is there
CABLES = {  # interface → addresses of the box, addresses of the client
    "wan": (("10.77.1.1/24", "fd77:1::1/64"), ("10.77.1.2/24", "fd77:1::2/64")),
    "plant": (("10.77.2.1/24",), ("10.77.2.2/24",)),
    "six": (("fd77:3::1/64",), ("fd77:3::2/64",)),
    "nat": (("10.77.4.1/24",), ("10.77.4.2/24",)),
}
CONFIG = f"""
[listen]
host = "::"
namesrv_port = {NAMESRV_PORT}
broker_port = {BROKER_PORT}
[[advertise.rules]]
from = "10.77.4.0/24"
address = "10.77.2.1"
"""
CLIENT = """
import json, sys, trio
from netstack.serving.channel import open_channel
from tests.appliance.box import ask, send
async def main(port):
    found = {}
    for host in sys.argv[2:]:
        async with open_channel(host, port, connect_timeout_s=20) as channel:
            route = json.loads((await channel.ask(ask(105, topic="TBW102"), 20)).body)
            (broker,) = route["brokerDatas"]
            (address,) = broker["brokerAddrs"].values()
        name, _, broker_port = address.rpartition(":")
        async with open_channel(name.strip("[]"), int(broker_port), connect_timeout_s=20) as channel:
            found[host] = [address, (await channel.ask(send("T"), 20)).code]
    print(json.dumps(found))
trio.run(main, int(sys.argv[1]))
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@contextmanager
def wired() -> Iterator[tuple[str, str]]:
    """Two namespaces with the cables between them; skips where that cannot be had."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and the program ip")
    box, client = f"rbxbox{os.getpid()}", f"rbxcli{os.getpid()}"
    try:
        try:
            for name in (box, client):
                ip("netns", "add", name)
            _lay_cables(box, client)
        except subprocess.CalledProcessError as exc:
            pytest.skip(f"no network namespaces here: {exc.stderr.strip()}")
        yield box, client
    finally:
        for name in (box, client):
            with suppress(subprocess.CalledProcessError):
                ip("netns", "del", name)


def _lay_cables(box: str, client: str) -> None:
    for name in (box, client):
        ip("-n", name, "link", "set", "lo", "up")
    for cable, ends in CABLES.items():
        ip("-n", box, "link", "add", cable, "type", "veth", "peer", "name", cable, "netns", client)
        for name, addresses in zip((box, client), ends, strict=True):
            for address in addresses:
                options = ("nodad",) if ":" in address else ()
                ip("-n", name, "addr", "add", address, "dev", cable, *options)
            ip("-n", name, "link", "set", cable, "up")


@contextmanager
def box_in(namespace: str, folder: Path) -> Iterator[None]:
    (folder / "box.toml").write_text(CONFIG)
    command = [sys.executable, "-m", "appliance", "serve", "--data", str(folder / "data")]
    command = ["ip", "netns", "exec", namespace, *command, "--config", str(folder / "box.toml")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdout is not None
        assert any(line.startswith("ready") for line in child.stdout)
        try:
            yield
        finally:
            child.terminate()


@pytest.mark.slow
def test_every_client_is_told_the_address_it_reached_and_a_rule_for_its_network_wins(tmp_path: Path) -> None:
    reached = ["10.77.1.1", "fd77:1::1", "10.77.2.1", "fd77:3::1", "10.77.4.1"]
    with wired() as (box, client), box_in(box, tmp_path):
        command = ["ip", "netns", "exec", client, sys.executable, "-c", CLIENT, str(NAMESRV_PORT), *reached]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "10.77.1.1": ["10.77.1.1:10911", 0],
        "fd77:1::1": ["10.77.1.1:10911", 0],  # the same cable: client libraries cut IPv6 addresses apart
        "10.77.2.1": ["10.77.2.1:10911", 0],
        "fd77:3::1": ["[fd77:3::1]:10911", 0],
        "10.77.4.1": ["10.77.2.1:10911", 0],  # by the rule
    }
