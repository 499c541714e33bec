"""A box's file tree in a folder, for tests that reboot it."""

from __future__ import annotations

import json
from pathlib import Path


def box_root(root: Path, *, boot: str = "boot-1", uptime_s: float = 100.0) -> Path:
    """Make /proc, slots, configuration and state folders of a box under `root`, return it."""
    for name in ("etc/rocketbox", "run/rocketbox", "var/lib/rocketbox/watchdog", "opt/slots/a", "opt/slots/b"):
        (root / name).mkdir(parents=True)
    state = {"active": "a", "trial": None, "versions": {"a": "1.4.0", "b": "1.3.2"}, "committed": ["1.4.0", "1.3.2"]}
    (root / "opt/slots/state.json").write_text(json.dumps(state))
    (root / "opt/appliance").symlink_to("slots/a")
    (root / "etc/rocketbox/rocketbox.toml").write_text('[box]\nname = "x"\n')
    reboot(root, boot, uptime_s=uptime_s)
    return root


def reboot(root: Path, boot: str, *, uptime_s: float = 100.0) -> None:
    """Give the tree another boot id and uptime, and an empty /run."""
    random = root / "proc/sys/kernel/random"
    random.mkdir(parents=True, exist_ok=True)
    (random / "boot_id").write_text(boot + "\n")
    (root / "proc/uptime").write_text(f"{uptime_s} 0.0\n")
    for path in (root / "run").glob("rocketbox-*"):
        path.unlink()
