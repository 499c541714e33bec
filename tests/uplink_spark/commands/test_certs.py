"""`certs`: names are judged before they name a folder, and the key of the CA stays where it is."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from uplink_spark.__main__ import main


@pytest.mark.parametrize("name", ["../outside", "a/b", ".hidden", "", "x" * 65])
def test_a_name_that_is_none_leaves_nothing_anywhere(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certs", "--dir", str(tmp_path / "site"), "--box", "box-17", "--box", name]) == 2
    assert "1 to 64 of A-Z a-z 0-9 . _ -" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_openssl_the_next_step_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["certs", "--dir", str(tmp_path / "site"), "--box", "box-17"]) == 2
    assert "install the package `openssl` and run this again" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is missing: apt-get install openssl")
def test_boxes_get_folders_of_their_own_and_none_the_key_of_the_ca(tmp_path: Path) -> None:
    site = tmp_path / "site"
    assert main(["certs", "--dir", str(site), "--box", "a", "--box", "b", "--gateway", "localhost"]) == 0
    for box in ("a", "b"):
        assert sorted(path.name for path in (site / box).iterdir()) == ["box.crt", "box.key", "ca.crt"]
        assert (site / box / "ca.crt").read_bytes() == (site / "ca.crt").read_bytes()
    keys = [site / "ca.key", site / "gateway.key", site / "a/box.key"]
    assert [stat.S_IMODE(key.stat().st_mode) for key in keys] == [0o600] * 3
    before = (site / "ca.key").read_bytes()
    assert main(["certs", "--dir", str(site), "--box", "c"]) == 0
    assert (site / "ca.key").read_bytes() == before  # an existing CA is used again
