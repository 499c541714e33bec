"""Which of this machine's addresses stands for it."""

import pytest

from appliance.interfaces import everywhere, own_address, read_interfaces, read_networks, remembered
from netstack.serving.addresses import is_loopback

ADDRESSES = {"lo": ["127.0.0.1", "::1"], "eth0": ["fe80::1", "2001:db8::5", "10.1.2.3"], "eth1": ["192.168.0.9"]}


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("0.0.0.0", "10.1.2.3"),
        ("::", "10.1.2.3"),
        ("127.0.0.1", "127.0.0.1"),
        ("192.168.0.9", "192.168.0.9"),
        ("::1", "::1"),
    ],
)
def test_the_bound_address_counts_else_the_first_that_others_reach(host: str, expected: str) -> None:
    assert own_address(host, lambda: ADDRESSES) == expected


def test_a_machine_without_a_network_is_the_loopback() -> None:
    assert own_address("0.0.0.0", lambda: {"lo": ["127.0.0.1", "::1"], "eth0": ["fe80::1"]}) == "127.0.0.1"
    assert own_address("localhost", dict) == "127.0.0.1"


def test_interfaces_are_read_again_after_some_time_and_are_the_same_object_until_then() -> None:
    reads: list[int] = []

    def read() -> list[int]:
        reads.append(1)
        return []

    current = remembered(read, every_s=3600)
    assert current() is current()
    assert len(reads) == 1


def test_this_machine_has_a_loopback() -> None:
    assert any("127.0.0.1" in addresses for addresses in read_interfaces().values())
    assert any(str(network) == "127.0.0.0/8" for network in read_networks())
    assert is_loopback("127.0.0.5")
    assert not is_loopback("0.0.0.0")


@pytest.mark.parametrize(
    ("networks", "wide"),
    [
        (["0.0.0.0/0"], ["0.0.0.0/0"]),
        (["::/0", "10.0.0.0/8"], ["::/0"]),
        (["0.0.0.0/1", "128.0.0.0/1"], ["0.0.0.0/0"]),  # together
        (["2000::/3"], ["2000::/3"]),
        (["10.0.0.0/8", "192.168.0.0/16", "fc00::/7", "fe80::/10"], []),
        ([], []),
    ],
)
def test_networks_that_let_in_everybody_are_found_also_in_parts(networks: list[str], wide: list[str]) -> None:
    assert everywhere(networks) == wide
