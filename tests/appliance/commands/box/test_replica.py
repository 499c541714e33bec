"""`replica`: what it asks the box, what it asks the operator first, and what it prints."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from appliance.admin import AdminRefused, AdminSilent
from appliance.commands.box import replica
from appliance.commands.box.replica import add_arguments, run

BOX = {
    "address": "10.0.0.1:10912", "witness": False, "learner": False, "connected": True, "synced": 9,
    "behind_bytes": 0, "behind_s": 0.0, "refuses": "", "clock_drift_s": None, "lost": "",
}  # fmt: skip
STATUS: dict[str, Any] = {
    "member": "a", "role": "leader", "serves": True, "term": 3, "leader": "a", "leader_address": "10.0.0.1:10911",
    "members": [
        {**BOX, "member": "a"},
        {**BOX, "member": "b", "behind_bytes": 2048, "behind_s": 1.5, "refuses": "has no space"},
        {**BOX, "member": "w", "witness": True},
        {**BOX, "member": "c", "connected": False, "learner": True, "lost": "c refuses: stranger"},
    ],
    "diverged": None,
    "alone": [],
}  # fmt: skip
Asked = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    found: Asked = []

    def ask(path: Path, action: str, values: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        found.append((action, values))
        return STATUS

    monkeypatch.setattr(replica, "ask", ask)
    return found


def command(tmp_path: Path, *given: str) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args([*given, "--data", str(tmp_path)]))


def test_the_group_is_shown_as_a_table(asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path, "status") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "a (this box) leads, term 3"
    assert [line.split()[0] for line in shown[1:]] == ["MEMBER", "a", "b", "w", "c"]
    assert "2 KiB, 1.5 s behind; has no space" in shown[3]
    assert "witness" in shown[4]
    assert "learner" in shown[5]
    assert shown[5].endswith("not connected: c refuses: stranger")
    assert command(tmp_path, "status", "--json") == 0
    assert '"term": 3' in capsys.readouterr().out


def test_a_leader_that_takes_nothing_says_for_whom_it_waits() -> None:
    waits = {**STATUS, "serves": False}
    assert replica.sentence(waits) == "a (this box) leads, and takes no messages until c is back, term 3"
    there = [{**each, "refuses": ""} for each in STATUS["members"] if each["connected"]]
    assert replica.sentence({**waits, "members": there}) == "a (this box) leads, and takes no messages yet, term 3"
    gone = [{**each, "connected": each["member"] == "a"} for each in there]
    assert "until b is back" in replica.sentence({**waits, "members": gone}), "the witness holds no messages"
    full = [{**each, "refuses": "has no space" if each["member"] == "b" else ""} for each in there]
    assert "takes no messages until b takes them, too" in replica.sentence({**waits, "members": full})
    lacks = {**STATUS, "members": gone, "copies": 2, "copies_there": 1}
    assert "until b is back" in replica.sentence(lacks), "it serves, and sends are refused"
    assert replica.sentence({**lacks, "copies": 1}) == "a (this box) leads, term 3"


def test_a_follower_says_whom_it_follows_and_what_was_taken_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = {"start": 0, "end": 1024, "at_ms": 1, "quarantine": "/q/x", "messages": 5}
    for leader, words in (
        ("b", "a (this box) follows b at h:1, term 3"),
        ("", "the group has no leader"),
        ("a", "leads, and takes no"),
    ):
        said = {**STATUS, "serves": False, "leader": leader, "leader_address": "h:1", "diverged": cut}
        monkeypatch.setattr(replica, "ask", lambda path, action, values, timeout_s, said=said: said)
        command(tmp_path, "status")
        shown = capsys.readouterr().out
        assert words in shown
        assert "taken back: 1 KiB, 5 messages, at 0, kept in /q/x" in shown


def copies(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Return member → what the table says of its copy."""
    lines = capsys.readouterr().out.splitlines()[2:]
    return {line.split()[0]: " ".join(line.split()[3:]) for line in lines}


def test_a_box_of_an_earlier_version_says_less(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    each = {key: value for key, value in BOX.items() if key != "lost"}
    said = {**STATUS, "members": [{**each, "member": "b", "connected": False}]}
    monkeypatch.setattr(replica, "ask", lambda path, action, values, timeout_s: said)
    command(tmp_path, "status")
    assert copies(capsys) == {"b": "not connected"}


def test_a_copy_is_measured_by_the_leader_where_one_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = ({**BOX, "member": name, "behind_bytes": 2048, "behind_s": 1.5} for name in "ab")
    for leader, serves, expected in (
        ("a", True, {"a": "has everything", "b": "2 KiB, 1.5 s behind"}),
        ("a", False, {"a": "has everything", "b": "2 KiB, 1.5 s behind"}),
        ("b", False, {"a": "2 KiB, 1.5 s behind", "b": "has everything"}),
        ("c", False, {"a": "2 KiB, 1.5 s behind", "b": "connected"}),
        ("", False, {"a": "-", "b": "connected"}),
    ):
        said = {**STATUS, "serves": serves, "leader": leader, "members": [a, b]}
        monkeypatch.setattr(replica, "ask", lambda path, action, values, timeout_s, said=said: said)
        command(tmp_path, "status")
        assert copies(capsys) == expected
    said = {**STATUS, "members": [a, {**b, "behind_bytes": None, "behind_s": None}]}
    monkeypatch.setattr(replica, "ask", lambda path, action, values, timeout_s: said)
    command(tmp_path, "status")
    assert copies(capsys)["b"] == "not known yet"


def test_what_may_lose_something_needs_a_yes(asked: Asked, tmp_path: Path) -> None:
    for given in (["promote", "--accept-loss"], ["solo"], ["resync"]):
        assert command(tmp_path, *given) == 1
    assert asked == []
    assert command(tmp_path, "promote") == 0
    assert command(tmp_path, "promote", "--accept-loss", "--yes") == 0
    assert command(tmp_path, "demote") == 0
    assert command(tmp_path, "transfer", "b") == 0
    promoted = [("group.promote", {}), ("group.promote", {"accept_loss": True})]
    assert asked == [*promoted, ("group.demote", {}), ("group.transfer", {"to": "b"})]


@pytest.mark.parametrize(("raised", "code"), [(AdminSilent("no box"), 1), (AdminRefused("it would lose 3"), 2)])
def test_a_refusal_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], raised: Exception, code: int
) -> None:
    def ask(path: Path, action: str, values: dict[str, Any], *, timeout_s: float) -> object:
        raise raised

    monkeypatch.setattr(replica, "ask", ask)
    assert command(tmp_path, "promote") == code
    assert capsys.readouterr().err == f"rocketbox: {raised}\n"
