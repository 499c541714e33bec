"""What an account may do, whose signature counts, and what a file of accounts may hold."""

import json
import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.broker.access.accounts import DENY, Account, AccountError, Accounts, perm_of, word_of
from appliance.broker.access.permissions import Denied
from appliance.broker.rights import Need, Perm, ResourceKind
from netstack.wire.acl import sign
from netstack.wire.codes import RequestCode
from netstack.wire.command import RemotingCommand, request
from tests.appliance.box import send

SECRET, ADMIN_SECRET = "device-secret", "admin-secret"
PUB, SUB = perm_of("PUB"), perm_of("SUB")
ADMIN = Account("admin-1", ADMIN_SECRET, admin=True)


def signed(command: RemotingCommand, name: str = "device-1", secret: str = SECRET) -> RemotingCommand:
    sign(command, name, secret)
    return command


def test_an_admin_without_lists_may_use_every_topic_and_one_with_lists_only_those() -> None:
    every = Accounts({"admin-1": ADMIN, "admin-2": Account("admin-2", ADMIN_SECRET, admin=True, topics={"T": PUB})})
    clock: Callable[[], int] = lambda: 0  # noqa: E731
    assert every.signer(signed(send("ANY"), "admin-1", ADMIN_SECRET), "10.0.0.1", clock) is ADMIN
    with pytest.raises(Exception, match="No default permission for topic:ANY"):
        every.signer(signed(send("ANY"), "admin-2", ADMIN_SECRET), "10.0.0.1", clock)


def test_white_lists_open_data_but_never_administration() -> None:
    account = Account("device-1", SECRET, admin=True, white="10.0.0.*")
    accounts = Accounts({"device-1": account}, ("10.1.0.{1,2}",))
    for address in ("10.0.0.7", "10.1.0.2"):
        unsigned = request(RequestCode.SEND_MESSAGE_V2, {"AccessKey": "device-1", "Signature": "wrong"})
        found = accounts.signer(unsigned, address, lambda: 0)
        assert found is not None
        assert not found.admin


NEED_T = Need(ResourceKind.TOPIC, "T", PUB)


@pytest.mark.parametrize(
    ("account", "granted"),
    [
        (Account("device-1", SECRET), False),
        (Account("device-1", SECRET, topic=PUB), True),
        (Account("device-1", SECRET, topic=SUB), False),
        (Account("device-1", SECRET, topic=PUB, topics={"T": DENY}), False),
        (Account("device-1", SECRET, topics={"T": PUB | SUB}), True),
        (Account("device-1", SECRET, topics={"t": PUB}), False),
        (Account("device-1", SECRET, group=PUB, groups={"T": PUB}), False),
        (Account("device-1", SECRET, admin=True), True),
        (Account("device-1", SECRET, admin=True, groups={"g": SUB}), False),
    ],
)
def test_what_is_listed_wins_over_what_is_usual_and_nothing_is_denied(account: Account, granted: bool) -> None:
    assert account.grants(NEED_T) == granted


@pytest.mark.parametrize(
    ("word", "perm"), [("DENY", DENY), (" pub ", PUB), ("sub|PUB", PUB | SUB), ("PUB | SUB", PUB | SUB)]
)
def test_permissions_are_words_in_any_order(word: str, perm: Perm) -> None:
    assert perm_of(word) == perm
    assert perm_of(word_of(perm)) == perm


@pytest.mark.parametrize("word", ["", "ANY", "PUB|PUB", "PUB,SUB", "DENY|PUB", "|"])
def test_other_words_are_refused_with_those_allowed(word: str) -> None:
    with pytest.raises(AccountError, match=r"use DENY, PUB, SUB or PUB\|SUB"):
        perm_of(word)


@pytest.mark.parametrize("name", ["short1", "x" * 101, "seven\u00fc7", "with space", "", "a\nbcdefg", "abcdefg\n"])
def test_names_of_keys_are_plain(name: str) -> None:
    with pytest.raises(AccountError, match="7 to 100 of"):
        Account(name, SECRET)


def test_a_secret_is_never_shown() -> None:
    account = Account("device-1", "very-secret-text").rotated("newer-secret-text", 5)
    assert "secret-text" not in repr(account)
    with pytest.raises(AccountError) as refused:
        Account("device-1", "tooshrt"[:6])
    assert "tooshr" not in str(refused.value)


@pytest.mark.parametrize("now_ms", [0, 99, 100, 101])
def test_the_secret_before_is_good_until_its_moment_and_no_longer(now_ms: int) -> None:
    accounts = Accounts({"device-1": Account("device-1", SECRET, topic=PUB).rotated("newer-secret", 100)})
    assert accounts.signer(signed(send("T"), secret="newer-secret"), "10.0.0.1", lambda: now_ms) is not None
    if now_ms < 100:
        assert accounts.signer(signed(send("T")), "10.0.0.1", lambda: now_ms) is not None
    else:
        with pytest.raises(Denied, match="Check signature failed for accessKey=device-1"):
            accounts.signer(signed(send("T")), "10.0.0.1", lambda: now_ms)


def test_who_signs_with_a_name_nobody_has_is_told_no_more_than_that() -> None:
    with pytest.raises(Denied) as denied:
        Accounts().signer(signed(send("T"), "x" * 5000), "10.0.0.1", lambda: 0)
    assert str(denied.value).count("x") <= 256
    assert Accounts().signer(send("T"), "10.0.0.1", lambda: 0) is None


def test_a_white_address_of_one_account_opens_nothing_for_another_name() -> None:
    accounts = Accounts(
        {"device-1": Account("device-1", SECRET, white="10.0.0.7"), "device-2": Account("device-2", SECRET)}
    )
    stolen = request(RequestCode.SEND_MESSAGE_V2, {"AccessKey": "device-2", "Signature": "wrong", "b": "T"})
    with pytest.raises(Denied):
        accounts.signer(stolen, "10.0.0.7", lambda: 0)


perms = st.sampled_from([DENY, PUB, SUB, PUB | SUB])
accounts_of = st.builds(
    Account,
    st.from_regex(r"[A-Za-z0-9._@-]{7,20}", fullmatch=True),
    st.text(min_size=7, max_size=20),
    st.booleans(),
    st.sampled_from(["", "10.0.0.9", "10.0.0.*"]),
    perms,
    perms,
    st.dictionaries(st.text(max_size=5), perms, max_size=3),
    st.dictionaries(st.text(max_size=5), perms, max_size=3),
)


@settings(max_examples=30)
@given(st.lists(accounts_of, max_size=3), st.integers(0, 1 << 40))
def test_accounts_come_back_from_their_file(found: list[Account], version: int) -> None:
    table = Accounts({each.name: each for each in found}, ("10.0.0.1",), version, 7)
    read = Accounts.from_object(json.loads(json.dumps(table.to_object())))
    assert (read.keys, read.white, read.version, read.changed_ms) == (
        table.keys,
        table.white,
        table.version,
        table.changed_ms,
    )
    changed = table.changed(9, put=[Account("new-one", SECRET)], drop=["nobody-1", *list(table.keys)[:1]])
    assert (changed.version, changed.changed_ms, "new-one" in changed.keys) == (version + 1, 9, True)
    assert set(changed.keys) - {"new-one"} == set(list(table.keys)[1:]) - {"new-one"}


ROW = {"key": "device-1", "secret": SECRET}


@pytest.mark.parametrize(
    "read",
    [
        *(None, [], "x", 5, {}, {"accounts": {}}, {"accounts": [5]}, {"accounts": [None]}, {"accounts": [[]]}),
        *({"accounts": [], "layout": 2}, {"accounts": [], "layout": "1"}, {"accounts": [], "layout": None}),
        *({"accounts": [], "white": 5}, {"accounts": [], "white": "10.0.0.1"}, {"accounts": [], "white": ["10.0.0"]}),
        *({"accounts": [], "version": "x"}, {"accounts": [], "version": math.inf}, {"accounts": [], "changed_ms": []}),
        *({"accounts": [{"key": "device-1"}]}, {"accounts": [ROW | {"topics": ["T"]}]}),
        *({"accounts": [ROW | {"topics": {"T": 5}}]}, {"accounts": [ROW | {"topic": "ALL"}]}),
        *({"accounts": [ROW | {"white": "10.0"}]}, {"accounts": [ROW | {"until_ms": math.inf}]}),
        {"accounts": [ROW | {"secret": "short"}]},
    ],
)
def test_a_file_that_cannot_be_meant_is_an_error_of_the_accounts_and_nothing_else(read: object) -> None:
    with pytest.raises(AccountError):
        Accounts.from_object(read)


@pytest.mark.parametrize("admin", ["true", 1, "yes", None])
def test_only_true_makes_an_admin(admin: object) -> None:
    assert not Account.from_object(ROW | {"admin": admin}).admin


def test_of_a_name_given_twice_the_first_counts() -> None:
    table = Accounts.from_object({"accounts": [ROW | {"topic": "PUB"}, ROW | {"topic": "SUB"}]})
    assert table.keys["device-1"].topic == PUB
