"""What a command is pointed at and cannot use is told in one line with an exit code, never in a traceback."""

import socket
from pathlib import Path

import pytest

from appliance.__main__ import main


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


def test_a_port_that_is_taken_is_told(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["device", "--root", str(place / "box"), "--listen", str(port)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"rocketbox: port {port} on 127.0.0.1 is taken by another process: stop it")
    assert line.endswith("or choose another --listen")
