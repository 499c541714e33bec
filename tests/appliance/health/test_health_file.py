import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from appliance.health.health_file import describe, read_health


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


def test_a_killed_box_whose_parent_has_not_asked_for_its_end_has_stopped(tmp_path: Path) -> None:
    path = tmp_path / "health.json"
    with subprocess.Popen(["sleep", "60"]) as box:
        path.write_text(json.dumps({"state": "ok", "pid": box.pid}))
        assert read_health(path)["state"] == "ok"
        box.kill()
        os.waitid(os.P_PID, box.pid, os.WEXITED | os.WNOWAIT)  # it has ended and stays a zombie
        found = read_health(path)
    assert found["state"] == "failing"
    assert found["reasons"][-1]["text"] == "the box has stopped"


def test_safe_mode_counts_from_its_entry(tmp_path: Path) -> None:
    path = tmp_path / "health.json"
    path.write_text('{"state": "safe", "since_s": 0, "entered_uptime_s": 90000.5}')
    assert read_health(path, uptime_s=lambda: 90060.7)["since_s"] == 60


@pytest.mark.parametrize(
    ("leader", "line"),
    [
        ("a", "a leads, term 3; {}, 3 there; b has everything; c is 2 KiB and 1.5 s behind"),
        ("c", "a follows c, term 3; {}; this copy is 2 KiB and 1.5 s behind; b is connected; c is connected"),
        ("", "a has no leader, term 3; {}; b is connected; c is connected"),
    ],
)
def test_a_follower_tells_of_its_own_copy_and_claims_nothing_of_others(leader: str, line: str) -> None:
    box = {"witness": False, "connected": True, "behind_bytes": 0, "behind_s": 0.0, "refuses": ""}
    behind = {"behind_bytes": 2048, "behind_s": 1.5}
    late = "c" if leader == "a" else "a"
    group: dict[str, Any] = {
        "role": "member", "member": "a", "serves": leader == "a", "term": 3, "leader": leader, "diverged": None,
        "copies": 2, "copies_there": 3 if leader == "a" else None,
        "members": [{**box, "member": name, **(behind if name == late else {})} for name in "abc"],
    }  # fmt: skip
    said = f"Group     {line}".format("copies: 2 wanted")
    assert said in describe({"state": "ok", "replication": group}).splitlines()
    if leader == "a":
        alone = {**group, "copies_there": 1, "members": [{**each, "connected": False} for each in group["members"]]}
        said = "Group     a leads, and takes no messages until b or c is back, term 3; copies: 2 wanted, 1 there;"
        assert said in describe({"state": "degraded", "replication": alone})
    earlier = {key: value for key, value in group.items() if not key.startswith("copies")}
    assert "copies" not in describe({"state": "ok", "replication": earlier})


@pytest.mark.slow
def test_who_only_looks_at_the_state_does_not_load_what_serves() -> None:
    seen = "import appliance.commands.box.status, sys; print('trio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "False"
