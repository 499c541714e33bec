"""Restart, reboot, other slot or safe mode: one pure function over the history of this box.

Standard library only: the system's Python runs it through `helper.py` when the slot's own does not work.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

CONFIG_EXIT, TIRED_EXIT = 78, 79
STORAGE_EXITS = frozenset({74, 75})  # the log's disk failed; its lock is held by a thread that cannot die
LIMIT_COUNT, LIMIT_S = 5, 300.0  # as StartLimitBurst= and StartLimitIntervalSec= in rocketbox.service
PORT_TAKEN = "port"  # the result of an end that never began: systemd could not open a port, `status` is its number
AGAIN_S = 1800.0
UNPLANNED_BOOTS = 3
EXPECTED = frozenset({"planned", "power"})


class Exit(NamedTuple):
    """One end of the product in this boot."""

    uptime_s: float
    result: str = ""  # $SERVICE_RESULT
    code: str = ""  # $EXIT_CODE: exited, killed, dumped; empty when it never started
    status: str = ""  # $EXIT_STATUS: a number or a signal's name


class Boot(NamedTuple):
    """One boot; `settled` once it had ten healthy minutes."""

    boot: str
    reason: str
    version: str = ""
    uptime_s: float = 0.0
    settled: bool = False


class EscalationStep(NamedTuple):
    """An earlier decision, `ago_s` seconds of running time before now."""

    kind: str
    cause: str
    boot: str
    ago_s: float


class BootHistory(NamedTuple):
    """Boots and steps, oldest first, the present boot last."""

    boots: Sequence[Boot] = ()
    steps: Sequence[EscalationStep] = ()
    uptime_s: float = 0.0
    good_config: bool = False  # rocketbox.toml.good exists and differs from rocketbox.toml
    log_readable: bool = True


class SlotVersions(NamedTuple):
    """The two versions a box holds; `committed` are those that once passed their self-test."""

    active: str = "a"
    trial: str | None = None
    versions: Mapping[str, str] = {}
    committed: frozenset[str] = frozenset()
    bad: frozenset[str] = frozenset()

    def fallback(self) -> str | None:
        """Return the other slot if it was once committed, is not bad and has another version than this one."""
        other = "b" if self.active == "a" else "a"
        version = self.versions.get(other)
        usable = version and version in self.committed and version not in self.bad
        return other if usable and version != self.versions.get(self.active) else None


class Action(NamedTuple):
    """What to do: restart, restore_config, reboot, switch_slot, read_only, safe."""

    kind: str
    cause: str
    text: str
    slot: str | None = None


def decide(history: BootHistory, slots: SlotVersions, exits: Sequence[Exit]) -> Action:
    """Choose the next step after the product ended; every path ends in safe mode, none in a loop."""
    last = exits[-1] if exits else Exit(history.uptime_s, "dependency")
    if last.result == PORT_TAKEN:  # no restart and no reboot takes it from the other program
        return Action("safe", "port", f"port {last.status} is taken by another program")
    if last.status == str(CONFIG_EXIT):
        return _after_config(history)
    if last.status.isdecimal() and int(last.status) in STORAGE_EXITS:
        return _after_storage(history, exits)
    if last.result in ("dependency", "success") and not last.code:
        return _after_storage(history, exits)
    recent = [one for one in exits if history.uptime_s - one.uptime_s <= LIMIT_S]
    if len(recent) < LIMIT_COUNT and last.status != str(TIRED_EXIT):
        return Action("restart", "ended", f"ended with {last.result or last.status}, {len(recent)} times in 300 s")
    return _after_loop(history, slots)


def decide_at_boot(history: BootHistory) -> Action | None:
    """Choose safe mode before the product starts when boot follows boot without ten healthy minutes."""
    count = unplanned_boots(history.boots)
    if count < UNPLANNED_BOOTS:
        return None
    return Action("safe", "boots", f"{count} unplanned boots without ten healthy minutes")


def unplanned_boots(boots: Sequence[Boot]) -> int:
    """Count the newest boots in a row that nobody wanted and that never settled, of the version running now."""
    count = 0
    for at, one in enumerate(reversed(boots)):
        if one.reason in EXPECTED or one.version != boots[-1].version or (at and one.settled):
            break
        count += 1
    return count


def _after_config(history: BootHistory) -> Action:
    if history.good_config:
        return Action("restore_config", "config", "the configuration is wrong, the last good one is restored")
    return Action("safe", "config", "the configuration is wrong and there is no other good one")


def _after_storage(history: BootHistory, exits: Sequence[Exit]) -> Action:
    here = history.boots[-1].boot if history.boots else ""
    steps = [one for one in history.steps if one.cause == "storage"]
    if any(one.kind == "reboot" for one in steps) and not _settled_since(history, steps):
        tried = any(one.kind == "read_only" and one.boot == here for one in steps)
        if history.log_readable and not tried:
            return Action("read_only", "storage", "the disk still fails after a reboot, the log can be read")
        return Action("safe", "storage", "the disk still fails after a reboot")
    recent = [one for one in exits if history.uptime_s - one.uptime_s <= LIMIT_S]
    if len(recent) >= LIMIT_COUNT or any(one.kind == "restart" and one.boot == here for one in steps):
        return Action("reboot", "storage", "the disk fails, one reboot is tried")
    return Action("restart", "storage", "the disk fails, a restart is tried")


def _settled_since(history: BootHistory, steps: Sequence[EscalationStep]) -> bool:
    """Tell whether a boot after the last storage reboot had ten healthy minutes."""
    after = False
    settled = False
    reboot = [one.boot for one in steps if one.kind == "reboot"][-1]
    for one in history.boots:
        settled = settled or (after and one.settled)
        after = after or one.boot == reboot
    return settled


def _after_loop(history: BootHistory, slots: SlotVersions) -> Action:
    if slots.trial:
        return Action("switch_slot", "loop", f"version on trial in slot {slots.trial} keeps failing", slots.active)
    if unplanned_boots(history.boots) >= UNPLANNED_BOOTS:
        return Action("safe", "loop", f"{UNPLANNED_BOOTS} unplanned boots without ten healthy minutes")
    drastic = [one for one in history.steps if one.kind in ("reboot", "switch_slot", "safe") and one.ago_s <= AGAIN_S]
    if not drastic:
        return Action("reboot", "loop", "keeps failing, one reboot is tried")
    other = slots.fallback()
    if drastic[-1].kind == "reboot" and other:
        return Action("switch_slot", "loop", f"keeps failing after a reboot, slot {other} is tried", other)
    return Action("safe", "loop", "keeps failing after every step of the escalation")
