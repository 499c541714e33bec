"""The unit files by systemd's own judgement; needs no PID 1."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
UNITS = sorted(
    path for path in (TOP / "systemd").iterdir() if path.suffix in {".service", ".socket", ".path", ".timer"}
)
pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")


@pytest.mark.slow
def test_systemd_finds_nothing_wrong_with_any_unit(tmp_path: Path) -> None:
    for unit in UNITS:
        text = unit.read_text().replace("/opt/appliance/bin/python", "/usr/bin/python3")
        (tmp_path / unit.name).write_text(text)
    (tmp_path / "rocketbox-safe.target").write_text((TOP / "systemd/rocketbox-safe.target").read_text())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))],
        capture_output=True,
        text=True,
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:", "PATH": "/usr/bin:/bin"},
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if "rocketbox" in line]
    assert (done.returncode, said) == (0, [])


def test_a_disk_without_room_for_byte_code_is_told_with_the_next_step(tmp_path: Path) -> None:
    for name, code in (("systemd-sysusers", 0), ("systemd-tmpfiles", 0), ("py3compile", 1)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / name).chmod(0o755)
    words = ["sh", str(TOP / "systemd/debian/postinst"), "configure"]
    path = f"{tmp_path}:/usr/bin:/bin"
    done = subprocess.run(words, capture_output=True, text=True, env={"PATH": path}, check=False)
    assert done.returncode == 1
    assert "Free some MiB there (df /usr; df -i /usr), then: sudo dpkg --configure rocketbox" in done.stderr


@pytest.mark.slow
def test_the_service_is_exposed_by_at_most_one_and_a_half() -> None:
    words = ["systemd-analyze", "security", "--offline=yes", "--threshold=15", str(TOP / "systemd/rocketbox.service")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-300:]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_every_program_a_unit_starts_is_installed_by_us_or_by_debian(unit: Path) -> None:
    for line in unit.read_text().splitlines():
        if line.startswith("Exec"):
            words = line.partition("=")[2].split()
            assert words[0] in ("/opt/appliance/bin/python", "/usr/bin/python3")
            assert words[1] == "-I"  # neither the working folder nor the environment decides what is imported
            if words[0] == "/usr/bin/python3":
                assert words[2] in ("/usr/lib/rocketbox/escalate.py", "/usr/lib/rocketbox/slot.py")


@pytest.mark.slow
def test_an_installation_is_complete_and_its_helpers_run_without_the_product(tmp_path: Path) -> None:
    subprocess.run([TOP / "systemd/install.sh", tmp_path], check=True)
    for name in ("lib/systemd/system/rocketbox.service", "lib/sysusers.d/rocketbox.conf", "lib/rocketbox/slot.py"):
        assert (tmp_path / "usr" / name).is_file()
    told = re.findall(r"`/(usr/lib/rocketbox/[^`]+)`", (TOP / "docs/replication.md").read_text())
    assert told, "the drop-in that a group copies"
    assert all((tmp_path / name).is_file() for name in told)
    root = tmp_path / "box"
    (root / "proc/sys/kernel/random").mkdir(parents=True)
    (root / "proc/sys/kernel/random/boot_id").write_text("x\n")
    (root / "proc/uptime").write_text("1.0 1.0\n")
    helper = tmp_path / "usr/lib/rocketbox/escalate.py"
    done = subprocess.run(
        ["/usr/bin/python3", "-I", helper, "boot", "--root", root], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert '"number": 1' in done.stdout
    slot = subprocess.run(
        ["/usr/bin/python3", "-I", tmp_path / "usr/lib/rocketbox/slot.py", "status", "--base", root],
        capture_output=True,
        text=True,
        check=False,
    )
    assert '"active": "a"' in slot.stdout
