"""`uplink`: what it asks the box, and what stops it before the box is asked."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from appliance.admin import AdminSilent
from appliance.commands.box import uplink
from appliance.commands.box.uplink import add_arguments, run

Asked = list[tuple[str, dict[str, Any], Path | None]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    found: Asked = []

    def ask(path: Path, action: str, values: dict[str, Any], *, folder: Path | None) -> dict[str, Any]:
        found.append((action, values, folder))
        return {"value": {"n": 1}, "text": "one line", "code": 10}

    monkeypatch.setattr(uplink, "ask", ask)
    return found


def command(tmp_path: Path, *given: str) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args([*given, "--data", str(tmp_path)]))


def test_the_boxs_answer_and_its_code_are_passed_on(
    asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path, "status") == 10
    assert command(tmp_path, "status", "--json") == 10
    assert capsys.readouterr().out == 'one line\n{"n": 1}\n'
    assert asked == [("uplink.status", {}, None)] * 2


def test_nothing_is_discarded_without_a_yes(
    asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115
    discard = ["discard", "--before", "700", "--reason", "moved"]
    assert command(tmp_path, *discard) == 1
    assert "nothing was discarded" in capsys.readouterr().err
    assert asked == []
    command(tmp_path, *discard, "--yes")
    assert asked == [("uplink.discard", {"before": 700, "reason": "moved"}, None)]


def test_a_stick_that_is_not_mounted_is_told_before_the_box_is_asked(
    asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for given in (("export", "--to", "/nowhere/stick"), ("import", "/nowhere/stick")):
        assert command(tmp_path, *given) == 1
        assert "/nowhere/stick is not a folder: is the stick mounted?" in capsys.readouterr().err
    assert asked == []
    command(tmp_path, "export", "--to", str(tmp_path))
    assert asked == [("uplink.export", {}, tmp_path)]


def test_a_box_that_does_not_run_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    assert command(tmp_path, "status") == 1
    err = capsys.readouterr().err
    assert err.startswith("rocketbox: ")
    assert err.count("\n") == 1
    assert AdminSilent.__name__ not in err
