"""Hosts and ports as text and as bytes."""

import pytest

from netstack.serving.addresses import host_bytes, host_port, is_loopback, plain_address, split_host_port


def test_addresses_lose_their_ipv6_dress_and_zone() -> None:
    assert [plain_address(text) for text in ("::ffff:10.0.0.1", "fe80::1%eth0", "10.0.0.1")] == [
        *("10.0.0.1", "fe80::1", "10.0.0.1"),
    ]
    assert [is_loopback(text) for text in ("127.9.9.9", "::1", "localhost", "128.0.0.1")] == [True, True, True, False]


def test_hosts_are_four_or_sixteen_bytes_and_a_port() -> None:
    assert host_bytes("127.0.0.1", 50000).hex() == "7f0000010000c350"
    assert host_bytes("::1", 10911).hex() == "00" * 15 + "01" + "00002a9f"
    assert host_bytes("unix", 0) == bytes(8)


@pytest.mark.parametrize(("host", "text"), [("10.0.0.1", "10.0.0.1:9876"), ("fd00::1", "[fd00::1]:9876")])
def test_a_host_and_its_port_are_one_text_and_come_apart_again(host: str, text: str) -> None:
    assert host_port(host, 9876) == text
    assert split_host_port(text) == (host, 9876)


def test_a_host_that_has_its_brackets_keeps_them() -> None:
    assert host_port("[fd00::1]", 1) == "[fd00::1]:1"


def test_what_has_no_port_is_refused() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        split_host_port("broker")
