"""This boot's line in `watchdog/boots.jsonl`, with the reason read from what the previous boot left.

Standard library only: run by root before the product, so that a broken slot cannot hide its own boots.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from watchdog.notes import PANICS, make_folder, read_json, read_lines, tallied, write_lines
from watchdog.reset_reason import BootFacts, reset_reason

KEPT_BOOTS = 64
BOOT_ID = "run/rocketbox-boot-id"


def note_boot(root: Path, *, now_s: float, trusted: bool, folder: Path | None = None) -> dict[str, Any]:
    """Append this boot to boots.jsonl unless it is there, return its line. `root` is / except in tests."""
    folder = folder or root / "var/lib/rocketbox/watchdog"
    make_folder(folder)
    boots = read_lines(folder / "boots.jsonl")
    here = boot_id(root)
    if boots and boots[-1].get("boot") == here:
        return boots[-1]
    facts = _gather(root, folder, str(boots[-1].get("boot", "")) if boots else None)
    if boots and facts.heartbeat and facts.heartbeat.get("boot") == facts.previous_boot:
        boots[-1]["uptime_s"] = facts.heartbeat.get("uptime_s", 0)
    slot, version = _running(root)
    reason = reset_reason(facts) if boots else "power"
    line = {
        "number": boots[-1].get("number", 0) + 1 if boots else 1,
        "boot": here,
        "reason": reason,
        "slot": slot,
        "version": version,
        "wall_s": int(now_s),
        "clock_trusted": trusted,
        "began_s": _uptime_s(root),
        "uptime_s": _uptime_s(root),
        "healthy_s": None,
        "settled": False,
        "planned_by": (facts.planned or {}).get("who"),
        "tally": tallied(boots, "reason", reason),
    }
    write_lines(folder / "boots.jsonl", [*boots, line][-KEPT_BOOTS:])
    forget_plan(folder)
    return line


def forget_plan(folder: Path) -> None:
    """Take the mark of a planned stop away."""
    with suppress(PermissionError):  # protected against writing: no reason not to start
        (folder / "planned").unlink(missing_ok=True)


def boot_id(root: Path) -> str:
    """Return this boot's id: what the boot helper noted, since a sandbox in a container shows another one."""
    for name in (BOOT_ID, "proc/sys/kernel/random/boot_id"):
        try:
            return (root / name).read_text().strip()
        except OSError:
            continue
    return "unknown"


def keep_boot_id(root: Path) -> None:
    """Note the id for everybody, as root before the product starts."""
    (root / BOOT_ID).parent.mkdir(parents=True, exist_ok=True)
    (root / BOOT_ID).write_text((root / "proc/sys/kernel/random/boot_id").read_text())


def _uptime_s(root: Path) -> float:
    return float((root / "proc/uptime").read_text().split()[0])


def _gather(root: Path, folder: Path, previous: str | None) -> BootFacts:
    try:
        status = int((root / "sys/class/watchdog/watchdog0/bootstatus").read_text(), 0)
    except (OSError, ValueError):
        status = 0
    return BootFacts(
        previous_boot=previous,
        planned=read_json(folder / "planned"),
        bootstatus=status,
        panic_files=_take_panics(root, folder),
        heartbeat=read_json(folder / "heartbeat"),
    )


def _take_panics(root: Path, folder: Path) -> int:
    """Move what the crashed kernel left away, so that it is counted once; systemd-pstore may have moved it already."""
    taken = 0
    for place in (root / "sys/fs/pstore", root / "var/lib/systemd/pstore"):
        for path in sorted(place.rglob("*")) if place.is_dir() else []:
            if not path.is_file():
                continue
            (folder / PANICS).mkdir(exist_ok=True)
            try:
                (folder / PANICS / path.name).write_bytes(path.read_bytes())
                path.unlink()
            except OSError:
                continue
            taken += 1
    return taken


def _running(root: Path) -> tuple[str, str]:
    state = read_json(root / "opt/slots/state.json") or {}
    try:
        slot = Path(os.readlink(root / "opt/appliance")).name
    except OSError:
        slot = str(state.get("active", "-"))
    return slot, str(state.get("versions", {}).get(slot, "-"))


def _clock_trusted(root: Path) -> bool:
    return (root / "run/systemd/timesync/synchronized").exists()
