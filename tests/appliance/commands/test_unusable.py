"""What a command is pointed at and cannot use is told in one line with an exit code, never in a traceback."""

import importlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from appliance.__main__ import COMMANDS, main

NOBODY = 65534


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file, a configuration that is no TOML, and facts that are none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "run"))
    (tmp_path / "file").write_text("x")
    (tmp_path / "bad.toml").write_text("[listen")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    return tmp_path


@contextmanager
def as_another() -> Iterator[None]:
    """Be a user to whom rights of files apply."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(was)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("selftest --config bad.toml --data .", 7, "not TOML"),
        ("doctor --facts none.json", 2, "none.json: No such file"),
        ("doctor --facts bytes", 2, "bytes: not a file of `rocketbox doctor --save`"),
        ("doctor --facts list.json", 2, "list where an object is expected"),
        ("doctor --data . --save file/facts.json", 2, "file/facts.json: Not a directory"),
        ("device --pty --root file", 2, "Not a directory"),
        ("page --config bad.toml --data .", 1, "not TOML"),
        ("config show --config bad.toml", 78, "not TOML"),
        ("access import bytes --data .", 1, "bytes: "),
        ("fleet apply bytes", 6, "bytes: line 1: byte 0xff is not UTF-8"),
        ("flash app bytes --port none", 5, "not a rocketbox bundle"),
        ("fsck file", 2, "does not contain a store"),
        ("backup to --data .", 2, "does not contain a store"),
        ("access list --data nowhere", 1, "nowhere is not a folder; --data DIR names the box's folder"),
        ("access add press-line --data file", 1, "file is not a folder; --data DIR names the box's folder"),
        ("page --data nowhere", 1, "nowhere is not a folder; --data DIR names the box's folder"),
        ("loss --data nowhere", 2, "nowhere/store does not contain a store; --data DIR names the box's folder"),
        ("support --data nowhere", 2, "nowhere is not a folder; --data DIR names the box's folder"),
        ("topics list --tls-ca nowhere", 1, "certificates for TLS cannot be read: nowhere: No such file"),
        ("fsck . --salvage .", 2, "is not empty: name a new or an empty folder"),
        ("restore file --data .", 2, "Not a directory"),
        ("uplink export --to none --data .", 1, "is the stick mounted?"),
    ],
)
def test_it_is_told(place: Path, words: str, code: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == code
    assert told in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code"), [("status", 2), ("conditions", 1), ("topics list", 2), ("selftest", 2), ("fsck", 2), ("loss", 2)]
)
def test_a_folder_of_another_user_is_told(
    tmp_path: Path, words: str, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/nonexistent")
    closed = tmp_path / "closed"
    closed.mkdir()
    line = [*words.split(), "--data", str(closed)]
    importlib.import_module(COMMANDS[line[0]].module)  # another user may not read the program
    closed.chmod(0)
    with as_another():
        assert main(line) == code
    told = "".join(capsys.readouterr())
    assert f"{closed}" in told
    assert "Permission denied" in told
    assert "run this as root or as the user the box runs as" in told or words == "conditions"


def test_a_port_that_is_taken_is_told(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["device", "--root", str(place / "box"), "--listen", str(port)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"rocketbox: port {port} on 127.0.0.1 is taken by another process: stop it")
    assert line.endswith("or choose another --listen")
