"""Which NameServer a client asks first."""

from netstack.client.name_servers import NameServers


def test_the_one_that_answered_last_comes_first_and_each_is_asked_once() -> None:
    servers = NameServers("a:1;b:2;c:3")
    assert (servers.preferred, servers.in_turn()) == ("a:1", ["a:1", "b:2", "c:3"])
    servers.prefer("b:2")
    assert (servers.preferred, servers.in_turn()) == ("b:2", ["b:2", "c:3", "a:1"])


def test_without_an_address_there_is_none_to_prefer() -> None:
    servers = NameServers([])
    assert (servers.preferred, servers.in_turn()) == (None, [])
