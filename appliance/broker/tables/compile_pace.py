"""How often an address may have a large SQL92 expression compiled: the largest take 50 ms, in which nobody is served.

A request of some hundred bytes is enough, since it may go by what its group subscribes to. Those that were used last
are compiled already, `sql92.MOST_LARGE` characters of them, and cost nothing here; this machine has no limit. Sans I/O.
"""

from collections.abc import Callable
from typing import Final

from appliance.broker.filter.subscriptions import SQL92
from appliance.broker.tables.shares import counted_for
from netstack.errors import Refused
from netstack.wire.codes import ResponseCode

BURST: Final = 16 * 32_768  # characters: sixteen of the largest at once
PER_S: Final = 2 * 32_768
MOST_ADDRESSES: Final = 4096


class CompilePace:
    """The characters that each address may still have compiled."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._left: dict[str, tuple[float, float]] = {}  # as of when; the newest last

    def check(self, text: str, kind: str | None, address: str) -> None:
        """Count an expression that is about to be compiled. Raises Refused (SYSTEM_BUSY)."""
        if kind != SQL92 or not (counted := counted_for(address)):
            return
        from appliance.broker.filter.sql92 import is_at_hand  # most boxes filter by tags alone

        if is_at_hand(text):
            return
        now_s = self._now_s()
        left, since_s = self._left.pop(counted, (float(BURST), now_s))
        left = min(float(BURST), left + (now_s - since_s) * PER_S)
        allowed = left >= len(text)
        self._left[counted] = (left - len(text) if allowed else left, now_s)
        if len(self._left) > MOST_ADDRESSES:
            del self._left[next(iter(self._left))]
        if not allowed:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]{counted} has too many large SQL92 expressions compiled; this one has {len(text)} "
                "characters: retry in a few seconds, and filter by fewer expressions or shorter ones",
            )
