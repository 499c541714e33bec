"""`safe`: hands its reason on, and says what to do where it may not or need not."""

import argparse
from pathlib import Path

import pytest

from appliance.commands.box import safe


def command(*given: str) -> int:
    parser = argparse.ArgumentParser()
    safe.add_arguments(parser)
    return safe.run(parser.parse_args(list(given)))


@pytest.fixture(autouse=True)
def systemd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(safe, "SYSTEMD", tmp_path)


def test_a_machine_without_systemd_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(safe, "SYSTEMD", tmp_path / "none")
    monkeypatch.setattr(safe, "main", lambda words: pytest.fail("asked"))
    assert command("enter") == 1
    assert "this machine does not run systemd" in capsys.readouterr().err


def test_the_reason_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[list[str]]()

    def main(words: list[str]) -> int:
        told.append(words)
        return 0

    monkeypatch.setattr(safe, "main", main)
    assert command("enter", "a leaking tank") == command("enter") == command("leave") == 0
    assert told == [["safe", "a leaking tank"], ["safe", "asked for"], ["leave"]]


def test_leaving_what_was_not_entered_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(safe, "main", lambda words: 3)
    assert command("leave") == 3
    assert capsys.readouterr().err == "rocketbox: the box is not in safe mode\n"


def test_without_root_the_next_step_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(words: list[str]) -> int:
        raise PermissionError(13, "Permission denied", "/run/x")

    monkeypatch.setattr(safe, "main", refuse)
    assert command("enter") == 1
    assert "run as root" in capsys.readouterr().err
