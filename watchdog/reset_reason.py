"""Why the last boot happened: what the previous boot left behind in, one word out."""

from collections.abc import Mapping
from typing import Any, NamedTuple

WDIOF_CARDRESET = 0x20  # linux/watchdog.h: the last reboot was caused by the card
RESET_REASONS = ("planned", "escalated", "watchdog", "panic", "hang", "power")


class BootFacts(NamedTuple):
    """What is left of the previous boot."""

    previous_boot: str | None = None
    planned: Mapping[str, Any] | None = None  # the marker: boot, reason, who
    bootstatus: int = 0
    panic_files: int = 0
    heartbeat: Mapping[str, Any] | None = None  # its last line: boot, uptime_s, state


def reset_reason(facts: BootFacts) -> str:
    """Return the first that fits: planned or escalated, watchdog, panic, hang, power.

    `escalated` is a reboot this box ordered because the product failed: announced, but not wanted, so it counts.
    """
    marker = facts.planned
    if marker and facts.previous_boot and marker.get("boot") == facts.previous_boot:
        return "escalated" if marker.get("who") == "escalate" else "planned"
    if facts.bootstatus & WDIOF_CARDRESET:
        return "watchdog"
    if facts.panic_files:
        return "panic"
    if facts.heartbeat and facts.heartbeat.get("state") == "failing":
        return "hang"
    return "power"
