"""Contexts: kept whole and private, and what is damaged is told with the next step."""

import stat
from pathlib import Path

import pytest

from appliance.__main__ import main
from appliance.commands.contexts import Context, contexts_file, load, save
from netstack.client import ClientError
from uplink_spark.testing import files_end_at


def test_contexts_come_back_and_nobody_else_may_read_them(tmp_path: Path) -> None:
    path = tmp_path / "new/rocketbox/contexts.json"
    assert load(path) == ({}, "")
    contexts = {"a": Context("10.1.0.7:9876", "ops", "s3cret", "/ca"), "ü b": Context("x")}
    save(path, contexts, "a")
    assert load(path) == (contexts, "a")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert "secret" not in path.read_text().partition('"ü b"')[2]  # empty fields are not written


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"contexts": []}', '{"contexts": {"a": 1}}', '{"contexts": {"a": {}}}']
)
def test_a_damaged_file_is_named_with_what_to_do(text: str, tmp_path: Path) -> None:
    path = tmp_path / "contexts.json"
    path.write_text(text)
    with pytest.raises(ClientError, match=r"contexts\.json cannot be read: .*; correct it, or remove it and add"):
        load(path)


def test_keys_of_a_newer_program_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "contexts.json"
    path.write_text('{"contexts": {"a": {"namesrv": "h:1", "colour": "red"}}, "current": "a", "v": 9}')
    assert load(path) == ({"a": Context("h:1")}, "a")


def test_a_full_disk_or_a_planted_link_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "contexts.json"
    save(path, {"a": Context("h:1")}, "a")
    with files_end_at(5), pytest.raises(ClientError):
        save(path, {"b": Context("h:2")}, "b")
    assert load(path) == ({"a": Context("h:1")}, "a")
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path.with_suffix(".tmp").unlink(missing_ok=True)
    path.with_suffix(".tmp").symlink_to(victim)
    save(path, {"b": Context("h:2")}, "b")
    assert victim.read_text() == "mine"
    assert load(path)[1] == "b"


def test_the_file_is_where_the_desktop_keeps_settings(tmp_path: Path) -> None:
    assert contexts_file({"XDG_CONFIG_HOME": str(tmp_path)}) == tmp_path / "rocketbox/contexts.json"
    assert contexts_file({"XDG_CONFIG_HOME": ""}) == Path.home() / ".config/rocketbox/contexts.json"


@pytest.mark.parametrize("address", ["", "10.1.0.7", "h:1;i", "h:99999"])
def test_an_address_without_a_port_is_told_and_not_kept(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["context", "add", "kiosk-7", "--namesrv", address]) == 1
    assert "it is not of the form HOST:PORT" in capsys.readouterr().err
    assert main(["context", "use", "kiosk-7"]) == 1
    assert "no context kiosk-7; `rocketbox context list` shows them" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
