"""Groups from a fleet file, over real serial lines: the processes that start from the files elect a leader."""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from appliance.commands.box.group_files import make_certificates
from appliance.device.fleet_members import FleetGroups
from provisioning.errors import ProvisioningError
from provisioning.fleet import read_rows
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.real_group import RealMember, start
from tests.appliance.technician import Bench
from tests.interop.box import Child
from tests.ports import free_port
from tests.waiting import until_it
from uplink_spark.centre.certs import LEAF_DAYS, member_fits

pytestmark = [pytest.mark.slow, needs_openssl]
PORTS = ("--namesrv-port", "0", "--broker-port", "0")
HEAD = "serial,group,member,role,link,set.group.timing,set.access.mode,set.listen.namesrv_port"


@contextmanager
def benches(folder: Path, names: str) -> Iterator[list[Bench]]:
    """Played boxes, each at a pseudo terminal of its own."""
    with ExitStack() as stack:
        made = [Bench(folder, f"RBX-{name}", f"box-{name}") for name in names]
        for each in made:
            stack.callback(each.close)
        yield made


class ProvisionedMember(RealMember):
    """A member that starts from what provisioning has left in the folder of its box."""

    def __init__(self, box: Path, name: str, link: str) -> None:
        super().__init__(box.parent / name)
        self.broker_port = int(link.rpartition(":")[2]) - 1
        self.config = box / "etc/rocketbox/rocketbox.toml"
        self.certs = box / "etc/rocketbox/keys/group"
        self.command = ["-m", "appliance", "serve", "--data", str(self.data), "--config", str(self.config)]

    def start(self) -> None:
        os.environ["ROCKETBOX_GROUP_CERTS"] = str(self.certs)  # on a box: /etc/rocketbox/keys/group
        try:
            super().start()
        finally:
            del os.environ["ROCKETBOX_GROUP_CERTS"]


def fleet_file(folder: Path, members: str, witness: str = "", access: str = "") -> list[str]:
    """Write boxes.csv; return where each member is reached."""
    links = [f"127.0.0.1:{RealMember(folder / f'port-{name}').broker_port + 1}" for name in members]
    if witness:
        links[-1] = f"127.0.0.1:{free_port()}"
    rows = []
    for name, link in zip(members, links, strict=True):
        serial, role = ("", "witness") if name == witness else (f"RBX-{name}", "")
        rows.append(f"{serial},press,{name},{role},{link},0.5,{access},{free_port()}")
    (folder / "boxes.csv").write_text("\n".join([HEAD, *rows, ""]))
    return links


async def formed(boxes: list[ProvisionedMember]) -> None:
    """Return once all know the same leader, and it serves."""

    async def agreed() -> bool:
        told = [await box.status() for box in boxes]
        leaders = {status.get("leader", "") for status in told}
        return len(leaders) == 1 and "" not in leaders and any(status.get("serves") for status in told)

    with trio.fail_after(60):
        while not await agreed():  # noqa: ASYNC110 other processes have no event
            await trio.sleep(0.2)


async def selftest(box: ProvisionedMember) -> str:
    """Return what `rocketbox selftest` prints for a member."""
    words = [sys.executable, "-m", "appliance", "selftest", "--data", str(box.data), "--config", str(box.config)]
    done = await trio.run_process(words, capture_stdout=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stdout
    return done.stdout.decode()


async def run_alone(box: ProvisionedMember) -> None:
    """Have a box run before it is set up, as from its first boot on, with a self-test."""
    small = box.data.parent / "alone.toml"
    small.write_text("[store]\nsegment_mib = 8\n")
    command = ["-m", "appliance", "serve", "--config", str(small), "--data", str(box.data), *PORTS]
    alone = Child(command, box.data.parent / "alone.log")
    alone.start()
    try:
        command = [sys.executable, "-m", "appliance", "selftest", "--data", str(box.data)]
        done = await trio.run_process(command, capture_stdout=True, check=False)
        assert b"ok      message" in done.stdout, done.stdout
    finally:
        alone.stop()


async def passes(box: ProvisionedMember, step: str) -> bool:
    """Return whether a step of the self-test was made and passed."""
    return f"ok      {step}" in await selftest(box)


@pytest.mark.soak
@pytest.mark.parametrize("access", ["", "keys"])
async def test_three_boxes_are_provisioned_one_by_one_and_elect_a_leader(tmp_path: Path, access: str) -> None:
    links = fleet_file(tmp_path, "abc", access=access)
    with benches(tmp_path, "abc") as made:
        dry = made[0].run("fleet", "apply", "boxes.csv", "--port", made[0].port, "--dry-run")
        assert (dry.returncode, "Plan      press-a: RBX-a" in dry.stdout) == (0, True), dry.stderr
        assert not (tmp_path / "groups").exists()
        for bench in reversed(made):  # the order of the cables says nothing
            done = bench.run("fleet", "apply", "boxes.csv", "--port", bench.port, "--yes")
            assert "E101 no box" in done.stdout or done.returncode == 0, (done.stdout, done.stderr)
        again = made[0].run("fleet", "apply", "boxes.csv", "--port", made[0].port, "--yes")
    assert "0 done, 3 skipped, 0 failed" in again.stdout, again.stdout
    boxes = [ProvisionedMember(bench.box, name, link) for bench, name, link in zip(made, "abc", links, strict=True)]
    assert not [path for bench in made for path in bench.box.rglob("ca.key")]
    with ExitStack() as stack:
        for box in reversed(boxes):
            await start(box)
            stack.callback(box.kill)
            if box is boxes[-1]:
                assert "no leader yet" in await selftest(box)
        await formed(boxes)
        for box in boxes:
            by_copy = access == "keys" and not await box.serves()
            await until_it(partial(passes, box, "copy" if by_copy else "message"))


async def test_two_boxes_that_ran_alone_and_a_witness_from_one_file(tmp_path: Path) -> None:
    links = fleet_file(tmp_path, "abw", witness="w")
    with benches(tmp_path, "ab") as made:
        ports = f"{made[1].port},{made[0].port}"
        done = made[0].run("fleet", "apply", "boxes.csv", "--ports", ports, "--yes")
    assert (done.returncode, "2 done, 0 skipped, 0 failed" in done.stdout) == (0, True), (done.stdout, done.stderr)
    told = done.stdout.partition("rocketbox witness ")[2].splitlines()[0]
    witness = Child(["-m", "appliance", "witness", *_words(told, tmp_path)], tmp_path / "witness.log")
    a, b = (ProvisionedMember(bench.box, name, link) for bench, name, link in zip(made, "ab", links[:2], strict=True))
    assert {path.name for path in a.certs.iterdir()} == {"box.crt", "box.key", "ca.crt"}
    assert (a.certs / "box.key").stat().st_mode & 0o777 == 0o600
    for box in (a, b):  # each has a log of its own then
        await run_alone(box)
    with ExitStack() as stack:
        await start(b)
        stack.callback(b.kill)
        witness.start()
        stack.callback(witness.kill)
        await start(a)
        stack.callback(a.kill)
        await formed([a, b])


def _words(told: str, folder: Path) -> list[str]:
    """Return the arguments of the command that was printed, with the folders of this test."""
    places = {"keys": str(folder / "groups/press/w/keys"), "votes": str(folder / "votes")}
    return [places.get(word, word) for word in shlex.split(told)]


def test_a_certificate_is_kept_while_it_fits(tmp_path: Path) -> None:
    keys = tmp_path / "a" / "keys"
    for step in range(3):
        make_certificates(tmp_path, "press", ["a"], keep=True)
        assert (member_fits(keys, "press", "a"), member_fits(keys, "press", "b")) == (True, False)
        before = (keys / "box.crt").read_bytes()
        make_certificates(tmp_path, "press", ["a"], keep=step == 0)
        assert ((keys / "box.crt").read_bytes() == before) == (step == 0)
    assert not member_fits(keys, "press", "a", left_s=LEAF_DAYS * 86_400 + 1)
    (keys / "box.key").unlink()
    assert not member_fits(keys, "press", "a")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x,press,a,h:20912,10911,\ny,press,b,i:10912,,\n", "column link: h:20912, but a box with broker_port 10911"),
        ("x,press,a,h:10912,,z\ny,press,b,i:10912,,\n", "column set.group.preferred: is not a box of group.members"),
        ("x,press,a,h:10912,,!\ny,press,b,i:10912,,\n", "group.preferred = '!': must be a member"),
    ],
)
def test_what_serve_would_refuse_is_told_with_its_column(body: str, expected: str, tmp_path: Path) -> None:
    rows = read_rows("name,group,member,link,set.listen.broker_port,set.group.preferred\n" + body)
    with pytest.raises(ProvisioningError) as raised:
        FleetGroups(rows, tmp_path).configuration(rows[0], None)
    assert expected in str(raised.value)


def test_the_template_of_a_row_keeps_what_it_says_and_an_address_that_moves_opens_every_address(tmp_path: Path) -> None:
    template = tmp_path / "press.toml"
    rows = read_rows(
        "group,member,address,set.group.address\npress,a,10.1.0.11/24,10.1.0.10/24@eth0\npress,b,10.1.0.12/24,\n"
    )
    groups = FleetGroups(rows, tmp_path)
    template.write_text("[store]\nretention_h = 5\n")
    text = (groups.configuration(rows[1], template) or b"").decode()
    for part in ("retention_h = 5", 'host = "0.0.0.0"', 'elections = "manual"', 'address = "10.1.0.10/24@eth0"'):
        assert part in text
    template.write_text('[listen]\nhost = "::"\n')
    assert 'host = "::"' in (groups.configuration(rows[1], template) or b"").decode()
