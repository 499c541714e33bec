"""Two machines with one address, as two network name spaces on one wire."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from appliance.health.duplicate_address import answerer, arp_probe

ROOT = Path(__file__).parents[3]
OWN, OTHER, ADDRESS = bytes.fromhex("020000000001"), bytes.fromhex("020000000002"), IPv4Address("192.0.2.7")
CAN = os.geteuid() == 0 and shutil.which("ip") is not None


def reply(sender: bytes, address: IPv4Address) -> bytes:
    head = OWN + sender + bytes.fromhex("08060001080006040002")
    return head + sender + address.packed + OWN + bytes(4)


def test_a_probe_claims_nothing_and_asks_everybody() -> None:
    expected = "ffffffffffff0200000000010806000108000604000102000000000100000000000000000000c0000207"
    assert arp_probe(OWN, ADDRESS).hex() == expected


@pytest.mark.parametrize(
    ("frame", "who"),
    [
        (reply(OTHER, ADDRESS), "02:00:00:00:00:02"),
        (reply(OTHER, IPv4Address("192.0.2.8")), None),
        (reply(OWN, ADDRESS), None),
        (reply(OTHER, ADDRESS)[:30], None),
        (b"", None),
    ],
)
def test_only_another_machine_that_has_this_address_counts(frame: bytes, who: str | None) -> None:
    assert answerer(frame, OWN, ADDRESS) == who


@pytest.fixture
def wire() -> Iterator[str]:
    """Two name spaces joined by a cable, both with 192.0.2.7; yields the name of the first."""
    here, there = f"rbx{os.getpid()}a", f"rbx{os.getpid()}b"
    try:
        for words in (
            f"netns add {here}",
            f"netns add {there}",
            f"-n {here} link add cable type veth peer name cable netns {there}",
            f"-n {here} addr add {ADDRESS}/24 dev cable",
            f"-n {here} link set cable up",
            f"-n {there} link set cable up",
        ):
            subprocess.run(["ip", *words.split()], check=True, capture_output=True)
        yield here
    except subprocess.CalledProcessError as exc:
        pytest.skip(f"no network name spaces here: {exc.stderr!r}")
    finally:
        for name in (here, there):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.mark.slow
@pytest.mark.skipif(not CAN, reason="needs root and ip (iproute2)")
def test_a_machine_with_the_same_address_is_found_on_a_real_wire(wire: str) -> None:
    script = "from appliance.health.doctor_facts import duplicate_addresses; print(duplicate_addresses())"
    words = ["ip", "netns", "exec", wire, sys.executable, "-c", script]

    def asked() -> str:
        return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30).stdout.strip()

    assert asked() == "[]"
    other = wire[:-1] + "b"
    subprocess.run(["ip", "-n", other, "addr", "add", f"{ADDRESS}/24", "dev", "cable"], check=True)
    assert asked().startswith(f"['{ADDRESS} on cable: also ")
