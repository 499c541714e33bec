"""The verdict of a recovery: what it found and did."""

from typing import Any

from storage_driver.named_tuple import NamedTuple
from storage_driver.recovery.losses import Loss


class Damage(NamedTuple):
    """A range of the log that held no good records and was covered."""

    start: int
    end: int
    reason: str
    aside: str | None  # name in quarantine/ of the bytes found

    def to_json(self) -> dict[str, Any]:
        """Return the verdict's form."""
        return {"from": self.start, "to": self.end, "reason": self.reason, "aside": self.aside}


class RecoveryVerdict:
    """What recovery found and did."""

    def __init__(self) -> None:
        # clean_tail: torn tail cut; repaired: see reasons; salvaged: damage, foreign records; lost: see `lost`
        self.verdict = "clean"
        self.first = self.end = 0
        self.scanned_from = self.scanned_bytes = self.torn_bytes = 0
        self.quarantined: list[Damage] = []
        self.moved = 0  # files that were set aside
        self.foreign_records = False  # in one of them
        self.lost: Loss | None = None  # what was durable and is gone
        self.queues_rebuilt = self.queues_cut = self.index_rebuilt = 0
        self.reasons: list[str] = []
        self.seconds = 0.0

    def judge(self, *, salvaged: bool = False) -> None:
        """Set the verdict from what was found; salvaged: not every record is in its queue."""
        if self.lost is not None:
            self.verdict = "lost"
        elif salvaged or self.quarantined or self.foreign_records:
            self.verdict = "salvaged"
        elif self.queues_rebuilt or self.moved:
            self.verdict = "repaired"
        elif self.torn_bytes:
            self.verdict = "clean_tail"

    def to_json(self) -> dict[str, Any]:
        """Return its form in the verdict file."""
        log = {
            "first": self.first,
            "from": self.scanned_from,
            "end": self.end,
            "scanned_bytes": self.scanned_bytes,
            "torn_bytes": self.torn_bytes,
            "quarantined": [damage.to_json() for damage in self.quarantined],
        }
        return {
            "verdict": self.verdict,
            "seconds": round(self.seconds, 3),
            "log": log,
            "lost": self.lost.to_json() if self.lost is not None else None,
            "queues": {"rebuilt": self.queues_rebuilt, "cut": self.queues_cut},
            "index": {"rebuilt": self.index_rebuilt},
            "reasons": self.reasons[:50],
            "salvage": self.quarantined[0].aside if self.quarantined else None,
        }
