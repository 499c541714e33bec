"""Apache's account commands."""

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.access.access import accounts_path
from appliance.broker.access.accounts import Account, Accounts
from appliance.broker.admin.accounts import AccountAdmin
from appliance.requests import Responder
from appliance.testing import FakePeer, answered
from netstack.wire.command import RemotingCommand, request
from tests.appliance.box import ask, send
from tests.appliance.keys import ADMIN, ADMIN_SECRET, DEVICE, SECRET, guarded, outcome, signed


@pytest.mark.slow
async def test_apaches_account_commands_need_an_admins_key_and_change_the_file(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (_box, line):
        put = {"accessKey": "device-3", "secretKey": "third-secret", "admin": "false", "topicPerms": "T=PUB,U=SUB|PUB"}
        assert (await outcome(line, signed(ask(50, **put))))[1].startswith("Need admin permission")
        assert (await outcome(line, ask(50, **put)))[1].startswith("No accessKey is configured")
        assert (await outcome(line, signed(ask(50, **put), "admin-1", ADMIN_SECRET))) == (0, "")
        assert (await outcome(line, signed(send("U"), "device-3", "third-secret")))[0] == 0
        short = signed(ask(50, accessKey="short", secretKey="x"), "admin-1", ADMIN_SECRET)
        assert (await outcome(line, short))[0] == 209
        shown = await line.ask(signed(ask(54), "admin-1", ADMIN_SECRET))
        assert b"third-secret" not in shown.body
        assert b'"device-3"' in shown.body
        assert (await outcome(line, signed(ask(51, accessKey="device-3"), "admin-1", ADMIN_SECRET))) == (0, "")
        assert (await outcome(line, signed(ask(51, accessKey="device-3"), "admin-1", ADMIN_SECRET)))[0] == 210
        white = ask(53, globalWhiteAddrs="127.0.0.*")
        assert (await outcome(line, signed(white, "admin-1", ADMIN_SECRET))) == (0, "")
        assert (await outcome(line, send("ANY")))[0] == 0
        assert (await outcome(line, ask(17, topic="X")))[0] == 1  # an address is no admin
        assert stat.S_IMODE(accounts_path(tmp_path).stat().st_mode) == 0o600


class Kept:
    """Accounts without a file."""

    def __init__(self, *accounts: Account) -> None:
        self.accounts, self.path = Accounts({each.name: each for each in accounts}, (), 7, 5), Path("/accounts.json")

    def change(self, changed: Callable[[Accounts], Accounts]) -> None:
        made = changed(self.accounts)  # as the file's owner does
        self.accounts = Accounts(made.keys, made.white, self.accounts.version + 1, 6)


def admin_of(kept: Kept) -> Responder:
    return Responder(AccountAdmin(kept, broker="b", cluster="C", address="h:1").handlers())


async def told(kept: Kept, code: int, **ext: str) -> RemotingCommand:
    return await answered(admin_of(kept)(request(code, ext), FakePeer()))


async def test_what_is_not_said_of_an_account_stays() -> None:
    kept = Kept(DEVICE)
    answer = await told(kept, 50, accessKey="device-1", secretKey="another-secret", whiteRemoteAddress="10.0.0.9")
    assert answer.code == 0
    found = kept.accounts.keys["device-1"]
    assert (found.secret, found.white, found.topics, found.groups) == (
        "another-secret",
        "10.0.0.9",
        DEVICE.topics,
        DEVICE.groups,
    )
    assert kept.accounts.version == 8


@pytest.mark.parametrize(
    "wrong",
    [
        {"secretKey": "short"},
        {"accessKey": "x"},
        {"whiteRemoteAddress": "10.0"},
        {"topicPerms": "T"},
        {"topicPerms": "=PUB"},
        {"topicPerms": "T=ALL"},
        {"groupPerms": "g=PUB,h"},
        {"defaultTopicPerm": "ANY"},
    ],
)
async def test_what_cannot_be_is_209_and_changes_nothing(wrong: dict[str, str]) -> None:
    kept = Kept(DEVICE)
    before = kept.accounts
    answer = await told(kept, 50, **{"accessKey": "device-1", "secretKey": "another-secret", **wrong})
    assert (answer.code, kept.accounts) == (209, before)
    assert "another-secret" not in str(answer.remark)


async def test_no_answer_holds_a_secret() -> None:
    kept = Kept(DEVICE, ADMIN)
    everything = await told(kept, 54)
    rows = json.loads(everything.body)["plainAccessConfigs"]
    assert [row["accessKey"] for row in rows] == ["admin-1", "device-1"]
    assert {row["secretKey"] for row in rows} == {"******"}
    assert rows[1]["topicPerms"] == ["T=PUB|SUB", "SUBONLY=SUB"]


async def test_white_addresses_are_replaced_whole_and_a_bad_one_replaces_none() -> None:
    kept = Kept(DEVICE)
    assert (await told(kept, 53, globalWhiteAddrs="10.0.0.1,,10.0.0.*")).code == 0
    assert kept.accounts.white == ("10.0.0.1", "10.0.0.*")
    assert kept.accounts.keys == {"device-1": DEVICE}
    assert (await told(kept, 53, globalWhiteAddrs="10.0.0.1,nonsense")).code == 211
    assert kept.accounts.white == ("10.0.0.1", "10.0.0.*")


async def test_the_version_rises_with_every_change() -> None:
    kept, seen = Kept(DEVICE), list[int]()
    for code, ext in (
        (52, {}),
        (50, {"accessKey": "device-9", "secretKey": SECRET}),
        (53, {"globalWhiteAddrs": "10.0.0.1"}),
        (51, {"accessKey": "device-9"}),
    ):
        assert (await told(kept, code, **ext)).code == 0
        seen.append(json.loads((await told(kept, 52)).ext["version"])["counter"])
    assert seen == [7, 8, 9, 10]
