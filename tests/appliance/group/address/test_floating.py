"""An address in a network of its own: taken, announced, given up to who announces it next, gone after a kill."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.group.address import floating
from appliance.group.address.floating import Floating
from appliance.group.address.floating_frames import error_of, read_floating
from tests.import_path import import_path

pytestmark = pytest.mark.slow
TOP = Path(__file__).parents[4]
OWN = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
SCRIPT = """
import json, socket, subprocess, sys, time
import trio, trio.testing
from appliance.group.address import floating
from appliance.group.address.floating import Floating
from appliance.group.address.floating_frames import arp_announcement, read_floating

def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout

subprocess.run("ip link set lo up; ip link add here type veth peer name there; "
               "ip link set here up; ip link set there up", shell=True, check=True)
kind, text = sys.argv[1:]
floating.AGAIN_S = 0.1
floating.PARTING_S = 0.5 if ":" in text else 60
address = text.partition("/")[0]
there = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
there.bind(("there", 0))
there.settimeout(5)
made = Floating(read_floating(text))
wanted = socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, address)

async def main():
    ended = []

    def end(busy):
        ended.append(busy)
        return 1 if len(ended) == 1 else 0

    async with trio.open_nursery() as outer:
        outer.start_soon(made.run, end)
        await held_until_cancelled()
        assert address in ip("address", "show", "here"), "kept for the answers that are under way"
        if made.address.version == 4:
            await trio.testing.wait_all_tasks_blocked()
            there.send(arp_announcement(made.address, bytes(5) + b"z"))
        while address in ip("address", "show", "here"):
            await trio.sleep(0.01)
        assert ended == [False, False, True], ended
        outer.cancel_scope.cancel()

async def held_until_cancelled():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.hold)
        while not made.held:
            await trio.sleep(0.01)
        [link] = json.loads(ip("-json", "address", "show", "here"))
        [left_s] = [each["valid_life_time"] for each in link["addr_info"] if each["local"] == address]
        assert 1 <= left_s <= 3, "goes by itself"
        while wanted not in there.recv(2000):
            pass
        nursery.cancel_scope.cancel()

async def killed():
    made._ask(1)
    assert address in ip("address", "show", "here")
    while address in ip("address", "show", "here"):
        await trio.sleep(0.1)

trio.run({"held": main, "killed": killed}[kind])
print("fine")
"""


def allowed() -> bool:
    if not (shutil.which("unshare") and shutil.which("ip")):
        return False
    return not subprocess.run(
        [*OWN, "ip", "link", "add", "x", "type", "veth"], capture_output=True, check=False
    ).returncode


@pytest.mark.skipif(not allowed(), reason="no network namespaces here, or no `ip`: apt-get install iproute2")
@pytest.mark.parametrize("text", ["10.99.0.5/24@here", "fd99::5/64@here"])
@pytest.mark.parametrize("kind", ["held", "killed"])
def test_an_address_is_taken_announced_and_given_up_to_the_next(kind: str, text: str) -> None:
    environment = {"PYTHONPATH": import_path(), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    command = [*OWN, sys.executable, "-c", SCRIPT, kind, text]
    said = subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert said.stdout.strip() == "fine", said.stderr


def test_an_odd_answer_of_the_kernel_is_told_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def odd(answer: bytes) -> int:
        return error_of(answer[:8])

    monkeypatch.setattr(floating, "error_of", odd)
    made = Floating(read_floating("198.51.100.77/32@lo"))
    made.give_up()
    assert not made.held
    assert "event=address_not_held address=198.51.100.77 interface=lo" in caplog.text
    assert "not an acknowledgement (8 bytes)" in caplog.text
