"""`rocketbox witness` as a process: with it one of two boxes goes on alone, and it stays small."""

import argparse
import shutil
from pathlib import Path

import pytest
import trio

from appliance.commands.box.witness import add_arguments, members_of
from appliance.errors import ConfigError
from netstack.serving.channel import open_channel
from netstack.serving.server import open_listeners
from tests.appliance.box import send
from tests.appliance.group.certificates import certificates, needs_openssl
from tests.appliance.group.real_group import RealMember, start
from tests.interop.box import Child
from tests.ports import free_port
from tests.waiting import until_it

MOST_MB = 36  # by -m, which takes 0.6 more; 31 of Debian's Python 3.11, other builds take 2 more
MEMBERS = ("a=127.0.0.1:1", "b=127.0.0.1:2", "w=127.0.0.1:3 witness")


@pytest.mark.parametrize(
    ("members", "name", "says"),
    [
        (MEMBERS, "a", "is not a witness in the list"),
        (MEMBERS, "x", "is not a witness in the list"),
        (("w:3 witness",), "w", "NAME=HOST:PORT"),
    ],
)
def test_what_is_no_witness_is_refused(members: tuple[str, ...], name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        members_of(members, name)


def test_the_list_of_the_boxes_is_taken() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    words = ["--group", "press", "--as", "w", "--data", "d", "--certs", "c"]
    words += [word for member in MEMBERS for word in ("--member", member)]
    assert members_of(parser.parse_args(words).member, "w") == MEMBERS


class RealWitness(Child):
    def __init__(self, data: Path, members: list[str], log: Path) -> None:
        command = ["-m", "appliance", "witness", "--group", "press", "--as", "w", "--data", str(data)]
        command += ["--certs", str(certificates() / "w"), "--timing", "0.5"]
        super().__init__([*command, *(word for each in members for word in ("--member", each))], log)


async def leading(members: list[RealMember]) -> RealMember | None:
    for member in members:
        if member.running and await member.serves():
            return member
    return None


@pytest.mark.slow
@needs_openssl
async def test_a_witness_leaves_its_port_at_other_addresses_to_the_boxes_of_the_same_machine(tmp_path: Path) -> None:
    port = free_port()
    witness = RealWitness(tmp_path / "w", [*MEMBERS[:2], f"w=127.0.0.1:{port} witness"], tmp_path / "w.log")
    witness.command += ["--host", "127.0.0.1"]
    try:
        await trio.to_thread.run_sync(witness.start)
        for listener in await open_listeners("127.0.0.2", port):
            await listener.aclose()
        await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
    finally:
        if witness.running:
            witness.kill()


@pytest.mark.slow
@needs_openssl
async def test_with_a_witness_one_of_two_boxes_goes_on_when_the_other_is_killed(tmp_path: Path) -> None:
    a, b, port = RealMember(tmp_path / "a"), RealMember(tmp_path / "b"), free_port()
    listed = [f"{each.name}=127.0.0.1:{each.broker_port + 1}" for each in (a, b)] + [f"w=127.0.0.1:{port} witness"]
    for each in (a, b):
        each.configure([a, b], "copies = 1")
        file = each.data.parent / f"{each.name}.toml"
        text = file.read_text().replace("elections = 'manual'", "elections = 'automatic'")
        file.write_text(text.replace("]\nelections", f', "{listed[-1]}"]\nelections'))
    witness = RealWitness(tmp_path / "w", listed, tmp_path / "w.log")
    try:
        await trio.to_thread.run_sync(witness.start)
        await start(a, b)
        for round_number in range(2):
            await until_it(lambda: leading([a, b]))
            leader = await leading([a, b])
            assert leader is not None
            async with open_channel("127.0.0.1", leader.broker_port) as channel:
                assert (await channel.ask(send("T", b"%d" % round_number), 10)).code == 0
                if round_number == 0:
                    await trio.to_thread.run_sync(leader.kill)
        assert witness.resident_mb() < MOST_MB
    finally:
        for child in (a, b, witness):
            if child.running:
                child.kill()
        shutil.rmtree(tmp_path / "w", ignore_errors=True)
