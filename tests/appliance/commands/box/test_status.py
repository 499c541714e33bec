"""`status`: the exit code is the state, and a box that says nothing is not well."""

import argparse
import json
from pathlib import Path

import pytest

from appliance.commands.box import status
from appliance.commands.box.status import health_path, run, running_ports


@pytest.mark.parametrize(
    ("state", "code"), [("ok", 0), ("starting", 1), ("degraded", 1), ("failed", 2), ("", 2), (None, 2), ("OK", 2)]
)
def test_the_state_is_the_exit_code(
    state: str | None, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    health: dict[str, object] = {"state": state, "version": "1", "reasons": []}
    monkeypatch.setattr(status, "read_health", lambda path: dict(health))
    assert (
        run(argparse.Namespace(data=tmp_path, config=None, json=True, watch=False, serving=False, over_serial=False))
        == code
    )
    assert json.loads(capsys.readouterr().out) == health


@pytest.mark.parametrize(
    ("state", "code"), [("ok", 0), ("degraded", 0), ("starting", 1), ("read_only", 1), ("failing", 1), ("safe", 1)]
)
def test_a_health_check_asks_whether_messages_are_taken_and_not_whether_all_is_well(
    state: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "read_health", lambda path: {"state": state, "reasons": []})
    assert (
        run(argparse.Namespace(data=tmp_path, config=None, json=True, watch=False, serving=True, over_serial=False))
        == code
    )


@pytest.mark.parametrize("text", [None, "", "{", "[]", "7"])
def test_a_box_that_says_nothing_is_not_well(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    (tmp_path / "run").mkdir()
    if text is not None:
        (tmp_path / "run/health.json").write_text(text)
    for as_json in (True, False):
        assert (
            run(
                argparse.Namespace(
                    data=tmp_path, config=None, json=as_json, watch=False, serving=False, over_serial=False
                )
            )
            == 2
        )
        assert capsys.readouterr().out.strip()


def test_where_the_health_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = argparse.Namespace(data=tmp_path, config=None)
    assert health_path(here, {"RUNTIME_DIRECTORY": "/run/a:/run/b"}) == Path("/run/a/health.json")
    assert health_path(here, {}) == tmp_path / "run/health.json"
    installed = tmp_path / "health.json"
    installed.write_text("{}")
    monkeypatch.setattr(status, "INSTALLED", installed)
    assert health_path(argparse.Namespace(data=None, config=None), {}) == installed
    assert health_path(here, {}) == tmp_path / "run/health.json"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"ports": {"namesrv": 39876, "broker": 39911}}', {"listen.namesrv_port": 39876, "listen.broker_port": 39911}),
        ('{"ports": {"namesrv": "x"}}', {}),
        ('{"ports": [1]}', {}),
        ("{}", {}),
    ],
)
def test_the_ports_are_those_the_box_wrote_down_unless_a_file_is_named(
    text: str, expected: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/health.json").write_text(text)
    assert running_ports(argparse.Namespace(data=tmp_path, config=None)) == expected
    assert running_ports(argparse.Namespace(data=tmp_path, config=Path("box.toml"))) == {}
