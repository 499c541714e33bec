import os
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.health.health_file import read_health


def test_a_missing_a_stale_and_a_broken_file_say_so(tmp_path: Path) -> None:
    path = tmp_path / "health.json"
    assert read_health(path)["reasons"][0]["code"] == "D200"
    path.write_text('{"state": "ok"}')
    assert read_health(path)["state"] == "ok"
    os.utime(path, (1, 1))
    assert read_health(path)["state"] == "failing"
    path.write_text('{"state": "safe"}')
    os.utime(path, (1, 1))
    assert read_health(path)["state"] == "safe"
    path.write_text("[]")
    assert read_health(path)["state"] == "failing"


def test_safe_mode_counts_from_its_entry(tmp_path: Path) -> None:
    path = tmp_path / "health.json"
    path.write_text('{"state": "safe", "since_s": 0, "entered_uptime_s": 90000.5}')
    assert read_health(path, uptime_s=lambda: 90060.7)["since_s"] == 60


@pytest.mark.slow
def test_who_only_looks_at_the_state_does_not_load_what_serves() -> None:
    seen = "import appliance.commands.box.status, sys; print('trio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "False"
