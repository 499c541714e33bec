"""Before a wanted reboot, the leader of a group lets another box lead: no send of a stock client fails."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from appliance.admin import AdminRefused, AdminSilent, ask

ROUTE_S = 35.0  # stock clients ask for the route every 30 s; until then this box hands their sends on
ORDER_S = 30.0


def hand_over(path: Path, *, wait: Callable[[float], None] = time.sleep) -> Iterator[str]:
    """Hand over if the running box leads a group, and wait until clients know; yield what to tell meanwhile."""
    try:
        status: dict[str, Any] = ask(path, "group.status", timeout_s=ORDER_S)
    except (AdminSilent, AdminRefused):
        return  # it does not run, or belongs to no group
    if not status["serves"]:
        return
    try:
        to = ask(path, "group.hand_over", timeout_s=ORDER_S)["to"]
    except (AdminSilent, AdminRefused) as exc:
        yield f"no other box of its group leads ({exc}): sends may fail until one does"
        return
    if not to:
        return  # it has stopped leading meanwhile
    yield f"{to} leads the group now; clients ask for the route within {ROUTE_S:g} s, this box reboots after that"
    wait(ROUTE_S)
