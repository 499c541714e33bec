"""What the centre holds of every box of a shard: data, declared losses, express lane; and what of a piece is new."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import cbor2

from uplink_spark.centre.verify import Verified
from uplink_spark.centre.zone_files.contents import NEWEST, LandedRange, landed_range
from uplink_spark.errors import ManifestDamaged, Refused
from uplink_spark.wire.batch import PieceHeader
from uplink_spark.wire.frames import MAX_HOLES, Have
from uplink_spark.wire.intervals import Intervals, Range
from uplink_spark.zone.manifest import ManifestEntry, decode_entry

KEPT_IDS = 1000  # rejected gaps have no bytes; a repeat is known by its id


@dataclass(slots=True)
class EpochCover:
    """One epoch of one box."""

    data: Intervals = field(default_factory=Intervals)
    gaps: Intervals = field(default_factory=Intervals)
    pick: Intervals = field(default_factory=Intervals)

    def copy(self) -> EpochCover:
        return EpochCover(self.data.copy(), self.gaps.copy(), self.pick.copy())

    def held(self, lane: str) -> Intervals:
        """What needs not be sent again in a lane: its bytes and declared losses."""
        whole = (self.pick if lane == "pick" else self.data).copy()
        for start, end in self.gaps:
            whole.add(start, end)
        return whole

    def note(self, kind: str, start: int, end: int) -> None:
        {"pick": self.pick, "gap": self.gaps}.get(kind, self.data).add(start, end)


@dataclass(slots=True)
class BoxCover:
    """Everything known of one box without reading a pack."""

    epochs: dict[int, EpochCover] = field(default_factory=dict)
    gap_ids: dict[tuple[int, int], None] = field(default_factory=dict)  # newest last
    last: ManifestEntry | None = None  # the newest landed piece with bytes
    landed_ms: int = 0
    stored_ms_max: int = 0
    gap_entries: int = 0
    newest: deque[LandedRange] = field(default_factory=lambda: deque(maxlen=NEWEST))  # not in `.state`

    def note(self, entry: ManifestEntry) -> None:
        self.epochs.setdefault(entry.epoch, EpochCover()).note(entry.kind, entry.start, entry.end)
        self.landed_ms = max(self.landed_ms, entry.landed_ms)
        self.stored_ms_max = max(self.stored_ms_max, entry.stored_ms_max)
        if entry.kind == "gap":
            self.gap_entries += 1
            gap_id = (entry.gap or {}).get("id")
            if gap_id and entry.start == entry.end:
                self.gap_ids[gap_id[0], gap_id[1]] = None
                if len(self.gap_ids) > KEPT_IDS:
                    del self.gap_ids[next(iter(self.gap_ids))]
        elif entry.kind == "log":
            self.last = entry
        if entry.kind != "gap":
            self.newest.append(landed_range(entry))

    def have(self, epochs: Iterable[int], lane: str) -> Have:
        """The rows of WELCOME for these epochs."""
        return tuple(
            (epoch, start, end)
            for epoch in epochs
            if epoch in self.epochs
            for start, end in self.epochs[epoch].held(lane)
        )

    def covered(self, epoch: int) -> int:
        """The highest end held of an epoch, 0 if none."""
        cover = self.epochs.get(epoch)
        return 0 if cover is None else max(cover.data.end, cover.gaps.end, cover.pick.end)


@dataclass(frozen=True, slots=True)
class Judged:
    """What of a piece is to be landed; no parts: nothing is new."""

    parts: tuple[Range, ...]
    heals: int


class ShardCover:
    """All boxes of a shard. Judging works on drafts, so that a commit that fails leaves no trace."""

    def __init__(self) -> None:
        self.boxes: dict[str, BoxCover] = {}

    def note(self, entry: ManifestEntry) -> None:
        """A durable entry."""
        self.boxes.setdefault(entry.box, BoxCover()).note(entry)

    def draft(self) -> CommitDraft:
        return CommitDraft(self)

    def encode(self, next_seq: int) -> bytes:
        """Return the bytes of a `.state` file: CRC-32, then CBOR."""
        boxes = {name: _box_map(cover) for name, cover in self.boxes.items()}
        body = cbor2.dumps({"v": 1, "seq": next_seq, "boxes": boxes}, canonical=True)
        return zlib.crc32(body).to_bytes(4, "big") + body

    def load(self, data: bytes, first_seq: int) -> int:
        """Take over a `.state` file and return its newest landed time. Raises ManifestDamaged."""
        if len(data) < 4 or zlib.crc32(data[4:]) != int.from_bytes(data[:4], "big"):
            raise ManifestDamaged("the state's CRC-32 differs")
        state = cbor2.loads(data[4:])
        if state["v"] != 1 or state["seq"] != first_seq:
            raise ManifestDamaged(f"state of seq {state['seq']} in the file of {first_seq}")
        self.boxes = {name: _box_of(values) for name, values in state["boxes"].items()}
        return max((box.landed_ms for box in self.boxes.values()), default=0)


def _box_map(cover: BoxCover) -> dict[str, Any]:
    epochs = [[epoch, list(c.data), list(c.gaps), list(c.pick)] for epoch, c in cover.epochs.items()]
    last = None if cover.last is None else cover.last.encode()
    numbers = [cover.landed_ms, cover.stored_ms_max, cover.gap_entries]
    return {"e": epochs, "i": list(cover.gap_ids), "l": last, "n": numbers}


def _box_of(values: dict[str, Any]) -> BoxCover:
    epochs = {row[0]: EpochCover(*(Intervals(ranges) for ranges in row[1:])) for row in values["e"]}
    last = None if values["l"] is None else decode_entry(values["l"])
    ids = dict.fromkeys((run, number) for run, number in values["i"])  # CBOR knows no tuples
    box = BoxCover(epochs, ids, last, *values["n"])
    if last is not None:
        box.newest.append(landed_range(last))
    return box


class CommitDraft:
    """Decisions of one commit: each piece sees what the ones before it will have added."""

    def __init__(self, cover: ShardCover) -> None:
        self._cover = cover
        self._epochs: dict[tuple[str, int], EpochCover] = {}
        self._ids: set[tuple[str, int, int]] = set()

    def _epoch(self, box: str, epoch: int) -> EpochCover:
        key = (box, epoch)
        if key not in self._epochs:
            known = self._cover.boxes.get(box, BoxCover()).epochs.get(epoch)
            self._epochs[key] = EpochCover() if known is None else known.copy()
        return self._epochs[key]

    def overlaps(self, piece: Verified) -> bool:
        """Tell whether some bytes of a piece are held, or will be when the pieces before it have landed."""
        header = piece.header
        if header.kind not in ("log", "pick"):
            return False
        cover = self._epoch(header.box, header.epoch)
        held = cover.pick if header.kind == "pick" else cover.data
        return bool(held.overlapping(header.start, header.end))

    def judge(self, piece: Verified) -> Judged:
        """Decide what is new. Raises Refused: holes, diverged (a trim inside a record)."""
        header = piece.header
        cover = self._epoch(header.box, header.epoch)
        if header.start == header.end:
            return self._judge_rejected(piece)
        lane = "pick" if header.kind == "pick" else "log"
        before = cover.held(lane) if header.kind == "gap" else (cover.pick if lane == "pick" else cover.data)
        parts = before.missing(header.start, header.end)
        for start, end in parts:
            self._check_cut(piece, start, end)
        after = cover.held(lane)
        for start, end in parts:
            after.add(start, end)
        if len(after) > MAX_HOLES and len(after) > len(cover.held(lane)):
            raise Refused("holes", f"this would make {len(after)} intervals, at most {MAX_HOLES}; send oldest first")
        heals = int(header.kind != "gap" and any(cover.gaps.within(*part) for part in parts))
        for start, end in parts:
            cover.note(header.kind, start, end)
        return Judged(tuple(parts), heals)

    def _check_cut(self, piece: Verified, start: int, end: int) -> None:
        header: PieceHeader = piece.header
        whole = start == header.start and end == header.end
        if whole or header.kind == "gap":
            return
        inside = (start == header.start or piece.may_cut(start)) and (end == header.end or piece.may_cut(end))
        if not inside or header.kind == "blob":
            text = f"landed data ends inside a record of {header.start}..{header.end}: another history"
            raise Refused("diverged", text, fork=header.start)

    def _judge_rejected(self, piece: Verified) -> Judged:
        header, gap = piece.header, piece.gap or {}
        key = (header.box, gap["id"][0], gap["id"][1])
        known = key in self._ids or key[1:] in self._cover.boxes.get(header.box, BoxCover()).gap_ids
        self._ids.add(key)
        return Judged(() if known else ((header.start, header.end),), 0)
