"""Signed requests that come again: from where they are taken, and how long that is remembered."""

from pathlib import Path

import pytest

from appliance.access.access import Keys
from appliance.broker.access.accounts import Account
from appliance.broker.access.permissions import AccessRules, Permissions
from appliance.broker.access.replays import BOUND, HOT, SeenSignatures, Term, term_of
from appliance.testing import FakePeer, wall_ms
from netstack.errors import Refused
from netstack.wire.codes import RequestCode as Code
from netstack.wire.command import RemotingCommand, request
from tests.appliance.box import ask, heartbeat, send
from tests.appliance.broker.access.test_permissions import NETWORKS
from tests.appliance.keys import ADMIN, ADMIN_SECRET, DEVICE, PUB, SECRET, SUB, signed, write

OPERATOR, STRANGER, LOCAL = "192.168.7.5", "192.168.7.66", "127.0.0.1"
HOME = Account("device-2", SECRET, topics={"T": PUB | SUB}, groups={"CG": SUB}, addresses="192.168.7.5")


def box(tmp_path: Path, mode: str = "keys", replay: str = "address") -> Permissions:
    write(tmp_path, DEVICE, ADMIN, HOME)
    keys = Keys(tmp_path / "access/accounts.json", now_ms=wall_ms)
    return Permissions(AccessRules(mode, "keys", replay=replay), networks=lambda: NETWORKS, account_of=keys)


def peer(address: str, number: int = 1, *, tls: bool = False) -> FakePeer:
    made = FakePeer(number, (address, 40_000 + number))
    made.tls = tls
    return made


def verdict(permissions: Permissions, command: RemotingCommand, came: FakePeer) -> str:
    """Return why a request is refused, nothing when it is not."""
    try:
        permissions(command, came)
    except Refused as refused:
        return refused.remark
    return ""


def admins(code: int, **fields: object) -> RemotingCommand:
    return signed(ask(code, **fields), "admin-1", ADMIN_SECRET)


def again(command: RemotingCommand, code: int | None = None) -> RemotingCommand:
    """Return what somebody makes of a request that he read on its way."""
    return request(code or command.code, dict(command.ext), command.body)


@pytest.mark.parametrize("mode", ["keys", "subnet"])
def test_what_an_admin_looked_at_is_not_deleted_by_who_read_the_request(tmp_path: Path, mode: str) -> None:
    permissions, looked = box(tmp_path, mode), admins(Code.GET_TOPIC_STATS_INFO, topic="T")
    assert verdict(permissions, looked, peer(OPERATOR)) == ""
    for tls in (False, True):
        stolen = again(looked, Code.DELETE_TOPIC_IN_BROKER)
        assert "192.168.7.5 before" in verdict(permissions, stolen, peer(STRANGER, 2, tls=tls))
    assert verdict(permissions, admins(Code.DELETE_TOPIC_IN_BROKER, topic="T"), peer(OPERATOR, 3)) == ""
    assert verdict(permissions, admins(Code.DELETE_TOPIC_IN_BROKER, topic="U"), peer(STRANGER, 4)) == ""  # not a copy


def test_a_change_that_is_sent_again_by_its_own_machine_is_taken(tmp_path: Path) -> None:
    permissions, change = box(tmp_path), admins(Code.DELETE_TOPIC_IN_BROKER, topic="T")
    for number in range(3):
        assert verdict(permissions, again(change), peer(OPERATOR, number)) == ""


@pytest.mark.parametrize(
    "command",
    [
        heartbeat("c@1", consumers={"CG": {"T": "*"}}, producers=("PG",)),
        ask(Code.UNREGISTER_CLIENT, clientID="c@1", consumerGroup="CG"),
        ask(Code.END_TRANSACTION, producerGroup="PG", transactionId="K", commitOrRollback=8),
        request(41, {}, b'{"consumerGroup":"CG","clientId":"c@1","mqSet":[]}'),
    ],
)
def test_what_a_client_says_of_itself_counts_from_its_address_as_long_as_it_is_connected(
    tmp_path: Path, command: RemotingCommand
) -> None:
    permissions, client = box(tmp_path), peer(OPERATOR)
    said = signed(again(command))
    assert verdict(permissions, said, client) == ""
    stranger = peer(STRANGER, 2)
    assert "may be a copy" in verdict(permissions, again(said), stranger)
    assert stranger.signer is None  # it brought nothing
    assert verdict(permissions, again(said), peer(OPERATOR, 3)) == ""
    client.close()
    assert verdict(permissions, again(said), peer("192.168.7.30", 4)) == ""  # it moved, as on a roaming network


def test_sends_that_are_sent_again_are_taken_from_everywhere(tmp_path: Path) -> None:
    permissions, sent = box(tmp_path), signed(send("T"))
    assert [verdict(permissions, again(sent), peer(at)) for at in (OPERATOR, STRANGER)] == ["", ""]


@pytest.mark.parametrize(("address", "tls"), [(OPERATOR, True), (LOCAL, False)])
def test_what_nobody_can_read_on_its_way_is_not_remembered(tmp_path: Path, address: str, tls: bool) -> None:
    permissions, change = box(tmp_path), admins(Code.DELETE_TOPIC_IN_BROKER, topic="T")
    assert verdict(permissions, change, peer(address, tls=tls)) == ""
    assert verdict(permissions, again(change), peer("192.168.7.30", 2)) == ""


def test_strict_takes_signed_requests_over_tls_from_here_and_from_an_address_of_the_key(tmp_path: Path) -> None:
    permissions, change = box(tmp_path, replay="strict"), admins(Code.DELETE_TOPIC_IN_BROKER, topic="T")
    assert "strict" in verdict(permissions, change, peer(OPERATOR))
    assert "may be a copy" in verdict(permissions, again(change), peer(STRANGER, 2, tls=True))  # it was read
    assert verdict(permissions, again(change), peer(OPERATOR, 3, tls=True)) == ""
    assert "strict" in verdict(permissions, signed(send("T")), peer(OPERATOR))
    assert verdict(permissions, signed(send("T")), peer(LOCAL)) == ""
    assert verdict(permissions, signed(send("T"), "device-2"), peer(OPERATOR)) == ""
    assert verdict(permissions, signed(ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="T")), peer(OPERATOR, tls=True)) == ""


def test_off_takes_copies_as_apache_does(tmp_path: Path) -> None:
    permissions, looked = box(tmp_path, replay="off"), admins(Code.GET_TOPIC_STATS_INFO, topic="T")
    assert verdict(permissions, looked, peer(OPERATOR)) == ""
    assert verdict(permissions, again(looked, Code.DELETE_TOPIC_IN_BROKER), peer(STRANGER, 2)) == ""


@pytest.mark.parametrize("replay", ["off", "address", "strict"])
def test_a_key_that_is_bound_to_addresses_is_good_there_alone(tmp_path: Path, replay: str) -> None:
    permissions = box(tmp_path, replay=replay)
    assert verdict(permissions, signed(send("T"), "device-2"), peer(OPERATOR)) == ""
    for tls in (False, True):
        refused = verdict(permissions, signed(send("T"), "device-2"), peer(STRANGER, tls=tls))
        assert "not valid from 192.168.7.66" in refused


def test_the_memory_has_an_end_and_a_key_makes_room_among_its_own() -> None:
    seen, here = SeenSignatures(most_of_one=3, most=5), peer(OPERATOR)
    seen.note("theirs", "s", here, Term.BOX)
    for number in range(5):
        seen.note("mine", f"s{number}", here, Term.BOX)
    assert [seen.elsewhere("mine", f"s{number}", STRANGER) for number in range(5)] == [None, None, *[OPERATOR] * 3]
    seen.note("mine", "s2", here, Term.BOX)  # used again: the newest
    seen.note("mine", "s5", here, Term.BOX)
    assert seen.elsewhere("mine", "s2", STRANGER) == OPERATOR
    assert (seen.elsewhere("mine", "s3", STRANGER), seen.elsewhere("theirs", "s", STRANGER)) == (None, OPERATOR)
    seen.note("theirs", "t", here, Term.BOX)
    seen.note("a third", "u", here, Term.BOX)
    assert (len(seen), seen.elsewhere("a third", "u", STRANGER)) == (5, None)


def test_nothing_of_a_connection_is_left_when_it_has_ended() -> None:
    seen, client = SeenSignatures(), peer(OPERATOR)
    for number in range(10):
        seen.note("mine", f"s{number}", client, Term.CONNECTION)
    client.close()
    assert (len(seen), seen._of, seen._until_closed) == (0, {}, {})


def test_only_what_stock_clients_send_again_unchanged_is_not_bound() -> None:
    assert not BOUND & HOT
    for admin in (False, True):
        assert {term_of(code, admin=admin, data=True, joins=False) for code in HOT} == {Term.NOT}
        assert {term_of(code, admin=admin, data=True, joins=False) for code in BOUND} == {Term.CONNECTION}
    assert term_of(Code.UPDATE_CONSUMER_OFFSET, admin=False, data=True, joins=False) is Term.NOT
    assert term_of(Code.GET_ROUTEINFO_BY_TOPIC, admin=True, data=True, joins=False) is Term.BOX
    assert term_of(Code.REGISTER_BROKER, admin=True, data=False, joins=True) is Term.CONNECTION
