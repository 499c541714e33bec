"""Two members, each in a network namespace and on a disk of its own: cables are pulled, disks freeze and fill."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.appliance.group.certificates import certificates
from tests.appliance.group.own_disk import OwnDisk, sh
from tests.appliance.group.real_group import RealMember
from tests.interop.box import Child
from tests.ports import apache_port

ENTER = (  # a process moves into the namespace, then becomes the box
    "import ctypes, os, sys; fd = os.open('/run/netns/' + sys.argv[1], 0); "
    "assert not ctypes.CDLL(None).setns(fd, 0x40000000); os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
)


def can_make_ground() -> bool:
    """Tell whether this machine lets us make namespaces, links and file systems."""
    if os.geteuid() or not all(map(shutil.which, ("ip", "mkfs.ext4", "fsfreeze"))):
        return False
    return not subprocess.run(["unshare", "-nm", "true"], capture_output=True, check=False).returncode


class GroundMember(RealMember):
    """A member in a namespace; the cable to the other one can be pulled, its disk stalled and filled."""

    def __init__(self, folder: Path, name: str, tag: str, number: int, stack: ExitStack) -> None:
        self.disk = OwnDisk(folder, name, stack)
        super().__init__(self.disk.mount / "data")
        self.name, self.space, self.folder = name, f"rbx{tag}{name}", folder
        self.link_address = f"10.213.3.{number}"
        self.other = f"10.213.3.{3 - number}"
        self.host, self.near = f"10.213.{number}.2", f"10.213.{number}.1"
        self.command = ["-c", ENTER, self.space, *self.command]
        self.wait_ms = 1000
        self.cable_port = 0  # where the first member is found over a longer cable

    def configure(
        self, members: "Sequence[RealMember]", more: str = "", *, elections: str = "manual", timing: float = 0.5
    ) -> None:
        addresses = {each.name: getattr(each, "link_address", "") for each in members}
        ports = {each.name: each.broker_port + 1 for each in members}
        if self.cable_port:
            first = members[0]
            addresses[first.name], ports[first.name] = "127.0.0.1", self.cable_port
        listed = ", ".join(f'"{each.name}={addresses[each.name]}:{ports[each.name]}"' for each in members)
        (self.data.parent / "data.toml").write_text(
            "[box]\nname = 'press'\n[listen]\nhost = '0.0.0.0'\n"
            "[store]\nsegment_mib = 8\n[replication]\nrole = 'member'\n"
            f"[group]\nmember = '{self.name}'\nmembers = [{listed}]\nelections = '{elections}'\n"
            f"wait_ms = {self.wait_ms}\ntiming = {timing}\ncerts = '{certificates() / self.name}'\n{more}"
        )

    def pull(self) -> None:
        """Pull the cable to the other member."""
        sh("ip", "-n", self.space, "link", "set", "pair", "down")

    def plug(self) -> None:
        """Put everything of the network right again."""
        sh("ip", "-n", self.space, "link", "set", "pair", "up")
        sh("ip", "-n", self.space, "neigh", "flush", "all", "nud", "permanent")

    def lose_outgoing(self) -> None:
        """Let nothing reach the other member while all of its packets come in: frames go to a card nobody has."""
        nowhere = ("lladdr", "02:00:00:00:00:99", "dev", "pair", "nud", "permanent")
        sh("ip", "-n", self.space, "neigh", "replace", self.other, *nowhere)


def _lengthen(dialing: GroundMember, first: GroundMember, delay_s: float) -> Child:
    """Have the member that dials reach the first one over a cable of some length."""
    dialing.cable_port = apache_port() + 1
    script = str(Path(__file__).with_name("slow_cable.py"))
    words = [str(dialing.cable_port), first.link_address, str(first.broker_port + 1), str(delay_s)]
    first.wait_ms = dialing.wait_ms = 5000
    cable = Child(["-c", ENTER, dialing.space, script, *words], dialing.folder / "cable.log")
    cable.start()
    return cable


@contextmanager
def ground(folder: Path, more: str = "", *, delay_s: float = 0) -> Iterator[tuple[GroundMember, GroundMember]]:
    """Two members, not started; what was made for them goes at the end. `delay_s`: of the cable, in one direction."""
    tag = f"{os.getpid() % 10_000}{secrets.token_hex(2)}"  # what was deleted goes by and by: no name comes twice
    with ExitStack() as stack:
        members = [GroundMember(folder, name, tag, number, stack) for number, name in enumerate(("a", "b"), 1)]
        for each in members:
            sh("ip", "netns", "add", each.space)
            stack.callback(sh, "ip", "netns", "del", each.space)
            _wire_to_here(each)
        a, b = members
        sh("ip", "-n", a.space, "link", "add", "pair", "type", "veth", "peer", "name", "pair", "netns", b.space)
        for each in members:
            sh("ip", "-n", each.space, "addr", "add", f"{each.link_address}/24", "dev", "pair")
            sh("ip", "-n", each.space, "link", "set", "pair", "up")
        if delay_s:
            stack.callback(_lengthen(b, a, delay_s).kill)
        for each in members:
            each.configure(list(members), more, timing=2 if delay_s else 0.5)
            stack.callback(lambda each=each: each.running and each.kill())  # type: ignore[misc]
        yield a, b


def _wire_to_here(member: GroundMember) -> None:
    """Connect a namespace to that of the test, for clients."""
    outside = f"{member.space}o"
    sh("ip", "link", "add", outside, "type", "veth", "peer", "name", "here", "netns", member.space)
    sh("ip", "addr", "add", f"{member.near}/24", "dev", outside)
    sh("ip", "link", "set", outside, "up")
    sh("ip", "-n", member.space, "addr", "add", f"{member.host}/24", "dev", "here")
    for device in ("here", "lo"):
        sh("ip", "-n", member.space, "link", "set", device, "up")
