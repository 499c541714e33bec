"""What the box knows of its shipping: receipts, declared gaps, bytes of the month.

Receipts live in memory and are replaced on disk after 64 MiB, 60 s, before retention deletes and at stop. Only what is
synced lets a CommitLog file go. All offsets are of the log that is on this disk now: an offset has one owner epoch.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage_driver.files.unreadable import read_around
from uplink_spark.box.caps import MonthUse
from uplink_spark.box.receipts.declared_gaps import DeclaredGaps
from uplink_spark.errors import PieceDamaged
from uplink_spark.wire.cbor import Fields, decode_map, encode_map
from uplink_spark.wire.durable import refuse_huge, write_synced
from uplink_spark.wire.intervals import Intervals, Range

SAVE_BYTES, SAVE_S = 64 << 20, 60
KEPT_RECEIPTS = 1000
MOST_ITEMS = 1_000_000  # of the saved state: it has three for each gap that was delivered


@dataclass(frozen=True, slots=True)
class ReceiptSeen:
    """A line of `uplink receipts`."""

    start: int
    end: int
    kind: str
    seq: int
    shard: int
    dup: int
    at_ms: int


@dataclass(slots=True)
class Lanes:
    """What this landing has receipted, by lane."""

    log: Intervals
    pick: Intervals


class Ledger:
    """Receipts and gaps of one store; `open` and everything that says so block on the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / "uplink.cbor"
        self.gaps = DeclaredGaps(folder / "gaps.log")
        self.landing: bytes | None = None
        self.newest: tuple[int, int] | None = None  # shard and seq of the newest receipt of this landing
        self.receipted = Lanes(Intervals(), Intervals())
        self.elsewhere = Intervals()  # receipted by another landing before
        self.switches: list[tuple[int, tuple[str, ...]]] = []  # express topics by log offset, as the lineage has them
        self.month = MonthUse()
        self.paused = False
        self.receipts: deque[ReceiptSeen] = deque(maxlen=KEPT_RECEIPTS)
        self.damage: str | None = None  # why the state found was not used
        self.unsaved_bytes = 0
        self._synced = Lanes(Intervals(), Intervals())

    def open(self) -> None:
        """Read state and gaps; a damaged state counts as none, the gateway's `have` tells. Blocks. Raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._read()
        self.gaps.open()
        self._synced = Lanes(self.receipted.log.copy(), self.receipted.pick.copy())

    def _read(self) -> None:
        try:
            refuse_huge(self._path, self._path.stat().st_size)
            self._load(Fields(decode_map(read_around(self._path)[0], most=MOST_ITEMS), self._path.name))
        except FileNotFoundError:
            pass
        except PieceDamaged as error:
            self.damage = str(error)

    def receipted_to(self) -> int:
        """Return up to which log offset the saved receipts reach, before the ledger is opened. Blocks.

        Raises OSError.
        """
        self._read()
        return max((end for lane in (self.receipted.log, self.receipted.pick) for _, end in lane), default=0)

    def _load(self, fields: Fields) -> None:
        """Take over all of a state or, where anything of it is damaged, nothing."""
        told = fields.uint("sum", 0, most=0xFFFFFFFF) if "sum" in fields.values else None
        if told is not None and told != _sum({key: fields.values[key] for key in fields.values if key != "sum"}):
            raise PieceDamaged(f"{self._path.name}: the sum of its fields differs")
        landing = fields.octets("landing", 16) if fields.values.get("landing") else None
        receipted = Lanes(Intervals(fields.pairs("log")), Intervals(fields.pairs("pick")))
        elsewhere, delivered = Intervals(fields.pairs("elsewhere")), set(fields.pairs("delivered"))
        switches = [(int(str(at)), tuple(map(str, _list(names)))) for at, names in fields.rows("express", int, list)]
        newest = next(iter(fields.pairs("newest")), None)
        month = MonthUse(fields.text("month", ""), fields.uint("month_bytes", 0))
        self.paused = bool(fields.uint("paused", 0))
        self.landing, self.newest, self.receipted, self.elsewhere = landing, newest, receipted, elsewhere
        self.switches, self.month, self.gaps.delivered = switches, month, delivered

    def _encode(self, receipted: Lanes) -> bytes:
        state: dict[str, object] = {
            "v": 1,
            "landing": self.landing,
            "newest": None if self.newest is None else [list(self.newest)],
            "log": [list(part) for part in receipted.log],
            "pick": [list(part) for part in receipted.pick],
            "elsewhere": [list(part) for part in self.elsewhere],
            "month": self.month.month,
            "month_bytes": self.month.wire_bytes,
            "paused": int(self.paused),
            "delivered": [list(pair) for pair in sorted(self.gaps.delivered)],
        }
        return encode_map(state | {"sum": _sum(state)})

    def save(self) -> None:
        """Replace the state file and sync it; from then on what it says lets files go. Blocks. Raises OSError."""
        self.unsaved_bytes, receipted = 0, self.receipted
        written = Lanes(receipted.log.copy(), receipted.pick.copy())
        write_synced(self._path, self._encode(written))
        if self.receipted is receipted:  # else a welcome or a fork made it void meanwhile
            self._synced = written

    # Facts from the gateway

    def welcome(self, landing: bytes, log: Sequence[Range], pick: Sequence[Range]) -> list[Range]:
        """Take over what this landing holds; return what it had receipted and lacks now."""
        if self.landing != landing:
            for start, end in self.receipted.log:
                self.elsewhere.add(start, end)
            self.landing, self.newest = landing, None
            self.receipted = Lanes(Intervals(), Intervals())
            self.gaps.delivered.clear()
        held = Intervals(log)
        lost = [hole for start, end in self.receipted.log for hole in held.missing(start, end)]
        self.receipted = Lanes(held, Intervals(pick))
        self._synced = Lanes(Intervals(), Intervals())  # until the next save
        return lost

    def receipt(self, kind: str, seen: ReceiptSeen) -> None:
        (self.receipted.pick if kind == "pick" else self.receipted.log).add(seen.start, seen.end)
        self.receipts.append(seen)
        self.unsaved_bytes += seen.end - seen.start

    def forked(self, log_offset: int) -> None:
        """Bytes from here on belong to a new epoch: nobody has receipted them."""
        self.receipted = Lanes(self.receipted.log, self.receipted.pick)
        for lanes in (self.receipted, self._synced):
            lanes.log.remove(log_offset, 1 << 63)
            lanes.pick.remove(log_offset, 1 << 63)
        self.elsewhere.remove(log_offset, 1 << 63)

    # Express lane

    def express_at(self, log_offset: int) -> tuple[str, ...]:
        """The express topics in force at an offset."""
        topics: tuple[str, ...] = ()
        for at, names in self.switches:
            if at <= log_offset:
                topics = names
        return topics

    def pick_spans(self, first: int, durable: int) -> list[Range]:
        """The ranges of the log whose express records travel on their own lane."""
        ends = [*[at for at, _ in self.switches[1:]], durable][: len(self.switches)]
        spans = [(max(at, first), end) for (at, names), end in zip(self.switches, ends, strict=True) if names]
        return [(start, end) for start, end in spans if start < end]

    # Retention

    def may_release(self, base: int, end: int) -> bool:
        """Whether every byte of [base, end) is receipted or declared lost, and the disk knows it."""
        lanes = [(self._synced.log, [(base, end)])]
        lanes.append((self._synced.pick, [(max(a, base), min(b, end)) for a, b in self.pick_spans(base, end)]))
        return all(
            self.gaps.synced.covers(*hole)
            for held, spans in lanes
            for start, stop in spans
            if start < stop
            for hole in held.missing(start, stop)
        )

    def unshipped(self, first: int, durable: int) -> list[Range]:
        """What is neither receipted nor declared, ascending."""
        return [part for hole in self.receipted.log.missing(first, durable) for part in self.gaps.synced.missing(*hole)]


def _sum(state: dict[str, object]) -> int:
    """The CRC-32 of a state without its sum: a flipped bit must not let go of what nobody has receipted."""
    return zlib.crc32(encode_map(state))


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise PieceDamaged("express topics are not a list")
    return value
