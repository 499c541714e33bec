import json
from pathlib import Path

import pytest

from watchdog.boots import note_boot
from watchdog.notes import read_lines
from watchdog.testing import box_root, reboot

FOLDER = "var/lib/rocketbox/watchdog"


def noted(root: Path) -> dict[str, object]:
    return note_boot(root, now_s=1_700_000_000, trusted=False)


def test_the_first_boot_is_number_one_and_noted_once(tmp_path: Path) -> None:
    root = box_root(tmp_path)
    line = noted(root)
    assert noted(root) == line
    assert (line["number"], line["reason"], line["slot"], line["version"]) == (1, "power", "a", "1.4.0")
    assert len(read_lines(root / FOLDER / "boots.jsonl")) == 1


@pytest.mark.parametrize(
    ("left_behind", "reason"),
    [
        ({}, "power"),
        ({FOLDER + "/planned": '{"boot":"boot-1","who":"admin"}'}, "planned"),
        ({FOLDER + "/planned": '{"boot":"boot-1","who":"escalate"}'}, "escalated"),
        ({"sys/class/watchdog/watchdog0/bootstatus": "32\n"}, "watchdog"),
        ({"sys/fs/pstore/dmesg-erst-1": "Oops"}, "panic"),
        ({"var/lib/systemd/pstore/123/dmesg.txt": "Oops"}, "panic"),
        ({FOLDER + "/heartbeat": '{"boot":"boot-1","uptime_s":777,"state":"failing"}'}, "hang"),
    ],
)
def test_the_reason_is_read_from_what_the_last_boot_left(
    tmp_path: Path, left_behind: dict[str, str], reason: str
) -> None:
    root = box_root(tmp_path)
    noted(root)
    for name, text in left_behind.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    reboot(root, "boot-2")
    line = noted(root)
    assert (line["number"], line["reason"]) == (2, reason)
    assert not (root / FOLDER / "planned").exists()


def test_a_panic_is_kept_and_counted_once(tmp_path: Path) -> None:
    root = box_root(tmp_path)
    noted(root)
    (root / "sys/fs/pstore").mkdir(parents=True)
    (root / "sys/fs/pstore/dmesg-1").write_text("BUG: here")
    reboot(root, "boot-2")
    noted(root)
    reboot(root, "boot-3")
    assert noted(root)["reason"] == "power"
    assert (root / FOLDER / "panics/dmesg-1").read_text() == "BUG: here"


def test_the_heartbeat_tells_how_long_the_last_boot_ran(tmp_path: Path) -> None:
    root = box_root(tmp_path)
    noted(root)
    (root / FOLDER / "heartbeat").write_text(json.dumps({"boot": "boot-1", "uptime_s": 4242, "state": "ok"}))
    reboot(root, "boot-2")
    noted(root)
    assert read_lines(root / FOLDER / "boots.jsonl")[0]["uptime_s"] == 4242


def test_64_boots_are_kept(tmp_path: Path) -> None:
    root = box_root(tmp_path)
    for number in range(70):
        reboot(root, f"boot-{number}")
        noted(root)
    rows = read_lines(root / FOLDER / "boots.jsonl")
    assert (len(rows), rows[-1]["number"]) == (64, 70)
