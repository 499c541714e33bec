"""What root does for the product: notes boots and ends, carries out what `escalate.decide` chose.

Run by the system's Python (`/usr/lib/rocketbox/escalate.py VERB`), so that it works when the slot does not: standard
library and this package's own such modules only.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from watchdog.boots import boot_id, keep_boot_id, note_boot
from watchdog.escalate import (
    PORT_TAKEN,
    Action,
    Boot,
    BootHistory,
    EscalationStep,
    Exit,
    SlotVersions,
    decide,
    decide_at_boot,
)
from watchdog.notes import append_line, read_json, read_lines, replace, sync, tallied


class SystemPaths(NamedTuple):
    """Where things are under `root`, which is / except in tests; `run` and `ask` execute a command."""

    root: Path
    run: Callable[[Sequence[str]], object]
    ask: Callable[[Sequence[str]], str] = lambda command: ""  # the same, and returns what it printed

    @property
    def folder(self) -> Path:
        return self.root / "var/lib/rocketbox/watchdog"

    @property
    def config(self) -> Path:
        return self.root / "etc/rocketbox/rocketbox.toml"

    @property
    def marker(self) -> Path:
        return self.root / "run/rocketbox-safe"

    @property
    def image_trial(self) -> bool:
        """Tell whether the image that runs is on trial: the boot loader counts, `image.py` knows."""
        return (self.root / "run/rocketbox-image-trial").exists()

    @property
    def boot_id(self) -> str:
        return boot_id(self.root)

    @property
    def uptime_s(self) -> float:
        return float((self.root / "proc/uptime").read_text().split()[0])


def load_exits(box: SystemPaths) -> list[Exit]:
    """Return the product's unwanted ends in this boot."""
    here = box.boot_id
    found = [
        Exit(
            float(row.get("uptime_s", 0)), str(row.get("result")), str(row.get("code", "")), str(row.get("status", ""))
        )
        for row in read_lines(box.folder / "exits.jsonl")
        if row.get("boot") == here
    ]
    return [one for one in found if one.result != "success"]


def _lasted_s(row: Mapping[str, Any], until_s: float | None) -> float:
    end_s = float(row.get("uptime_s") or 0) if until_s is None else until_s
    return max(0.0, end_s - float(row.get("began_s") or 0))


def load_history(box: SystemPaths) -> BootHistory:
    """Read boots and earlier steps; a step's age is running time, since the wall clock of a box proves nothing."""
    here, uptime_s = box.boot_id, box.uptime_s
    rows = read_lines(box.folder / "boots.jsonl")
    boots = [
        Boot(
            str(row.get("boot", "")),
            str(row.get("reason", "power")),
            str(row.get("version", "")),
            _lasted_s(row, uptime_s if row.get("boot") == here else None),
            bool(row.get("settled")),
        )
        for row in rows
    ]
    if not boots or boots[-1].boot != here:
        boots.append(Boot(here, "power", "", uptime_s))
    began = {row.get("boot"): float(row.get("began_s") or 0) for row in rows}
    steps = []
    for row in read_lines(box.folder / "escalations.jsonl"):
        at = next((index for index, one in enumerate(boots) if one.boot == row.get("boot")), None)
        if at is None:
            continue
        then_s = float(row.get("uptime_s", 0)) - began.get(row.get("boot"), 0.0)
        ago_s = max(boots[at].uptime_s - then_s, 0.0) + sum(one.uptime_s for one in boots[at + 1 :])
        steps.append(EscalationStep(str(row.get("kind", "")), str(row.get("cause", "")), boots[at].boot, ago_s))
    good = _bytes(box.config.with_name(box.config.name + ".good"))
    differs = good is not None and good != _bytes(box.config)
    readable = any((box.root / "var/lib/rocketbox/store/commitlog").glob("[0-9]*"))
    return BootHistory(boots, steps, uptime_s, differs, readable)


def _bytes(path: Path) -> bytes | None:
    """Return what a file holds, None where it cannot be read: when this program fails, systemd reboots, each time."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def load_slots(box: SystemPaths) -> SlotVersions:
    """Read the slots' state; without slots there is nothing to fall back to."""
    state = read_json(box.root / "opt/slots/state.json") or {}
    return SlotVersions(
        str(state.get("active", "a")),
        state.get("trial") or ("image" if box.image_trial else None),
        {str(slot): str(version) for slot, version in state.get("versions", {}).items()},
        frozenset(map(str, state.get("committed", ()))),
        frozenset(map(str, state.get("bad", ()))),
    )


def record(box: SystemPaths, environ: Mapping[str, str]) -> None:
    """Append how the product ended: `ExecStopPost=`, under the product's user."""
    result = environ.get("SERVICE_RESULT", "")
    append_line(
        box.folder / "exits.jsonl",
        {
            "boot": box.boot_id,
            "uptime_s": round(box.uptime_s, 3),
            "wall_s": int(time.time()),
            "tally": tallied(read_lines(box.folder / "exits.jsonl"), "result", result),
            "result": result,
            "code": environ.get("EXIT_CODE", ""),
            "status": environ.get("EXIT_STATUS", ""),
        },
    )


def carry_out(box: SystemPaths, action: Action) -> None:
    """Write the step down, then take it; one that cannot be written down must not reboot, or it would do so forever.

    Nor must one that fails: when this program fails, systemd reboots.
    """
    row = {"boot": box.boot_id, "uptime_s": round(box.uptime_s, 3), "wall_s": int(time.time())}
    try:
        append_line(
            box.folder / "escalations.jsonl", row | {"kind": action.kind, "cause": action.cause, "text": action.text}
        )
    except OSError as exc:
        if action.kind in ("reboot", "switch_slot"):
            action = Action("safe", action.cause, f"{action.text}, but the record cannot be written: {exc}")
    print(f"<4>escalate action={action.kind} cause={action.cause} text={action.text!r}", file=sys.stderr, flush=True)
    try:
        HANDS[action.kind](box, action)
    except OSError as exc:
        if action.kind == "safe":
            raise
        carry_out(box, Action("safe", action.cause, f"{action.text}, but that failed: {exc}"))


def _start(box: SystemPaths, action: Action) -> None:
    box.run(["systemctl", "reset-failed", *UNITS])
    box.run(["systemctl", "--no-block", "start", *UNITS])


def _restore_config(box: SystemPaths, action: Action) -> None:
    if _bytes(box.config) is not None:
        _copy(box.config, box.config.with_name(box.config.name + ".rejected"))
    _copy(box.config.with_name(box.config.name + ".good"), box.config)
    _start(box, action)


def _copy(source: Path, target: Path) -> None:
    """Replace a file by a copy of another, durably: whenever the power fails the one or the other is there, whole."""
    fresh = target.with_name(target.name + ".new")
    shutil.copy2(source, fresh)
    if os.geteuid() == 0:  # the product's group may be the one that reads it
        owner = source.stat()
        os.chown(fresh, owner.st_uid, owner.st_gid)
    sync(fresh)
    os.replace(fresh, target)
    sync(target.parent)


def _reboot(box: SystemPaths, action: Action) -> None:
    mark_planned(box, reason=action.text, who="escalate")
    box.run(["systemctl", "--no-block", "reboot"])


def _switch_slot(box: SystemPaths, action: Action) -> None:
    if box.image_trial:
        box.run(["/usr/bin/python3", "-I", "/usr/lib/rocketbox/image.py", "give-up", action.text])
        _reboot(box, action)
        return
    path = box.root / "opt/slots/state.json"
    state = read_json(path) or {}
    gone = state.get("versions", {}).get(state.get("trial") or state.get("active"))
    state |= {"active": action.slot, "trial": None, "bad": [*state.get("bad", []), *([gone] if gone else [])]}
    state["rolled_back"] = {"version": gone, "reason": action.text, "wall_s": int(time.time())}
    replace(path, json.dumps(state))
    _reboot(box, action)


def _read_only(box: SystemPaths, action: Action) -> None:
    (box.root / "run/rocketbox").mkdir(parents=True, exist_ok=True)
    (box.root / "run/rocketbox-read-only").write_text(action.text + "\n")
    _start(box, action)


def enter_safe(box: SystemPaths, action: Action) -> None:
    """Close the ports, leave the serial line and a status; one more try after six hours."""
    box.marker.parent.mkdir(parents=True, exist_ok=True)
    box.marker.write_text(action.text + "\n")
    first = {  # a certificate or keys that cannot be used end with the same code, and only the journal names them
        "config": "correct what `rocketbox config check` or the end of `journalctl -u rocketbox` names",
        "port": "stop what `rocketbox doctor` names",
    }
    step = f"{first.get(action.cause, 'run `rocketbox doctor`')}, then `rocketbox safe leave`"
    _write_health(box, "safe", {"code": "D204", "text": action.text, "next": step})
    box.run(["systemctl", "--no-block", "stop", *UNITS])
    box.run(["systemctl", "reset-failed", *UNITS])
    box.run(["systemctl", "--no-block", "start", "rocketbox-safe.target", "rocketbox-safe-retry.timer"])


def _write_health(box: SystemPaths, state: str, *reasons: dict[str, str]) -> None:
    """Write what `status` shows until the product writes it."""
    boots = read_lines(box.folder / "boots.jsonl")
    path = box.root / "run/rocketbox/health.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    last = boots[-1] if boots else {}
    health = {
        "state": state,
        "since_s": 0,
        "entered_uptime_s": box.uptime_s,  # whoever reads this counts from here
        "version": last.get("version", "-"),
        "slot": last.get("slot", "-"),
        "boot": last.get("number", 0),
        "reset_reason": last.get("reason", "power"),
        "reasons": reasons,
    }
    replace(path, json.dumps(health))


def leave_safe(box: SystemPaths) -> bool:
    """Remove the marker and start the product; False when the box is not in safe mode."""
    if not box.marker.exists():
        return False
    box.marker.unlink()
    _write_health(box, "starting")
    box.run(["systemctl", "--no-block", "stop", "rocketbox-safe-retry.timer", "rocketbox-safe.target"])
    _start(box, Action("restart", "safe", "left safe mode"))
    return True


def mark_planned(box: SystemPaths, *, reason: str, who: str) -> None:
    """Note durably that the coming stop is wanted, and by whom."""
    box.folder.mkdir(parents=True, exist_ok=True)
    replace(box.folder / "planned", json.dumps({"boot": box.boot_id, "reason": reason, "who": who}))


def keep_config(box: SystemPaths) -> bool:
    """Copy the configuration to `.good` when the run that used exactly these bytes had ten healthy minutes."""
    settled = read_json(box.folder / "settled.json") or {}
    found = _bytes(box.config)
    if found is None or settled.get("config_crc32") != crc32(found):
        return False
    _copy(box.config, box.config.with_name(box.config.name + ".good"))
    return True


SOCKETS = ("rocketbox-broker.socket", "rocketbox-namesrv.socket")
UNITS = (*SOCKETS, "rocketbox.service")
HANDS: dict[str, Callable[[SystemPaths, Action], None]] = {
    "restart": _start,
    "restore_config": _restore_config,
    "reboot": _reboot,
    "switch_slot": _switch_slot,
    "read_only": _read_only,
    "safe": enter_safe,
}


def _run(command: Sequence[str]) -> object:
    return subprocess.run(command, check=False)


def _ask(command: Sequence[str]) -> str:
    try:
        return subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True).stdout
    except OSError:  # no such program: nothing is known
        return ""


FRESH_S = 60.0  # TimeoutStartSec= of rocketbox-escalate.service: what this run is about ended no longer ago


def _taken_port(box: SystemPaths) -> str:
    """Return the port that systemd could not open, "" when it has both."""
    for unit in SOCKETS:
        said = box.ask(["systemctl", "show", "--property=Listen,Result", unit])
        if "Result=resources" in said.splitlines():
            return said.partition("Listen=")[2].partition(" ")[0].rpartition(":")[2] or unit
    return ""


def _monitored(environ: Mapping[str, str], noted: Sequence[Exit], history: BootHistory) -> list[Exit]:
    """Return the end systemd reports when it never reached the list: no start at all, or no time to note it.

    "success" after an end that no step has answered yet is the next start's: a client's connection began it before
    this ran.
    """
    result = environ.get("MONITOR_SERVICE_RESULT")
    if result is None or environ.get("MONITOR_EXIT_CODE"):
        return []
    age_s = history.uptime_s - noted[-1].uptime_s if noted else FRESH_S
    here = history.boots[-1].boot
    if result == "success" and age_s < min([FRESH_S, *(step.ago_s for step in history.steps if step.boot == here)]):
        return []
    return [
        Exit(history.uptime_s, "dependency" if result in ("success", "resources") else result)
    ]  # "success": no mount


def main(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Verbs: record, run, boot, trial-failed, safe, leave, keep-config, planned REASON WHO.

    `--root DIR` is for tests, `--dry-run` prints the commands.
    """
    words = [one for one in arguments if not one.startswith("--")]
    root = Path(arguments[arguments.index("--root") + 1]) if "--root" in arguments else Path("/")
    words = [one for one in words if one != str(root)]
    box = SystemPaths(root, print if "--dry-run" in arguments else _run, _ask)
    verb = words[0] if words else ""
    if verb == "record":
        record(box, environ)
    elif verb == "run":
        history = load_history(box)
        exits = load_exits(box)
        port = _taken_port(box)
        exits += [Exit(history.uptime_s, PORT_TAKEN, "", port)] if port else _monitored(environ, exits, history)
        carry_out(box, decide(history, load_slots(box), exits))
    elif verb == "boot":
        keep_boot_id(root)
        trusted = (root / "run/systemd/timesync/synchronized").exists()
        print(json.dumps(note_boot(root, now_s=time.time(), trusted=trusted)))
        action = decide_at_boot(load_history(box))
        if action:
            carry_out(box, action)
    elif verb == "trial-failed":
        if load_slots(box).trial:  # the tries decide; a committed version keeps serving, its health says what failed
            carry_out(box, Action("reboot", "selftest", "the version on trial failed its self-test"))
    elif verb == "safe":
        carry_out(box, Action("safe", "asked", words[1] if len(words) > 1 else "asked for"))
    elif verb in ("leave", "keep-config"):
        return 0 if {"leave": leave_safe, "keep-config": keep_config}[verb](box) else 1
    elif verb == "planned" and len(words) == 3:
        mark_planned(box, reason=words[1], who=words[2])
    else:
        print(f"usage: escalate.py {main.__doc__}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
