"""How worn the disk under a folder is, as the disk itself says; many disks say nothing, and nobody guesses for them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

ASK_S = 20.0
TENTH, OLDEST = 10, 0x0B  # an eMMC counts its life in tenths; the last value means more than all of it


def whole_disk(folder: Path, sys: Path) -> Path:
    """Return the kernel's folder of the disk that a folder is on. Raises OSError if there is none."""
    number = os.stat(folder).st_dev
    node = (sys / f"dev/block/{os.major(number)}:{os.minor(number)}").resolve(strict=True)
    return node if (node / "queue").exists() else node.parent


def wear(folder: Path, sys: Path = Path("/sys")) -> dict[str, Any] | None:
    """Return used_percent of the writes the disk is rated for, media_errors, hours; None where nothing can be known.

    An eMMC says it to everybody, other disks to root through smartctl. Blocks. Raises OSError, ValueError.
    """
    disk = whole_disk(folder, sys)
    life = disk / "device/life_time"  # JESD84-B51: DEVICE_LIFE_TIME_EST_TYP_A and _B
    if life.exists():
        tenths = [int(word, 16) for word in life.read_text().split()]
        used = [100 if tenth >= OLDEST else tenth * TENTH for tenth in tenths if tenth]
        return {"used_percent": max(used), "media_errors": 0, "hours": None} if used else None
    if shutil.which("smartctl") is None:
        return None
    words = ["smartctl", "-j", "-a", f"/dev/{disk.name}"]
    said = subprocess.run(words, capture_output=True, timeout=ASK_S, check=False).stdout
    return _from_smart(json.loads(said or b"{}"))


def _from_smart(said: dict[str, Any]) -> dict[str, Any]:
    """Read the JSON of smartctl: what NVMe calls percentage_used, from version 7.4 on endurance_used of every kind."""
    log = said.get("nvme_smart_health_information_log", {})
    used = log.get("percentage_used", said.get("endurance_used", {}).get("current_percent"))
    hours = said.get("power_on_time", {}).get("hours")
    return {"used_percent": used, "media_errors": log.get("media_errors", 0), "hours": hours}
