"""Accounts of an Apache broker: what each word becomes, and no shape of the file opens a door."""

import json
from pathlib import Path
from typing import Any

import pytest

from appliance.access.apache_acl import BIGGEST, read_apache_file
from appliance.broker.access.accounts import DENY, AccountError, perm_of

ROW: dict[str, Any] = {"accessKey": "RocketMQ", "secretKey": "12345678"}


def read(tmp_path: Path, tree: object) -> Any:
    path = tmp_path / "plain_acl.json"
    path.write_text(tree if isinstance(tree, str) else json.dumps(tree))
    return read_apache_file(path)


def test_every_word_of_an_account_is_taken_over(tmp_path: Path) -> None:
    row = ROW | {
        "whiteRemoteAddress": "10.0.0.*", "admin": False, "defaultTopicPerm": "DENY", "defaultGroupPerm": "SUB",
        "topicPerms": ["topicA=DENY", "topicB=PUB|SUB"], "groupPerms": [" groupA = SUB "],
    }  # fmt: skip
    ((account,), white, warnings) = read(tmp_path, {"accounts": [row]})
    assert (account.name, account.secret, account.admin, white, warnings) == ("RocketMQ", "12345678", False, [], [])
    assert (account.topic, account.group) == (DENY, perm_of("SUB"))
    assert account.topics == {"topicA": DENY, "topicB": perm_of("PUB|SUB")}
    assert account.groups == {"groupA": perm_of("SUB")}
    assert account.from_white("10.0.0.9")
    assert not account.from_white("10.0.1.9")


@pytest.mark.parametrize(("word", "admin"), [(True, True), ("TRUE", True), ("yes", False), (1, False), (None, False)])
def test_only_true_makes_an_admin(word: object, admin: bool, tmp_path: Path) -> None:
    assert read(tmp_path, {"accounts": [ROW | {"admin": word}]})[0][0].admin == admin


def test_a_word_that_is_no_permission_denies_and_is_told(tmp_path: Path) -> None:
    accounts, _, warnings = read(tmp_path, {"accounts": [ROW | {"defaultTopicPerm": "ALL"}]})
    assert accounts[0].topic == DENY
    assert warnings == [
        "RocketMQ: defaultTopicPerm = 'ALL' is not a permission; it counts as DENY, as in Apache's broker"
    ]


def test_of_an_account_that_stands_twice_the_first_counts(tmp_path: Path) -> None:
    accounts, _, warnings = read(tmp_path, {"accounts": [ROW, ROW | {"secretKey": "87654321"}]})
    assert [account.secret for account in accounts] == ["12345678"]
    assert warnings == ["RocketMQ is listed twice: the first entry is used"]


def test_white_lists_are_told_to_open_less_than_they_did(tmp_path: Path) -> None:
    _, white, warnings = read(tmp_path, {"globalWhiteRemoteAddresses": ["10.0.0.*", " "], "accounts": None})
    assert white == ["10.0.0.*"]
    assert "never to administration" in warnings[0]


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ([], "expected a mapping with `accounts:`"),
        ({"accounts": {"a": 1}}, "is not a list of accounts"),
        ({"accounts": ["a"]}, "is not a list of accounts"),
        ({"globalWhiteRemoteAddresses": "*"}, "`globalWhiteRemoteAddresses:` is not a list of addresses"),
        ({"globalWhiteRemoteAddresses": 10}, "`globalWhiteRemoteAddresses:` is not a list of addresses"),
        ({"globalWhiteRemoteAddresses": ["10.0.0"]}, "globalWhiteRemoteAddresses: '10.0.0' is not an address pattern"),
        ({"accounts": [ROW | {"whiteRemoteAddress": "10.0.0"}]}, "account 1: '10.0.0' is not an address pattern"),
        ({"accounts": [ROW | {"topicPerms": "topicA=PUB"}]}, "account 1: topicPerms and groupPerms are lists"),
        ({"accounts": [ROW | {"topicPerms": ["topicA"]}]}, "account 1: 'topicA' is not NAME=PERMISSION"),
        ({"accounts": [ROW | {"groupPerms": ["=SUB"]}]}, "account 1: '' is not NAME=PERMISSION"),
        ({"accounts": [{"secretKey": "12345678"}]}, "account 1: "),
        ("{", "plain_acl.json: "),
        ("[" * 100_000, "plain_acl.json: "),
    ],
)
def test_a_file_of_another_shape_is_told_and_nothing_is_taken(tree: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(AccountError) as raised:
        read(tmp_path, tree)
    assert said in str(raised.value)


def test_bytes_that_are_no_text_and_files_that_are_no_list_are_told(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_bytes(b"accounts:\xff")
    with pytest.raises(AccountError, match="'utf-8' codec"):
        read_apache_file(path)
    with path.open("wb") as file:
        file.truncate(BIGGEST + 1)
    with pytest.raises(AccountError, match="4 MiB is too large for a list of accounts"):
        read_apache_file(path)
