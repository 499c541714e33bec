"""Members in network namespaces on one bridge, as boxes at one switch: any of them may be cut off from any other.

Clients are on this side of the bridge and reach all of them, also those that are cut off from their group.
"""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.appliance.group.certificates import certificates
from tests.appliance.group.hostile_ground import ENTER
from tests.appliance.group.own_disk import OwnDisk, sh
from tests.appliance.group.real_group import RealMember
from tests.interop.box import Child

NAMESRV_PORT, BROKER_PORT = 9876, 10911
NOBODY = "02:00:00:00:00:99"  # a card that nobody has


def can_bridge() -> bool:
    """Tell whether this machine lets us make namespaces and a bridge."""
    if os.geteuid() or not all(map(shutil.which, ("ip", "unshare"))):
        return False
    words = ["unshare", "-n", "ip", "link", "add", "x", "type", "bridge"]
    return not subprocess.run(words, capture_output=True, check=False).returncode


class Switch:
    """The bridge; numbers of process and switch make the names and addresses of two of them differ."""

    _made = itertools.count()

    def __init__(self) -> None:
        number = next(self._made) % 10
        self.tag = f"rbs{os.getpid() % 100_000}{number or ''}"
        self.network = f"10.{214 + number}.{os.getpid() % 250}"

    def make(self, stack: ExitStack) -> None:
        sh("ip", "link", "add", self.tag, "type", "bridge")
        stack.callback(sh, "ip", "link", "del", self.tag)
        sh("ip", "addr", "add", f"{self.network}.254/24", "dev", self.tag)
        sh("ip", "link", "set", self.tag, "up")

    def add(self, name: str, number: int, stack: ExitStack) -> "Outlet":
        """Make a namespace with a card at this switch."""
        outlet = Outlet(f"{self.tag}{name}", f"{self.network}.{number}")
        sh("ip", "netns", "add", outlet.space)
        stack.callback(sh, "ip", "netns", "del", outlet.space)
        sh("ip", "link", "add", outlet.space, "type", "veth", "peer", "name", "eth", "netns", outlet.space)
        sh("ip", "link", "set", outlet.space, "master", self.tag, "up")
        sh("ip", "-n", outlet.space, "addr", "add", f"{outlet.address}/24", "dev", "eth")
        for device in ("eth", "lo"):
            sh("ip", "-n", outlet.space, "link", "set", device, "up")
        return outlet


class Outlet:
    """Where a member is plugged in."""

    def __init__(self, space: str, address: str) -> None:
        self.space, self.address = space, address

    def lose(self, others: "Iterable[Outlet]") -> None:
        """Let nothing of this member reach the others, while all that they send comes in."""
        for other in others:
            nowhere = ("lladdr", NOBODY, "dev", "eth", "nud", "permanent")
            sh("ip", "-n", self.space, "neigh", "replace", other.address, *nowhere)

    def plug(self) -> None:
        """Put everything right again."""
        sh("ip", "-n", self.space, "neigh", "flush", "all", "nud", "permanent")


class BridgedMember(RealMember):
    """A box in a namespace of its own; it listens on all addresses, also on one that moves."""

    disk: OwnDisk | None = None

    def __init__(self, folder: Path, name: str, outlet: Outlet) -> None:
        super().__init__(folder / name)
        self.outlet, self.host = outlet, outlet.address
        self.namesrv_port, self.broker_port = NAMESRV_PORT, BROKER_PORT  # the same at all: one address may move
        command = ["-m", "appliance", "serve", "--data", str(self.data), "--config", str(folder / f"{name}.toml")]
        command += ["--namesrv-port", str(NAMESRV_PORT), "--broker-port", str(BROKER_PORT)]
        self.command = ["-c", ENTER, outlet.space, *command]

    @property
    def namesrv(self) -> str:
        return f"{self.host}:{self.namesrv_port}"

    @property
    def broker(self) -> str:
        return f"{self.host}:{self.broker_port}"

    def rocketbox(self, *words: str) -> None:
        """Run a command where the box is, as its administrator. Raises CalledProcessError."""
        sh(sys.executable, "-c", ENTER, self.outlet.space, "-m", "appliance", *words)

    def configure_all(self, listed: Sequence[str], more: str = "", *, timing: float) -> None:
        """Write the configuration of this member; `more` belongs to [group]."""
        members = ", ".join(f'"{each}"' for each in listed)
        (self.data.parent / f"{self.name}.toml").write_text(
            "[box]\nname = 'press'\n[listen]\nhost = '0.0.0.0'\n[store]\nsegment_mib = 8\n"
            f"[replication]\nrole = 'member'\n[group]\nmember = '{self.name}'\nmembers = [{members}]\n"
            f"wait_ms = 1000\ntiming = {timing}\ncerts = '{certificates() / self.name}'\n{more}"
        )


class BridgedWitness(Child):
    """A witness in a namespace of its own."""

    def __init__(self, folder: Path, name: str, outlet: Outlet) -> None:
        self.name, self.outlet, self.port = name, outlet, BROKER_PORT + 1
        self.data = folder / name
        super().__init__([], folder / f"{name}.log")

    def configure_all(self, listed: Sequence[str], more: str = "", *, timing: float) -> None:
        command = ["-c", ENTER, self.outlet.space, "-m", "appliance", "witness", "--group", "press", "--as", self.name]
        command += ["--data", str(self.data), "--certs", str(certificates() / self.name)]
        for each in listed:
            command += ["--member", each]
        self.command = [*command, "--timing", str(timing)]


Plugged = BridgedMember | BridgedWitness


@contextmanager
def bridged(
    folder: Path,
    more: str = "",
    *,
    witness: bool = False,
    timing: float = 0.5,
    disks: bool = False,
    environments: Mapping[str, Mapping[str, str]] | None = None,
) -> Iterator[list[Plugged]]:
    """Run three boxes, or two boxes and a witness; what was made for them goes at the end.

    disks: each box has one for itself. environments: of boxes, by name.
    """
    switch = Switch()
    with ExitStack() as stack:
        switch.make(stack)
        names = "abw" if witness else "abc"
        outlets = [switch.add(name, number, stack) for number, name in enumerate(names, 1)]
        mounted = {name: OwnDisk(folder, name, stack) for name in names if disks and name != "w"}
        members: list[Plugged] = [
            (BridgedWitness if name == "w" else BridgedMember)(folder, name, outlet)
            for name, outlet in zip(names, outlets, strict=True)
        ]
        for box in boxes(members):
            box.disk = mounted.get(box.name)
            box.environment.update((environments or {}).get(box.name, {}))
        listed = [listed_as(each) for each in members]
        for each in members:
            each.configure_all(listed, more.replace("NETWORK", switch.network), timing=timing)
            stack.callback(lambda each=each: each.running and each.kill())  # type: ignore[misc]
            each.start()
        yield members


def listed_as(member: Plugged) -> str:
    """Return a member as `group.members` names it."""
    if isinstance(member, BridgedWitness):
        return f"{member.name}={member.outlet.address}:{member.port} witness"
    return f"{member.name}={member.outlet.address}:{member.broker_port + 1}"


def boxes(members: Iterable[Plugged]) -> list[BridgedMember]:
    return [each for each in members if isinstance(each, BridgedMember)]


def cut(members: Sequence[Plugged], groups: Sequence[Sequence[Plugged]], *, one_way: bool = False) -> None:
    """Let only those of one group reach each other; one way: the first group hears the others all the same."""
    for group in groups[:1] if one_way else groups:
        others = [each.outlet for each in members if each not in group]
        for each in group:
            each.outlet.lose(others)


def heal(members: Iterable[Plugged]) -> None:
    for each in members:
        each.outlet.plug()
