"""One row per line of the escalation table; `t` counts seconds of the present boot."""

from typing import Any

import pytest

from watchdog.escalate import (
    Boot,
    BootHistory,
    EscalationStep,
    Exit,
    SlotVersions,
    decide,
    decide_at_boot,
    unplanned_boots,
)


def crashes(count: int, *, until: float, every: float = 10) -> list[Exit]:
    return [Exit(until - every * at, "signal", "killed", "KILL") for at in reversed(range(count))]


def exited(status: int, at: float = 1000, count: int = 1) -> list[Exit]:
    return [Exit(at, "exit-code", "exited", str(status))] * count


HERE = Boot("now", "power", "1.4.0", 1000)
BOTH = SlotVersions("a", None, {"a": "1.4.0", "b": "1.3.2"}, frozenset({"1.4.0", "1.3.2"}))
TRIAL = SlotVersions("a", "b", {"a": "1.4.0", "b": "1.5.0"}, frozenset({"1.4.0"}))
ALONE = SlotVersions("a", None, {"a": "1.4.0"}, frozenset({"1.4.0"}))


def history(*steps: EscalationStep, boots: tuple[Boot, ...] = (HERE,), **more: Any) -> BootHistory:
    return BootHistory(boots, steps, uptime_s=1000, **more)


def unwanted(count: int, version: str = "1.4.0", reason: str = "watchdog") -> tuple[Boot, ...]:
    return tuple(Boot(str(at), reason, version, 60) for at in range(count))


REBOOTED = EscalationStep("reboot", "loop", "before", 120)
SWITCHED = EscalationStep("switch_slot", "loop", "before", 60)
DISK = EscalationStep("reboot", "storage", "before", 5000)
DISK_RESTART = EscalationStep("restart", "storage", "now", 100)

ROWS = [
    ("one crash", history(), BOTH, crashes(1, until=1000), ("restart", None)),
    ("four in 300 s", history(), BOTH, crashes(4, until=1000), ("restart", None)),
    ("five, but over 400 s", history(), BOTH, crashes(5, until=1000, every=100), ("restart", None)),
    ("five in 300 s", history(), BOTH, crashes(5, until=1000), ("reboot", None)),
    ("exit 79", history(), BOTH, exited(79), ("reboot", None)),
    ("exit 78 with a good file", history(good_config=True), BOTH, exited(78), ("restore_config", None)),
    ("exit 78 without", history(), BOTH, exited(78), ("safe", None)),
    ("five on trial", history(), TRIAL, crashes(5, until=1000), ("switch_slot", "a")),
    ("five on trial after a reboot", history(REBOOTED), TRIAL, crashes(5, until=1000), ("switch_slot", "a")),
    ("again within 30 min", history(REBOOTED), BOTH, crashes(5, until=1000), ("switch_slot", "b")),
    (
        "again after 31 min",
        history(EscalationStep("reboot", "loop", "before", 1860)),
        BOTH,
        crashes(5, until=1000),
        ("reboot", None),
    ),
    ("again, nothing in the other slot", history(REBOOTED), ALONE, crashes(5, until=1000), ("safe", None)),
    (
        "again, the other slot is bad",
        history(REBOOTED),
        SlotVersions("a", None, BOTH.versions, BOTH.committed, frozenset({"1.3.2"})),
        crashes(5, until=1000),
        ("safe", None),
    ),
    (
        "again, the other was never committed",
        history(REBOOTED),
        SlotVersions("a", None, BOTH.versions, frozenset({"1.4.0"})),
        crashes(5, until=1000),
        ("safe", None),
    ),
    (
        "again, the other has the same version",
        history(REBOOTED),
        SlotVersions("a", None, {"a": "1.4.0", "b": "1.4.0"}, frozenset({"1.4.0"})),
        crashes(5, until=1000),
        ("safe", None),
    ),
    ("once more after the switch", history(REBOOTED, SWITCHED), BOTH, crashes(5, until=1000), ("safe", None)),
    ("three unplanned boots", history(boots=unwanted(3)), BOTH, crashes(5, until=1000), ("safe", None)),
    ("the plug pulled five times", history(boots=unwanted(5, reason="power")), BOTH, exited(79), ("reboot", None)),
    ("disk error", history(), BOTH, exited(74), ("restart", None)),
    ("mount failed: never started", history(), BOTH, [Exit(1000, "dependency")], ("restart", None)),
    ("mount failed again", history(DISK_RESTART), BOTH, [Exit(1000, "dependency")], ("reboot", None)),
    ("a port is another's", history(DISK_RESTART), BOTH, [Exit(1000, "port", "", "9876")], ("safe", None)),
    ("lock held by a dead thread", history(), BOTH, exited(75, count=5), ("reboot", None)),
    ("disk error after the reboot", history(DISK), BOTH, exited(74), ("read_only", None)),
    ("and no log to read", history(DISK, log_readable=False), BOTH, exited(74), ("safe", None)),
    (
        "read only fails too",
        history(DISK, EscalationStep("read_only", "storage", "now", 10)),
        BOTH,
        exited(74),
        ("safe", None),
    ),
    (
        "disk error long after a healed one",
        history(DISK, boots=(Boot("before", "power"), Boot("well", "power", settled=True), HERE)),
        BOTH,
        exited(74),
        ("restart", None),
    ),
]


@pytest.mark.parametrize(
    ("past", "slots", "exits", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_each_row_of_the_table_has_its_action(
    past: BootHistory, slots: SlotVersions, exits: list[Exit], expected: tuple[str, str | None]
) -> None:
    action = decide(past, slots, exits)
    assert (action.kind, action.slot) == expected
    assert action.text


def test_whatever_crashes_forever_ends_in_safe_mode_and_reboots_at_most_twice() -> None:
    steps: list[EscalationStep] = []
    kinds = []
    for boot in range(6):
        action = decide(history(*steps), BOTH, crashes(5, until=1000))
        kinds.append(action.kind)
        if action.kind == "safe":
            break
        steps = [EscalationStep(one.kind, one.cause, one.boot, one.ago_s + 60) for one in steps]
        steps.append(EscalationStep(action.kind, action.cause, str(boot), 60))
    assert kinds == ["reboot", "switch_slot", "safe"]


@pytest.mark.parametrize(
    ("boots", "count"),
    [
        (unwanted(3), 3),
        ((*unwanted(2), Boot("p", "planned", "1.4.0")), 0),
        ((*unwanted(2), Boot("p", "power", "1.4.0"), *unwanted(1)), 1),
        ((Boot("s", "watchdog", "1.4.0", settled=True), *unwanted(2)), 2),
        ((*unwanted(3, version="1.5.0"), Boot("b", "watchdog", "1.4.0")), 1),  # rolled back: a new count
        (unwanted(4, reason="escalated"), 4),
        ((), 0),
    ],
)
def test_boots_nobody_wanted_are_counted_up_to_the_last_good_one(boots: tuple[Boot, ...], count: int) -> None:
    assert unplanned_boots(boots) == count


def test_three_panics_in_a_row_mean_safe_mode_before_the_product_starts() -> None:
    assert decide_at_boot(BootHistory(unwanted(2, reason="panic"))) is None
    action = decide_at_boot(BootHistory(unwanted(3, reason="panic")))
    assert action is not None
    assert action.kind == "safe"
