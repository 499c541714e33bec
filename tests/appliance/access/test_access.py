"""Keys: the file, its reload, signatures over the wire, what Apache's account commands change."""

import json
from pathlib import Path

import pytest
import trio

from appliance.access.access import OWN_KEY, load_accounts
from appliance.admin import ask as ask_admin
from appliance.broker.access.accounts import Account, AccountError, Accounts
from tests.appliance.box import ask, heartbeat, pull, send
from tests.appliance.keys import ADMIN, DEVICE, PUB, SECRET, guarded, outcome, signed, write


@pytest.mark.slow
async def test_a_key_opens_what_its_account_lists_and_nothing_else(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (_box, line):
        assert (await outcome(line, signed(send("T"))))[0] == 0
        assert (await outcome(line, signed(send("T", code=10))))[0] == 0
        for command, reason in (
            (send("T"), "No accessKey is configured"),
            (signed(send("T"), "nobody-1"), "No acl config for nobody-1"),
            (signed(send("T"), secret="another-one"), "Check signature failed for accessKey=device-1"),
            (signed(send("OTHER")), "No default permission for topic:OTHER"),
            (signed(send("SUBONLY")), "No default permission for topic:SUBONLY"),
            (signed(send("SUBONLY", code=320)), "No default permission for topic:SUBONLY"),
            (signed(send("%RETRY%OTHER")), "No default permission for group:OTHER"),
            (signed(send("OTHER", code=325)), "No default permission for topic:OTHER"),
            (signed(send("x" * 5000)), "No default permission for topic:" + "x" * 255),
            (signed(ask(33, offset="0")), "No default permission for topic:*"),
            (signed(pull("OTHER")), "No default permission for topic:OTHER"),
            (signed(pull("T", group="G2")), "No default permission for group:G2"),
            (signed(heartbeat("c", consumers={"CG": {"OTHER": "*"}})), "No default permission for topic:OTHER"),
            (signed(heartbeat("c", consumers={"G2": {"T": "*"}})), "No default permission for group:G2"),
            (signed(ask(17, topic="X")), "Need admin permission for request code=17, but accessKey=device-1 is not"),
        ):
            code, remark = await outcome(line, command)
            assert (code, remark[: len(reason)]) == (1, reason), command
        assert (await outcome(line, signed(pull("T"))))[0] == 0
        assert (await outcome(line, signed(send("RMQ_SYS_TRACE_TOPIC"))))[0] == 0  # anybody with a key may trace


@pytest.mark.slow
async def test_a_topic_named_twice_is_checked_as_it_is_used(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (_box, line):
        for code in (10, 310, 320):
            command = send("OTHER", code=code)
            command.ext = {**command.ext, "topic": "T"}
            assert (await outcome(line, signed(command)))[1].startswith("No default permission for topic:OTHER")


@pytest.mark.slow
async def test_a_body_or_a_field_changed_on_the_way_is_noticed(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (_box, line):
        changed = signed(send("T", b"pay 1"))
        changed.body = b"pay 9"
        assert (await outcome(line, changed))[1].startswith("Check signature failed")
        moved = signed(send("T"))
        moved.ext = {**moved.ext, "e": "1"}
        assert (await outcome(line, moved))[1].startswith("Check signature failed")


@pytest.mark.slow
async def test_the_box_asks_itself_with_a_key_of_its_own_which_is_good_from_here_alone(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (_box, line):
        own = await trio.to_thread.run_sync(ask_admin, tmp_path / "run/admin.sock", "access.own")
        assert own["key"] == OWN_KEY
        assert (await outcome(line, signed(ask(28), own["key"], own["secret"])))[0] == 0
        assert (await outcome(line, signed(ask(28), OWN_KEY, "guessed-secret")))[1].startswith("Check signature failed")


@pytest.mark.slow
async def test_a_changed_file_counts_at_once_when_asked_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    async def reload() -> dict[str, object]:
        answer = await trio.to_thread.run_sync(ask_admin, tmp_path / "run/admin.sock", "access.reload")
        assert isinstance(answer, dict)
        return answer

    async with guarded(tmp_path) as (_box, line):
        path = write(tmp_path, Account("device-2", SECRET, topics={"T": PUB}))
        assert (await reload())["accounts"] == 1
        assert (await outcome(line, signed(send("T"), "device-2")))[0] == 0
        assert (await outcome(line, signed(send("T"))))[1] == "No acl config for device-1"
        path.write_text("{")
        assert "accounts.json" in str((await reload())["failure"])
        assert (await outcome(line, signed(send("T"), "device-2")))[0] == 0


async def test_accounts_survive_the_way_to_the_file_and_back(tmp_path: Path) -> None:
    rotated = DEVICE.rotated("new-secret-1", 99)
    path = write(tmp_path, rotated, ADMIN, white=("10.0.0.*",))
    read = load_accounts(path)
    assert (read.keys, read.white) == ({"device-1": rotated, "admin-1": ADMIN}, ("10.0.0.*",))
    assert "secret" not in repr(rotated).replace("secret=", "")


def test_a_rotated_secret_is_good_for_its_time(tmp_path: Path) -> None:
    accounts = Accounts({"device-1": DEVICE.rotated("new-secret-1", 1000)})

    def accepted(secret: str, now: int) -> bool:
        try:
            return accounts.signer(signed(send("T"), secret=secret), "10.0.0.1", lambda: now) is not None
        except Exception:
            return False

    assert [accepted(SECRET, 999), accepted(SECRET, 1000), accepted("new-secret-1", 5000)] == [True, False, True]


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '{"accounts": 1}',
        '{"layout": 9, "accounts": []}',
        '{"accounts": [{"key": "device-1"}]}',
        '{"accounts": [{"key": "short", "secret": "long-enough"}]}',
        '{"accounts": [{"key": "device-1", "secret": "short"}]}',
        '{"accounts": [{"key": "device-1", "secret": "long-enough", "topic": "ALL"}]}',
        '{"accounts": [{"key": "device-1", "secret": "long-enough", "topics": ["T"]}]}',
        '{"accounts": [{"key": "device-1", "secret": "long-enough", "white": "10.0"}]}',
        '{"accounts": [], "white": ["nonsense"]}',
        '{"accounts": [], "white": 7}',
        "\udcff",  # no UTF-8
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_with_its_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "accounts.json").write_text(content, errors="surrogateescape")
    with pytest.raises(AccountError, match=r"accounts\.json"):
        load_accounts(tmp_path / "accounts.json")


def test_the_file_holds_nothing_but_what_its_description_says(tmp_path: Path) -> None:
    read = json.loads(write(tmp_path, DEVICE).read_text())
    assert read["accounts"][0]["topics"] == {"T": "PUB|SUB", "SUBONLY": "SUB"}
    assert set(read) == {"layout", "version", "changed_ms", "white", "accounts"}
