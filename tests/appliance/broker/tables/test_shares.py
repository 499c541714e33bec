"""Shares of addresses."""

import pytest

from appliance.broker.tables.shares import Shares, counted_for


@pytest.mark.parametrize(
    ("address", "counted"),
    [("10.0.0.1", "10.0.0.1"), ("127.0.0.2", ""), ("::1", ""), ("2001:db8::1:2", "2001:db8::/64")],
)
def test_an_ipv6_network_is_one_address_and_this_machine_none(address: str, counted: str) -> None:
    assert counted_for(address) == counted


def test_each_address_leaves_as_much_as_it_takes() -> None:
    shares, free = Shares(3), 100
    for address, expected in (
        ("a", 50),
        ("b", 25),
        ("c", 12),
        ("a", 0),
        ("d", 6),
        ("e", 3),
        ("f", 3),
        ("g", 1),
        ("h", 0),
    ):
        taken = 0
        while (room := shares.room(address, free)) > 0:
            shares.change(address, room)
            free, taken = free - room, taken + room
        assert (address, taken) == (address, expected)
    shares.change("a", -50)
    assert shares.room("b", 50) == 12
    assert (shares.room("", 50), shares.room("", -1)) == (50, 0)
