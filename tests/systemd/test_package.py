"""The Debian package: built, installed into an empty root, run, removed, purged."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is missing"),
    pytest.mark.skipif(os.geteuid() != 0, reason="dpkg needs root"),
]


def dpkg(root: Path, *words: str) -> None:
    done = subprocess.run(
        ["dpkg", f"--root={root}", "--force-depends", "--force-script-chrootless", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_installs_runs_and_leaves_only_data_behind(tmp_path: Path) -> None:
    subprocess.run(
        [TOP / "systemd/make-deb.sh", tmp_path / "deb", sys.executable], check=True, capture_output=True, cwd=TOP
    )
    (package,) = (tmp_path / "deb").glob("*.deb")
    size, unpacked = package.stat().st_size, tmp_path / "deb/root/usr/share/rocketbox/slot"
    held = sum(path.stat().st_size for path in unpacked.rglob("*") if path.is_file())
    print(f"package {size / 1e6:.2f} MB, environment {held / 1e6:.1f} MB")
    assert held < 15e6
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    for name in ("info", "updates", "triggers"):
        (root / "var/lib/dpkg" / name).mkdir(parents=True)
    for name in ("status", "available"):
        (root / "var/lib/dpkg" / name).touch()
    dpkg(root, "-i", str(package))
    python = root / "opt/slots/a/bin/python"
    done = subprocess.run(
        [python, "-IB", "-m", "appliance", "config", "check"], capture_output=True, text=True, check=False
    )
    assert "no problems" in done.stdout, done.stderr
    assert "rocketbox" in (root / "etc/passwd").read_text()
    (root / "var/lib/rocketbox/store").mkdir(parents=True)
    dpkg(root, "--purge", "rocketbox")
    assert not (root / "opt/slots").exists()
    assert not (root / "usr/lib/rocketbox/escalate.py").exists()
    assert (root / "var/lib/rocketbox/store").exists()
