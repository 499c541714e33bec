"""Conditions that somebody has acknowledged: still listed, but they neither degrade the state nor raise an alert.

A mute ends by itself: at its time, when the condition gets worse (more dead letters, another gap), or when the
condition has been over for three hours. It survives a restart.
"""

from collections.abc import Callable, Iterable
from typing import Any

from appliance.admin import Action, AdminRefused, AdminRequest
from appliance.broker.tables.saving import TableFile, load_table
from appliance.health.conditions import KINDS, Condition
from storage_driver.named_tuple import NamedTuple

OVER_MS = 3 * 3_600_000
MOST = 1000
FOREVER = 1 << 62


class Mute(NamedTuple):
    """Up to which mark and until when a condition is not told."""

    mark: int
    until_ms: int


class Mutes:
    """The acknowledged conditions by key; `file` holds them over a restart."""

    def __init__(self, file: TableFile, *, now_ms: Callable[[], int], uptime_ms: Callable[[], int]) -> None:
        self._file, self._now_ms, self._uptime_ms = file, now_ms, uptime_ms
        stored = load_table(file, "muted conditions").get("muted")
        self._muted = dict(_rows(stored)) if isinstance(stored, dict) else {}
        self._held_ms: dict[str, int] = {}  # uptime at which a muted condition was last seen to hold
        self._present: dict[str, Condition] = {}

    def split(self, found: Iterable[Condition]) -> tuple[list[Condition], list[Condition]]:
        """Return the conditions to tell and the muted ones, each in the order given."""
        loud, muted, now_ms, up_ms = list[Condition](), list[Condition](), self._now_ms(), self._uptime_ms()
        self._present = {one.key: one for one in found}
        for one in self._present.values():
            mute = self._muted.get(one.key) or self._muted.get(one.id)
            if mute is None or one.mark > mute.mark or now_ms >= mute.until_ms:
                loud.append(one)
                continue
            self._held_ms[one.key] = self._held_ms[one.id] = up_ms
            muted.append(one)
        for key in list(self._muted):
            if up_ms - self._held_ms.setdefault(key, up_ms) > OVER_MS:
                del self._muted[key], self._held_ms[key]
        return loud, muted

    def actions(self) -> dict[str, Action]:
        """Return what admin.sock may ask."""
        return {"conditions.mute": self._mute, "conditions.unmute": self._unmute}

    async def _mute(self, question: AdminRequest) -> object:
        key, hours = question.values.get("key"), question.values.get("hours")
        if not isinstance(key, str) or key.partition(":")[0] not in KINDS:
            raise AdminRefused(
                f"there is no condition {key!r}; current conditions: {', '.join(self._present) or 'none'}"
            )
        if KINDS[key.partition(":")[0]].state != "degraded":
            raise AdminRefused(f"{key} stops the box from serving and cannot be muted")
        if len(self._muted) >= MOST:
            raise AdminRefused(f"{len(self._muted)} conditions are muted, which is the limit: unmute some")
        marks = [one.mark for one in self._present.values() if key in (one.key, one.id)]
        until_ms = self._now_ms() + hours * 3_600_000 if isinstance(hours, int) and hours > 0 else FOREVER
        self._muted[key] = Mute(max(marks, default=0), until_ms)
        self._held_ms[key] = self._uptime_ms()
        return await self._saved(f"{key} is muted until it gets worse, ends, or is unmuted", key)

    async def _unmute(self, question: AdminRequest) -> object:
        key = str(question.values.get("key"))
        if self._muted.pop(key, None) is None:
            raise AdminRefused(f"{key} is not muted; muted are: {', '.join(self._muted) or 'none'}")
        return await self._saved(f"{key} is no longer muted", key)

    async def _saved(self, text: str, key: str) -> object:
        try:
            await self._file.write({"muted": {name: list(mute) for name, mute in self._muted.items()}})
        except OSError as exc:
            raise AdminRefused(f"{text}, but this is lost at a restart: {exc}") from exc
        return {"text": text, "value": {"key": key}, "code": 0}


def _rows(stored: dict[str, Any]) -> Iterable[tuple[str, Mute]]:
    for key, row in stored.items():
        if isinstance(row, list) and len(row) == 2 and all(isinstance(item, int) for item in row):
            yield key, Mute(*row)
