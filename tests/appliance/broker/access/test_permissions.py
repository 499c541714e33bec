"""Every request code from every place in every mode."""

from ipaddress import ip_network
from pathlib import Path

import pytest

from appliance.access.access import OWN_KEY
from appliance.access.guard import make_guard
from appliance.broker.access.accounts import Account
from appliance.broker.access.permissions import ACCESS, AccessRules, AddressScope, Permissions
from appliance.broker.access.request_table import ROWS, AccessClass, Server
from appliance.broker.assembly import assemble
from appliance.broker.broker_tables import make_tables
from appliance.broker.tables.arrivals import Arrivals
from appliance.configuration.config import load_config
from appliance.configuration.parts import store_config
from appliance.namesrv.address import AnsweredAddress
from appliance.namesrv.composition import kv_file, namesrv_state
from appliance.namesrv.handlers import namesrv_handlers
from appliance.testing import STORE_HOST, FakePeer, wall_ms
from netstack.errors import Refused
from netstack.wire.codes import RequestCode, names_of
from netstack.wire.command import RemotingCommand, request
from storage_driver.files.disk import RealDisk
from storage_driver.store import open_store
from tests.appliance.box import FACTS

NETWORKS = (ip_network("192.168.7.0/24"), ip_network("2001:db8::/64"))
PEERS = {AddressScope.LOOPBACK: "127.0.0.1", AddressScope.INSIDE: "192.168.7.9", AddressScope.OUTSIDE: "203.0.113.9"}
NEVER_OVER_TCP = {25, 318, 27, 306, 329, 9999, 13, 22, 23}
# mode, admin → class → the places from which it is allowed without a key
L, I, O = AddressScope.LOOPBACK, AddressScope.INSIDE, AddressScope.OUTSIDE  # noqa: E741
NOBODY: set[AddressScope] = set()
PLACES: dict[
    tuple[str, str], tuple[set[AddressScope], set[AddressScope], set[AddressScope]]
] = {  # data; lists and registration; changes
    ("subnet", "loopback"): ({L, I}, {L, I}, {L}),
    ("subnet", "subnet"): ({L, I}, {L, I}, {L, I}),
    ("subnet", "keys"): ({L, I}, {L, I}, NOBODY),
    ("open", "loopback"): ({L, I, O}, {L, I}, {L}),
    ("open", "subnet"): ({L, I, O}, {L, I}, {L, I}),
    ("open", "keys"): ({L, I, O}, {L, I}, NOBODY),
    ("keys", "loopback"): (NOBODY, NOBODY, {L}),
    ("keys", "subnet"): (NOBODY, NOBODY, {L, I}),
    ("keys", "keys"): (NOBODY, NOBODY, NOBODY),
}
TABLE: dict[tuple[str, str], dict[AccessClass, set[AddressScope]]] = {
    mode: {
        AccessClass.DATA: data,
        AccessClass.READ: seen,
        AccessClass.JOIN: seen,
        AccessClass.CHANGE: changed,
        AccessClass.ACCOUNTS: NOBODY,  # with an admin's key, or the command on the box
    }
    for mode, (data, seen, changed) in PLACES.items()
}
SECRET = "not-used-here"
ACCOUNTS = {None: None, "user": Account("user-key", SECRET), "admin": Account("admin-key", SECRET, admin=True)}
ACCOUNTS["socket"] = Account(OWN_KEY, SECRET, admin=True)  # what admin.sock gives to root and to the box's user


def verdict(permissions: Permissions, code: int, place: AddressScope) -> int:
    """Return 0 or the code of the refusal."""
    try:
        permissions(request(code), FakePeer(1, (PEERS[place], 1)))
    except Refused as refused:
        return refused.code
    return 0


def refusal(mode: str) -> int:
    """Return the code Apache's brokers give where keys are asked for, and that of the wrong place elsewhere."""
    return 1 if mode == "keys" else 16


def rules(mode: str, admin: str, key: str | None = None) -> Permissions:
    def account_of(command: RemotingCommand, peer: object) -> Account | None:
        return ACCOUNTS[key]

    return Permissions(AccessRules(mode, admin), networks=lambda: NETWORKS, account_of=account_of)


@pytest.mark.parametrize(("mode", "admin"), TABLE)
def test_without_a_key_a_request_is_allowed_where_the_table_says(mode: str, admin: str) -> None:
    permissions = rules(mode, admin)
    wrong = [
        (code, place)
        for code, wanted in ACCESS.items()
        for place in AddressScope
        if verdict(permissions, code, place) != (0 if place in TABLE[mode, admin][wanted] else refusal(mode))
    ]
    assert wrong == []


@pytest.mark.parametrize("key", ["user", "admin", "socket"])
@pytest.mark.parametrize(("mode", "admin"), TABLE)
def test_a_users_key_opens_data_and_an_admins_key_everything(mode: str, admin: str, key: str) -> None:
    permissions = rules(mode, admin, key)
    for code, wanted in ACCESS.items():
        for place in AddressScope:
            open_by_key = wanted is AccessClass.DATA or key in ("admin", "socket")
            allowed = open_by_key or place in TABLE[mode, admin][wanted]
            assert verdict(permissions, code, place) == (0 if allowed else 1), (code, place)


def test_what_has_no_class_is_done_for_nobody() -> None:
    never = {*range(-1, 800), 9999} - set(ACCESS)
    assert never >= NEVER_OVER_TCP
    for mode, admin in TABLE:
        permissions = rules(mode, admin, "admin")
        assert {code for code in never if verdict(permissions, code, AddressScope.LOOPBACK) != 3} == set()


def test_every_code_that_is_classed_exists() -> None:
    assert set(ACCESS) <= set(names_of(RequestCode))


def test_a_refusal_says_what_helps() -> None:
    with pytest.raises(Refused, match=r"access\.admin"):
        rules("subnet", "loopback")(request(17), FakePeer(1, ("192.168.7.9", 1)))
    with pytest.raises(Refused, match="sign it"):
        rules("keys", "keys")(request(10), FakePeer(1, ("192.168.7.9", 1)))
    with pytest.raises(Refused, match=r"access\.allow"):
        rules("subnet", "loopback")(request(10), FakePeer(1, ("203.0.113.9", 1)))


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("127.3.2.1", AddressScope.LOOPBACK),
        ("::1", AddressScope.LOOPBACK),
        ("::ffff:127.0.0.1", AddressScope.LOOPBACK),
        ("::ffff:192.168.7.1", AddressScope.INSIDE),
        ("2001:db8::9", AddressScope.INSIDE),
        ("2001:db8:1::9", AddressScope.OUTSIDE),
        ("10.1.2.3", AddressScope.INSIDE),
        ("11.1.2.3", AddressScope.OUTSIDE),
    ],
)
def test_an_address_lies_where_the_networks_and_the_allowed_ones_say(address: str, place: AddressScope) -> None:
    permissions = Permissions(AccessRules(allow=("10.0.0.0/8",)), networks=lambda: NETWORKS)
    assert permissions.place_of(address) is place
    assert permissions.admits(address) is (place is not AddressScope.OUTSIDE)


def test_only_the_subnet_mode_closes_connections_at_once() -> None:
    assert rules("open", "loopback").admits("203.0.113.9")
    assert rules("keys", "keys").admits("203.0.113.9")


@pytest.mark.parametrize("mode", ["subnet", "keys", "open"])
def test_a_box_that_listens_to_loopback_takes_nobody_else_on_sockets_it_was_handed(mode: str) -> None:
    closed = Permissions(AccessRules(mode, allow=("10.0.0.0/8",), closed=True), networks=lambda: NETWORKS)
    assert [closed.admits(address) for address in ("127.0.0.1", "::1", "192.168.7.9", "10.1.1.1")] == [
        True,
        True,
        False,
        False,
    ]


def test_a_changed_network_counts_from_then_on() -> None:
    networks = [(ip_network("192.168.7.0/24"),)]
    permissions = Permissions(AccessRules(), networks=lambda: networks[0])
    assert permissions.place_of("192.168.8.1") is AddressScope.OUTSIDE
    networks[0] = (ip_network("192.168.8.0/24"),)
    assert permissions.place_of("192.168.8.1") is AddressScope.INSIDE


@pytest.mark.slow
async def test_every_request_a_box_answers_has_a_row_and_every_row_an_answer(tmp_path: Path) -> None:
    config = load_config("", source="test", facts=FACTS)
    guard = make_guard(config, tmp_path, now_ms=wall_ms)
    async with open_store(store_config(config, tmp_path, STORE_HOST), now_ms=wall_ms) as store:
        tables = make_tables(config, store, Arrivals(10, store.max_offset), now_ms=wall_ms)
        broker = assemble(config, store, tables, "127.0.0.1:1", now_ms=wall_ms).handlers
        own = AnsweredAddress((), 1, dict, "127.0.0.1")
        namesrv = namesrv_handlers(namesrv_state(config, tables.topics, own, kv_file(tmp_path, RealDisk())))
    assigned = {int(RequestCode.QUERY_ASSIGNMENT)}  # its handler joins when the name server has started
    handled = {
        Server.BROKER: {*map(int, broker)} | assigned,
        Server.NAMESRV: {*map(int, namesrv)},
        Server.BOTH: {*map(int, guard.handlers("b", "c", "a"))},
    }
    assert handled == {server: {row.code for row in ROWS.values() if row.server is server} for server in Server}
    assert set(ROWS) & NEVER_OVER_TCP == set()
