"""A group under real systemd, set up from a fleet file: its leader loses its power, its boxes are updated in turn.

The right to move the group's address comes with what is provisioned.
"""

import itertools
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import trio

from netstack.serving.channel import open_channel
from tests.appliance.box import messages_of, pull, send
from tests.appliance.group.bridge import BROKER_PORT, Outlet, Switch, can_bridge
from tests.appliance.group.certificates import needs_openssl
from tests.interop.wire import answered_code, command, frame, what_comes_back
from tests.systemd.machine import TOP, Machine, build_slot, needs_systemd

pytestmark = [
    needs_systemd,
    needs_openssl,
    pytest.mark.slow,
    pytest.mark.soak,
    pytest.mark.skipif(not can_bridge(), reason="needs root, `ip` and network namespaces"),
]
QUEUES, TRIES, PORT = 4, 3, 7777
BOXES, SERIALS = "abc", {name: f"RBX-{name}" for name in "abc"}
PYTHON = "/opt/appliance/bin/python"


class GroupMachine(Machine):
    """A box at a switch; what is written below /etc stays over a boot, as on a disk."""

    def __init__(self, folder: Path, slot: Path, outlet: Outlet) -> None:
        folder.mkdir()
        super().__init__(folder, slot)
        self.outlet, self._units = outlet, folder / "units"
        self._units.mkdir()

    def network(self) -> list[str]:
        return [f"--network-namespace-path=/run/netns/{self.outlet.space}", "--capability=CAP_NET_ADMIN"]

    def where(self) -> list[str]:
        return [*super().where(), f"--bind={self._units}:/etc/systemd/system/rocketbox.service.d"]

    def provision(self, serial: str, folder: Path) -> str:
        """Set the box up from boxes.csv over the stand-in of its serial line; return what was printed."""
        self.run("sh", "-c", f"echo {serial} > /var/lib/rocketbox-factory/serial")
        self.run("systemctl", "stop", "rocketbox.service", "rocketbox-broker.socket", "rocketbox-namesrv.socket")
        line = ["systemd-run", "--unit=line", "--property=UMask=0077", PYTHON, "-I", "-m", "appliance", "device"]
        self.run(*line, "--listen", str(PORT))
        self.wait_until(lambda: "ready port=" in self.journal("line.service"), "the serial line's stand-in")
        bench = [sys.executable, "-m", "appliance", "fleet", "apply", str(folder / "boxes.csv"), "--yes"]
        bench += ["--port", f"socket://127.0.0.1:{PORT}", "--groups", str(folder / "groups")]
        bench += ["--labels", str(folder / "labels.csv"), "--receipts", str(folder / "receipts")]
        done = self.outside(*bench, home=folder)
        assert "1 done" in done.stdout, done.stdout + done.stderr + self.journal()
        return done.stdout

    def leads(self) -> bool:
        told = self.run("/opt/appliance/bin/rocketbox", "group", "status").stdout
        return "(this box) leads" in told

    def has_address(self, address: str) -> bool:
        return f" {address}/" in self.run("ip", "-4", "addr", "show", "dev", "eth").stdout


class Sender(threading.Thread):
    """Sends one message after the other to an address, each as often as a stock client tries."""

    def __init__(self, host: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[tuple[float, bytes]] = []
        self.failed: list[float] = []
        self._host, self._ended = host, threading.Event()
        self._line: socket.socket | None = None

    def run(self) -> None:
        number = 0
        while not self._ended.is_set():
            number += 1
            body = b"%d" % number
            if any(self._sent(body, number % QUEUES) for _ in range(TRIES)):
                self.acknowledged.append((time.monotonic(), body))
            else:
                self.failed.append(time.monotonic())

    def _sent(self, body: bytes, queue_id: int) -> bool:
        try:
            if self._line is None:
                self._line = socket.create_connection((self._host, BROKER_PORT), 3)
                self._line.settimeout(3)
            ext = {key: str(value) for key, value in send("T", body, queue_id=queue_id).ext.items()}
            self._line.sendall(frame(command(310, **ext), body))
            if answered_code(what_comes_back(self._line)) == 0:
                return True
        except (OSError, struct.error):
            pass
        if self._line is not None:
            self._line.close()
            self._line = None
        return False

    def more(self, count: int = 30) -> None:
        """Return once so many more are acknowledged."""
        enough, until = len(self.acknowledged) + count, time.monotonic() + 120
        while len(self.acknowledged) < enough:
            assert time.monotonic() < until, f"{len(self.acknowledged)} acknowledged, {len(self.failed)} failed"
            time.sleep(0.05)

    def longest_pause_s(self, since: float) -> float:
        times = [since, *(at for at, _ in self.acknowledged if at > since)]
        return max(later - earlier for earlier, later in itertools.pairwise(times))

    def end(self) -> None:
        self._ended.set()
        self.join(30)


@pytest.fixture(scope="module")
def slot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_slot(tmp_path_factory.mktemp("slot") / "tree")


@contextmanager
def provisioned(folder: Path, slot: Path, keys: Path | None = None) -> Iterator[tuple[list[GroupMachine], str]]:
    """Three boxes that were set up over their lines and have a leader; yields them and the address that moves."""
    switch = Switch()
    with ExitStack() as stack:
        switch.make(stack)
        made = [GroupMachine(folder / n, slot, switch.add(n, at, stack)) for at, n in enumerate(BOXES, 1)]
        address = f"{switch.network}.200"
        rows = [f"{SERIALS[n]},press,{n},{m.outlet.address}:10912" for n, m in zip(BOXES, made, strict=True)]
        rows = [f"{row},{f'{address}/24@eth' if row is rows[0] else ''}" for row in rows]
        (folder / "boxes.csv").write_text("\n".join(["serial,group,member,link,set.group.address", *rows, ""]))
        for name, machine in zip(BOXES, made, strict=True):
            if keys is not None:
                (machine.folder / "usr/lib/rocketbox/keys/test.pem").write_bytes(keys.read_bytes())
            stack.callback(machine.stop)
            machine.start()
            machine.wait_for("rocketbox-commit.service")
            machine.provision(SERIALS[name], folder)
            assert "cap_net_admin" in machine.show("rocketbox.service", "AmbientCapabilities")
        leader_of(made)
        yield made, address


def leader_of(made: list[GroupMachine]) -> GroupMachine:
    """Return the box that leads, once one does."""
    until = time.monotonic() + 120
    while not (leading := [each for each in made if each.leads()]):
        assert time.monotonic() < until, made[0].journal()[-3000:]
        time.sleep(0.2)
    return leading[0]


def level(made: list[GroupMachine]) -> bool:
    told = leader_of(made).run("/opt/appliance/bin/rocketbox", "group", "status").stdout
    return told.count("has everything") == len(made)


async def bodies(host: str) -> set[bytes]:
    """Return every message that consumers get at an address."""
    found = set[bytes]()
    async with open_channel(host, BROKER_PORT) as channel:
        for queue_id in range(QUEUES):
            at = 0
            while (answer := await channel.ask(pull("T", at, queue_id), 10)).code == 0:
                found |= {message.body for message in messages_of(answer)}
                at = int(answer.ext["nextBeginOffset"])
    return found


def all_there(sender: Sender, address: str) -> None:
    missing = {body for _, body in sender.acknowledged} - trio.run(bodies, address)
    print(f"{len(sender.acknowledged)} acknowledged, {len(sender.failed)} failed, {len(missing)} missing")
    assert not missing


def test_a_leader_without_power_is_replaced_at_its_address_and_follows_when_it_is_back(
    tmp_path: Path, slot: Path
) -> None:
    with provisioned(tmp_path, slot) as (made, address):
        sender = Sender(address)
        sender.start()
        for _ in range(3):
            sender.more()
            leader = leader_of(made)
            assert leader.has_address(address)
            began = time.monotonic()
            leader.cut_power()
            sender.more()
            print(f"{leader.outlet.space}: longest pause {sender.longest_pause_s(began):.1f} s")
            leader.start()
            leader.wait_until(lambda: level(made), "the box that was without power has everything", 120)
        sender.end()
        assert sum(each.has_address(address) for each in made) == 1
        all_there(sender, address)


def test_boxes_are_updated_in_turn_and_no_send_fails(tmp_path: Path, slot: Path) -> None:
    work = tmp_path / "bundle"
    words = [sys.executable, "-m", "provisioning.packaging.make_bundle", str(work), "--version", "1.1.0"]
    subprocess.run(words, cwd=TOP, check=True, capture_output=True)
    with provisioned(tmp_path, slot, work / "test.pem") as (made, address):
        sender = Sender(address)
        sender.start()
        sender.more()
        leader, began = leader_of(made), time.monotonic()
        for machine in sorted(made, key=lambda each: each is leader):
            shutil.copy(work / "rocketbox-1.1.0.rbx", machine.state / "new.rbx")
            done = machine.run("/opt/appliance/bin/rocketbox", "update", "/var/lib/rocketbox/new.rbx", "--reboot")
            assert done.returncode == 0, done.stdout + done.stderr
            machine.wait_reboot()
            machine.wait_until(lambda machine=machine: machine.health().get("version") == "1.1.0", "1.1.0 runs", 120)
            machine.wait_for("rocketbox-commit.service", seconds=120)
            machine.wait_until(lambda: level(made), "all have everything", 120)
        sender.more()
        sender.end()
        print(f"longest pause {sender.longest_pause_s(began):.2f} s")
        assert not sender.failed
        all_there(sender, address)
