"""Boots, restarts and updates are counted over all of the box's life; wear is told as far as the disk tells it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from appliance.health.disk_wear import wear
from appliance.metrics.machine import MachineNotes
from provisioning.slots import Slots, SlotState, committed, rolled_back
from watchdog.boots import note_boot
from watchdog.helper import SystemPaths, record

DATA = "var/lib/rocketbox"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in {"proc/uptime": "5.0 1.0", "proc/sys/kernel/random/boot_id": "boot-0"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def disk_under(root: Path, folder: Path) -> Path:
    """Make the kernel's folder for the disk that a folder lies on."""
    number = os.stat(folder).st_dev
    disk = root / "sys/devices/mmcblk0"
    (disk / "queue").mkdir(parents=True)
    (disk / "device").mkdir()
    link = root / f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
    link.parent.mkdir(parents=True)
    link.symlink_to(disk)
    return disk


async def test_what_is_dropped_from_the_notes_stays_counted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watchdog.boots.KEPT_BOOTS", 4)
    monkeypatch.setattr("watchdog.notes.KEPT_LINES", 5)
    for number in range(9):
        (root / "proc/sys/kernel/random/boot_id").write_text(f"boot-{number}")
        note_boot(root, now_s=0, trusted=True)
    for number in range(11):
        record(SystemPaths(root, print), {"SERVICE_RESULT": "watchdog" if number % 2 else "success"})
    seen = await MachineNotes(root / DATA, root=root).read()
    assert sum(seen.boots.values()) == 9
    assert seen.restarts == {"success": 6, "watchdog": 5}
    assert (seen.updates, seen.wear) == ({}, None)  # no slots here, and a disk that says nothing


@pytest.mark.parametrize("tally", ["", ', "tally": {"oom-kill": "x"}', ', "tally": [3]'])
async def test_notes_without_counts_or_with_damaged_ones_are_counted_from_then_on(root: Path, tally: str) -> None:
    notes = root / DATA / "watchdog"
    notes.mkdir(parents=True)
    (notes / "exits.jsonl").write_text(f'{{"result": "oom-kill"{tally}}}\n' * 3)
    assert (await MachineNotes(root / DATA, root=root).read()).restarts == {}
    record(SystemPaths(root, print), {"SERVICE_RESULT": "signal"})
    assert (await MachineNotes(root / DATA, root=root).read()).restarts == {"oom-kill": 3, "signal": 1}


async def test_updates_are_those_that_were_kept_and_those_given_up(root: Path) -> None:
    state = committed(SlotState(versions={"a": "1.0", "b": "1.1"}, committed=("1.0",), trial="b"))
    Slots(root / "opt").save(rolled_back(SlotState(versions={"b": "1.2"}, committed=state.committed, trial="b"), "x"))
    images = root / "var/lib/rocketbox-images/state.json"
    images.parent.mkdir(parents=True)
    images.write_text(json.dumps({"committed": ["2.0"], "bad": ["2.1", "2.2"]}))
    seen = await MachineNotes(root / DATA, root=root).read()
    assert seen.updates == {"committed": 3, "rolled_back": 3}


@pytest.mark.parametrize(
    ("life", "ratio"), [("0x01 0x03\n", 0.3), ("0x0b 0x01\n", 1.0), ("0x00 0x00\n", None), ("?", None)]
)
async def test_an_emmc_tells_its_wear_to_everybody(root: Path, life: str, ratio: float | None) -> None:
    data = root / "data"
    data.mkdir()
    (disk_under(root, data) / "device/life_time").write_text(life)
    assert (await MachineNotes(data, root=root).read()).wear == ratio


@pytest.mark.parametrize(
    ("said", "used"),
    [
        ('{"nvme_smart_health_information_log": {"percentage_used": 7, "media_errors": 0}}', 7),
        ('{"endurance_used": {"current_percent": 12}, "power_on_time": {"hours": 4000}}', 12),
        ('{"smartctl": {"messages": [{"string": "Permission denied"}]}}', None),
    ],
)
def test_smartctl_is_asked_about_the_whole_disk(
    root: Path, monkeypatch: pytest.MonkeyPatch, said: str, used: int | None
) -> None:
    disk_under(root, root)
    tool = root / "bin/smartctl"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n[ \"$3\" = /dev/mmcblk0 ] && echo '{said}'\nexit 4\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    seen = wear(root, root / "sys")
    assert seen is not None
    assert seen["used_percent"] == used


async def test_the_notes_are_read_seldom_and_the_disk_asked_once_an_hour(root: Path) -> None:
    data, now = root / "data", [0.0]
    data.mkdir()
    life = disk_under(root, data) / "device/life_time"
    life.write_text("0x01 0x01")
    notes = MachineNotes(data, root=root, clock=lambda: now[0])
    first = await notes.read()
    life.write_text("0x02 0x01")
    now[0] = 14.0
    assert await notes.read() is first
    now[0] = 16.0
    assert (await notes.read()).wear == 0.1
    now[0] = 3700.0
    assert (await notes.read()).wear == 0.2
