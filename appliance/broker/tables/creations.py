"""What came into being because somebody sent, pulled or subscribed: how much of it an address may cause, what of it is
forgotten again.

A topic or a group that nobody asked for by name has no owner to delete it. So an address causes only so many of them
in an hour, and one that nobody uses is deleted: a group without offsets and members, a topic that no group consumes,
once its last message has expired. Sans I/O.
"""

from collections.abc import Callable
from typing import Any

from appliance.broker.tables.saving import SavedTable, TableFile, load_table
from netstack.serving.addresses import is_loopback
from netstack.serving.slots import share_of
from storage_driver.named_tuple import NamedTuple

HOUR_MS = 3_600_000
UNUSED_MS = HOUR_MS
MOST_ADDRESSES = 4096
FEW = 32  # that an address may cause within an hour whatever others do, as long as there is room at all
TOPIC, GROUP = "topic", "group"


class Uses(NamedTuple):
    """What tells whether something is used, and what deletes it. `used`: it stays; `wanted`: not to be deleted yet."""

    used: Callable[[str], bool]
    wanted: Callable[[str], bool]
    delete: Callable[[str], object]


class Creations(SavedTable):
    """Automatically created topics and groups, until they are used."""

    def __init__(self, file: TableFile, *, per_hour: int, now_ms: Callable[[], int]) -> None:
        self._per_hour, self._now_ms = per_hour, now_ms
        super().__init__(file, self.to_json)
        self._made = _rows(load_table(file, "creations"))  # (kind, name) -> when, oldest first
        self._left: dict[str, tuple[float, int]] = {}  # share of an address -> how many more, as of when

    def __len__(self) -> int:
        return len(self._made)

    def __contains__(self, created: tuple[str, str]) -> bool:
        return created in self._made

    def allows(self, address: str, *, crowded: bool) -> bool:
        """Tell whether an address may cause one more now; it counts as caused then. This machine always may.

        `crowded`: half of the table is full, and the rest is for those who have caused few.
        """
        if not address or is_loopback(address):
            return True
        share, now_ms = share_of(address), self._now_ms()
        left, since = self._left.pop(share, (float(self._per_hour), now_ms))
        left = min(float(self._per_hour), left + max(0, now_ms - since) * self._per_hour / HOUR_MS)
        allowed = left >= (max(1, self._per_hour - FEW + 1) if crowded else 1)
        self._left[share] = (left - allowed, now_ms)  # newest last
        if len(self._left) > MOST_ADDRESSES:
            del self._left[next(iter(self._left))]
        return allowed

    def refusal(self, what: str) -> str:
        """Return what is said to who may not cause one more."""
        return (
            f"this address has created {self._per_hour} topics and groups in an hour (limits.created_per_hour), "
            f"or {FEW} while half of limits.topics or limits.groups is used: create the {what} with the tools, or wait"
        )

    def made(self, kind: str, name: str) -> None:
        """Remember that it was created automatically."""
        self._made[kind, name] = self._now_ms()
        self._saver.changed()

    def forget(self, kind: str, name: str) -> None:
        """It has been asked for by name, or is gone."""
        if self._made.pop((kind, name), None) is not None:
            self._saver.changed()

    def expire(self, uses: dict[str, Uses]) -> list[str]:
        """Forget what is used by now, delete what nobody has used within an hour; return the names deleted."""
        now_ms, deleted, changed = self._now_ms(), list[str](), False
        for (kind, name), since in list(self._made.items()):
            use = uses[kind]
            if use.used(name):
                del self._made[kind, name]
                changed = True
            elif not 0 <= now_ms - since < UNUSED_MS and not use.wanted(name):
                del self._made[kind, name]
                use.delete(name)
                deleted.append(f"{kind} {name}")
                changed = True
        if changed:
            self._saver.changed()
        return deleted

    def to_json(self) -> dict[str, object]:
        """Return what is saved."""
        return {"made": [[kind, name, since] for (kind, name), since in self._made.items()]}


def _rows(content: dict[str, Any]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    rows = content.get("made")
    for row in rows if isinstance(rows, list) else ():
        match row:
            case [("topic" | "group") as kind, str() as name, int() as since]:
                found[kind, name] = since
    return found
