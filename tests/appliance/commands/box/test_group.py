"""`group`: what it asks the box, what it asks the operator first, and what it prints."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.admin import AdminRefused, AdminSilent
from appliance.commands.box import group
from appliance.commands.box.group import add_arguments, run
from tests.appliance.commands.box.test_replica import STATUS, Asked


def command(*given: str) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(given))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    found: Asked = []

    def ask(path: Path, action: str, values: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        found.append((action, values))
        return STATUS

    monkeypatch.setattr(group, "ask", ask)
    return found


def test_the_box_is_asked_and_its_answer_shown(
    asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ("--data", str(tmp_path))
    assert command("status", *data) == 0
    assert command("transfer", "b", *data) == 0
    assert command("join", "d=h:10912", *data) == 0
    assert capsys.readouterr().out.count("a (this box) leads, term 3") == 3
    assert command("status", "--json", *data) == 0
    assert '"term": 3' in capsys.readouterr().out
    assert asked == [
        ("group.status", {}),
        ("group.transfer", {"to": "b"}),
        ("group.join", {"member": "d=h:10912"}),
        ("group.status", {}),
    ]


def test_who_goes_needs_a_yes(asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ("--data", str(tmp_path))
    assert command("leave", *data) == command("remove", "c", *data) == 1
    assert asked == []
    assert command("leave", "--yes", *data) == command("remove", "c", "--yes", *data) == 0
    assert asked == [("group.leave", {}), ("group.remove", {"member": "c"})]
    assert "a is out of its group: stop it" in capsys.readouterr().out


def test_a_join_goes_on_until_the_new_one_votes_and_says_each_thing_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers: Iterator[str] = iter(["copies the log", "9 bytes behind", "9 bytes behind", ""])
    monkeypatch.setattr(group, "ask", lambda *given, timeout_s: {**STATUS, "waits": next(answers)})
    monkeypatch.setattr(group, "LOOK_S", 0.0)
    assert command("join", "d=h:10912", "--data", str(tmp_path)) == 0
    said = capsys.readouterr()
    assert said.err.splitlines() == ["copies the log", "9 bytes behind"]
    assert said.out.startswith("a (this box) leads")


@pytest.mark.parametrize(("raised", "code"), [(AdminSilent("no box"), 1), (AdminRefused("ask b"), 2)])
def test_a_refusal_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], raised: Exception, code: int
) -> None:
    def ask(*given: object, timeout_s: float) -> object:
        raise raised

    monkeypatch.setattr(group, "ask", ask)
    assert command("status", "--data", str(tmp_path)) == code
    assert capsys.readouterr().err == f"rocketbox: {raised}\n"


def test_a_group_that_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for members, words in (
        (["a=h"], "NAME=HOST:PORT"),
        (["a=h:10912"], "a group is two boxes, two and a witness, or three"),
        (["a=h:10912", "a=i:10912"], "'a' is there twice"),
    ):
        assert command("init", "press", *members, "--dir", str(tmp_path / "made")) == 2
        assert words in capsys.readouterr().err
    assert not (tmp_path / "made").exists()
