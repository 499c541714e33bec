"""The health file as others read it: `status`, the serial line, the self-test, support. Loads nothing that serves."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from appliance.health.condition_rules import size
from watchdog.proof import Reason

DOWN = "D200"  # no process of the product, or none that shows life
WRITE_S = 10.0  # how often a box that serves writes it
REPORTS = " (a stock slave reports its memory, not its disk)"


def uptime_s() -> float:
    """Return the seconds since the machine started, as /proc/uptime counts them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def read_health(
    path: Path, *, now_s: Callable[[], float] = time.time, uptime_s: Callable[[], float] = uptime_s
) -> dict[str, Any]:
    """Return the health object a box last wrote; a stale or missing one says so. Raises nothing."""
    try:
        found = json.loads(path.read_text())
        age_s = now_s() - path.stat().st_mtime
    except PermissionError as exc:
        return _unknown(f"no state: {path}: {exc.strerror}", "run this as root or as the user the box runs as")
    except (OSError, ValueError):
        step = (
            f"`systemctl status rocketbox`, or name the folder of a box started by hand: --data DIR; looked at {path}"
        )
        return _unknown("no health file: the box is not running", step)
    if not isinstance(found, dict):
        return _unknown("the health file cannot be read", f"remove {path}; the box writes a new one")
    entered_s = found.get("entered_uptime_s")
    if isinstance(entered_s, int | float):
        found["since_s"] = max(0, int(uptime_s() - entered_s))
    ended = _is_gone(found.get("pid"))
    if found.get("state") != "safe" and (ended or age_s > 3 * WRITE_S):
        text = "the box has stopped" if ended else f"the health file is {age_s:.0f} s old"
        old = _unknown(text, "`systemctl status rocketbox`, or start it again where it was started by hand")
        found.pop("since_s", None)  # it counted for the state that was
        return {**found, "state": "failing", "reasons": [*found.get("reasons", []), *old["reasons"]]}
    return found


def _is_gone(pid: object) -> bool:
    """Return whether the process that wrote the file is known to have ended: `status` tells it at once.

    A process that was killed keeps its number until its parent has asked for its end. Source: proc_pid_stat(5).
    """
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] in "ZX"
    except ProcessLookupError:
        return True
    except (OSError, OverflowError, IndexError):
        return False


def _unknown(text: str, step: str) -> dict[str, Any]:
    return {"state": "failing", "reasons": [Reason(DOWN, text, step).to_json()]}


def _boot(health: Mapping[str, Any]) -> str:
    if health.get("boot") == 1:
        return "1, the first that is on record"  # nothing is left of one before, so its cause is not known
    return f"{health.get('boot')}, because of {health.get('reset_reason')}"


def describe(health: Mapping[str, Any]) -> str:
    """Return the health object as a person reads it."""
    lines = [f"State     {health.get('state')}" + (f" for {health['since_s']} s" if "since_s" in health else "")]
    if "version" in health:
        tried = "" if health.get("committed", True) else ", on trial"
        slot = "" if health.get("slot", "-") == "-" else f" in slot {health['slot']}"  # apt and pip have none
        lines.append(f"Version   {health['version']}{slot}{tried}, {_build(health)}".removesuffix(", "))
        lines.append(f"Boot      {_boot(health)}")
    if health.get("ports"):
        lines.append("Ports     " + ", ".join(f"{name} {port}" for name, port in health["ports"].items()))
    if "disk" in health:
        full = health["disk"].get("full_in_h")
        lines.append(f"Disk      {health['disk']['used']:.0%} used" + (f", full in {full} h" if full else ""))
    if "scrub" in health:
        lines.append(f"Scrub     {_scrub(health['scrub']['passes'], health['scrub']['left_s'])}")
    if "replication" in health:
        lines.append(_replication(health["replication"]))
    if "uplink" in health:
        lines.append(f"Uplink    {_uplink(health['uplink'])}")
    if "clock_trusted" in health:
        lines.append(f"Clock     {'trusted' if health['clock_trusted'] else 'not trusted'}")
    for reason in health.get("reasons", []):
        lines.append(f"  ! {reason['code']}  {reason['text']}\n          next: {reason['next']}")
    lines += [f"  muted {each['id']}: {each['text']}" for each in health.get("muted", [])]
    return "\n".join(lines)


def _build(health: Mapping[str, Any]) -> str:
    """Return how the modules of the hot path run; nothing about a version that does not say it."""
    pure = health.get("pure")
    return "" if pure is None else f"pure Python: {pure}" if pure else "compiled"


def _scrub(passes: int, left_s: float) -> str:
    if passes and not left_s:
        return "has read and checked the whole log"
    when = f"{left_s / 3600:.1f} h" if left_s >= 3600 else f"{max(1, round(left_s / 60))} min"
    return f"will have read and checked the whole log in {when}"


def _replication(seen: Mapping[str, Any]) -> str:
    if seen["role"] == "member":
        slaves = f"\nSlaves    {_slaves(seen['slaves'])}" if "slaves" in seen else ""
        return f"Group     {_group(seen)}{slaves}"
    if seen["role"] == "master":
        return f"Slaves    {_slaves(seen['slaves'])}"
    behind = seen["behind_bytes"]
    distance = f"{size(behind)} behind" if behind else "has everything" if behind == 0 else "not asked yet"
    if seen["connected"]:
        return f"Master    connected to {seen['master']}, {distance}"
    why = seen["differs"] or seen["lost"]
    known = distance if behind else "had everything"
    asked = "" if behind is None else f", {known} when it was asked last"
    return f"Master    not connected to {seen['master']}" + (f" ({why})" if why else "") + asked


def takes_messages(seen: Mapping[str, Any]) -> bool:
    """Return whether a member leads, and as many copies are there as a message is to have."""
    return bool(seen["serves"]) and (seen.get("copies_there") is None or seen["copies_there"] >= seen["copies"])


def takes_nothing(own: str, members: Sequence[Mapping[str, Any]]) -> str:
    """Return until when a leader takes no messages: the group wants them on another disk, too, or it has just begun."""
    others = [each for each in members if each["member"] != own and not each["witness"]]
    gone = [each["member"] for each in others if not each["connected"]]
    if gone:
        return f"takes no messages until {' or '.join(gone)} is back"
    refusing = [each["member"] for each in others if each.get("refuses")]
    return f"takes no messages until {' or '.join(refusing)} takes them, too" if refusing else "takes no messages yet"


def _group(seen: Mapping[str, Any]) -> str:
    """Return who leads, and how far each member that is known is."""
    own = f"follows {seen['leader']}" if seen["leader"] else "has no leader"
    if seen["leader"] == seen["member"]:
        own = "leads" if takes_messages(seen) else f"leads, and {takes_nothing(seen['member'], seen['members'])}"
    parts = [f"{seen['member']} {own}, term {seen['term']}"]
    if copies := copies_told(seen):
        parts.append(f"copies: {copies}")
    knows = seen["leader"] == seen["member"]  # of other copies only the leader knows how far they are
    for each in seen["members"]:
        if each["member"] != seen["member"]:
            parts.append(f"{each['member']} {_progress(each, knows=knows)}")
        elif seen["leader"] and not knows:
            parts.append(f"this copy {_progress(each, knows=True)}")
    if seen["diverged"]:
        cut = seen["diverged"]
        parts.append(f"{size(cut['end'] - cut['start'])} were taken back at {cut['start']}")
    return "; ".join(parts)


def copies_told(seen: Mapping[str, Any]) -> str:
    """Return how many copies a message is to have, and how many there are; "" from a box of an earlier version."""
    if seen.get("copies") is None:
        return ""
    there = seen.get("copies_there")  # only the leader knows
    return f"{seen['copies']} wanted" if there is None else f"{seen['copies']} wanted, {there} there"


def _progress(each: Mapping[str, Any], *, knows: bool) -> str:
    if not each["connected"]:
        return "is not connected"
    if each["witness"]:
        return "is the witness"
    if not knows:
        return "is connected"
    behind = each["behind_bytes"]
    if behind is None:
        return "is connected, what it has is not known yet"
    why = f", {each['refuses']}" if each.get("refuses") else ""
    return f"is {size(behind)} and {each['behind_s']} s behind{why}" if behind else "has everything"


def _slaves(seen: Sequence[Mapping[str, Any]]) -> str:
    """Return how far each slave says it is; it says so before its disk has it."""
    parts = [f"{each['address']} {_reported(each)}" for each in seen]
    return ", ".join(parts) + REPORTS if parts else "none is connected"


def _reported(each: Mapping[str, Any]) -> str:
    if each["reported"] < 0:
        return "has not reported"
    distance = f"{size(each['behind_bytes'])} behind" if each["behind_bytes"] else "has everything"
    return f"reports {each['reported']}, {distance}"


def _uplink(seen: Mapping[str, Any]) -> str:
    if seen.get("paused"):
        link = "paused by hand"
    elif seen.get("connected"):
        link = f"connected to {seen['gateway']}"
    else:
        link = f"not connected to {seen['gateway']}" + (f" ({seen['last_error']})" if seen.get("last_error") else "")
    waiting, last = seen["unshipped_bytes"], seen.get("last_receipt_s")
    parts = [link, f"{size(waiting)} unshipped" if waiting else "nothing unshipped"]
    parts.append("no receipt since the start" if last is None else f"last receipt {last} s ago")
    gaps = seen.get("gaps", 0)
    parts += [f"{gaps} gap{'s' if gaps > 1 else ''} declared"] if gaps else []
    return ", ".join(parts)
