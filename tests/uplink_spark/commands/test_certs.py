"""`certs`: names are judged before they name a folder, and the key of the CA stays where it is."""

from __future__ import annotations

import re
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
    before, of_a = (site / "ca.key").read_bytes(), (site / "a/box.key").read_bytes()
    assert main(["certs", "--dir", str(site), "--box", "a", "--folders"]) == 0  # a renewal
    assert (site / "a/box.key").read_bytes() == of_a
    assert main(["certs", "--dir", str(site), "--box", "c"]) == 0
    assert (site / "ca.key").read_bytes() == before  # an existing CA is used again


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is missing: apt-get install openssl")
@pytest.mark.parametrize("host", ["uplink.example.net", "10.1.2.1", "::1"])
def test_what_a_box_or_gateway_uses_is_never_replaced_by_anothers(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "site"
    made = ["certs", "--dir", str(site)]
    assert main([*made, "--box", "a", "--gateway", host]) == 0
    before = files(site)
    assert main([*made, "--box", "b", "--gateway", host]) == 2
    assert capsys.readouterr().err == (
        f"{site}/box.crt and box.key are those of a: nothing was changed; with --folders those of b go to {site}/b\n"
    )
    assert main([*made, "--gateway", "elsewhere"]) == 2
    assert re.fullmatch(
        rf"{site}/gateway.crt is for (DNS|IP Address):\S+, which boxes may use: nothing was changed; "
        r"move it away first to rename the gateway to elsewhere\n",
        capsys.readouterr().err,
    )
    assert files(site) == before
    assert main([*made, "--box", "b", "--folders"]) == 0
    assert {name: data for name, data in files(site).items() if "/" not in name} == before
    assert files(site / "b").keys() == {"box.crt", "box.key", "ca.crt"}
    assert main([*made, "--box", "a", "--gateway", host]) == 0  # a renewal keeps the keys
    after = files(site)
    assert {name for name in before if after[name] != before[name]} == {"box.crt", "gateway.crt"}


@pytest.mark.parametrize("host", ["centre:10940", "1.2.3", "a..b"])
def test_a_gateway_that_has_no_name_is_told(host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certs", "--dir", str(tmp_path / "site"), f"--gateway={host}"]) == 2
    assert "a DNS name or an address, as in uplink.gateway of the boxes without the port" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
