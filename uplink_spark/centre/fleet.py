"""What a landing zone tells about its boxes: who is behind, what is lost, whether everything is there and whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from uplink_spark.centre.rolled_check import RolledCheck
from uplink_spark.centre.zone_files.keeping import Listing
from uplink_spark.errors import LandingError, ManifestDamaged, PieceDamaged
from uplink_spark.wire.batch import Piece, decode_header, open_piece
from uplink_spark.wire.intervals import Intervals
from uplink_spark.zone.manifest import (
    ManifestEntry,
    first_seq_of,
    manifest_folder,
    manifest_path,
    read_head,
    read_items,
    retired_folder,
    runs_folder,
    shard_of,
)
from uplink_spark.zone.reader import ZoneReader, status_paths

SILENT_S = 900


@dataclass(slots=True)
class BoxFacts:
    """One box as `boxes` shows it."""

    box: str
    epoch: int = 0
    landed_end: int = 0
    landed_ms: int = 0
    stored_ms_max: int = 0
    gaps: int = 0
    pending_bytes: int = 0  # holes between landed ranges
    retired: bool = False
    durable: int | None = None  # what the box said last
    status_ms: int = 0
    covers: dict[int, Intervals] = field(default_factory=dict)

    def note(self, entry: ManifestEntry) -> None:
        self.epoch = entry.epoch
        self.landed_ms = max(self.landed_ms, entry.landed_ms)
        self.stored_ms_max = max(self.stored_ms_max, entry.stored_ms_max)
        if entry.kind == "gap":
            self.gaps += 1
        if entry.kind != "pick":
            self.covers.setdefault(entry.epoch, Intervals()).add(entry.start, entry.end)

    def finish(self) -> None:
        cover = self.covers.get(self.epoch, Intervals())
        rows = list(cover)
        self.landed_end = cover.end
        self.pending_bytes = sum(after[0] - before[1] for before, after in pairwise(rows))

    def lag(self) -> int | None:
        """Bytes durable at the box that are not here, None where it has not said."""
        return None if self.durable is None else max(0, self.durable - self.landed_end) + self.pending_bytes

    def state(self, now_ms: int) -> str:
        if self.retired:
            return "retired"
        seen = max(self.landed_ms, self.status_ms)
        if not seen:
            return "new"  # admitted, and nothing has come yet
        if now_ms - seen > SILENT_S * 1000:
            return "silent"
        return "live, backlog" if self.lag() else "live"


def all_entries(zone: ZoneReader) -> Iterator[tuple[int, ManifestEntry]]:
    """Yield (shard, entry) of everything visible."""
    for shard_log in zone.shards:
        end = shard_log.refresh()
        for entry in shard_log.entries(shard_log.oldest, end):
            yield shard_log.shard, entry


def boxes(zone: ZoneReader) -> list[BoxFacts]:
    """Return what is known of every box, by name."""
    found: dict[str, BoxFacts] = {}
    for _, entry in all_entries(zone):
        found.setdefault(entry.box, BoxFacts(entry.box)).note(entry)
    for status in _statuses(zone):
        facts = found.setdefault(str(status["box"]), BoxFacts(str(status["box"])))
        facts.durable, facts.status_ms = int(status["durable"]), int(status["received_ms"])
    for log in zone.shards:
        for name in zone.files.names(runs_folder(log.shard)):
            found.setdefault(name, BoxFacts(name))
    retired = {name for log in zone.shards for name in zone.files.names(retired_folder(log.shard))}
    for facts in found.values():
        facts.retired = facts.box in retired
        facts.finish()
    return [found[name] for name in sorted(found)]


def _statuses(zone: ZoneReader) -> Iterator[dict[str, Any]]:
    """The newest lines of STATUS, oldest first."""
    for shard in range(zone.zone.shards):
        for path in status_paths(zone.files, shard, newest=2):
            yield from _whole_lines(zone.files.read(f"status/{shard:04x}/{path}", 0) or b"")


def _whole_lines(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.splitlines():
        try:
            yield json.loads(line)
        except ValueError:  # the newest line may be half written
            continue


def export_log(zone: ZoneReader, box: str, epoch: int | None, start: int, end: int) -> Iterator[bytes]:
    """Yield the raw log bytes of [start, end) of a box. Raises LandingError at the first byte that is not there."""
    shard_log = zone.shards[shard_of(box, zone.zone.shards)]
    entries = [
        entry
        for entry in shard_log.entries(0, shard_log.refresh())
        if entry.box == box and entry.kind in ("log", "blob") and entry.start < end and entry.end > start
    ]
    if epoch is None and entries:
        epoch = entries[-1].epoch
    at = start
    for entry in sorted((entry for entry in entries if entry.epoch == epoch), key=lambda entry: entry.start):
        if entry.end <= at:
            continue
        if entry.start > at:
            break
        piece = open_piece(zone.files.read_range(entry.pack, entry.offset, entry.stored_bytes))
        raw = piece.raw().ljust(piece.header.end - piece.header.start, b"\0")  # the blank that ends a file
        yield raw[at - piece.header.start : min(end, entry.end) - piece.header.start]
        at = min(end, entry.end)
    if at < end:
        raise LandingError(f"box {box}: bytes from log offset {at} are not in the landing zone")


@dataclass(slots=True)
class ShardCheck:
    """Findings of one shard."""

    shard: int
    entries: int = 0
    first: int = 0
    end: int = 0
    packs: set[str] = field(default_factory=set)
    stored_bytes: int = 0
    raw_bytes: int = 0
    sha_ok: int = 0
    records: int = 0  # checked one by one
    gaps: int = 0
    marked: int = 0  # ranges that their box found damaged
    orphans: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


def check(zone: ZoneReader, *, deep: bool) -> list[ShardCheck]:
    """Read every manifest file (and with deep every piece) and return what was found; nothing is changed."""
    return [_check_shard(zone, shard, deep=deep) for shard in range(zone.zone.shards)]


def _check_shard(zone: ZoneReader, shard: int, *, deep: bool) -> ShardCheck:
    result = ShardCheck(shard)
    rolled = RolledCheck(zone.files, shard, result.findings.append)  # listed first: it may only know less
    firsts = sorted(f for f in map(first_seq_of, zone.files.names(manifest_folder(shard))) if f is not None)
    result.first = result.end = firsts[0] if firsts else 0
    begins = zone.shards[shard].begins()  # the packs below have left, as they should
    for at, first in enumerate(firsts):
        if first != result.end:
            result.findings.append(f"{manifest_path(shard, first)}: a hole, expected seq {result.end}")
        path = manifest_path(shard, first)
        data = zone.files.read(path, 0) or b""
        try:
            part = read_items(data[read_head(data, shard, first) :], first)
        except ManifestDamaged as error:
            result.findings.append(f"{path}: {error}")
            continue
        if part.fault is not None and at < len(firsts) - 1:
            result.findings.append(f"{path}: {part.fault}")
        result.end = part.next_seq
        for entry in part.entries:
            result.entries += 1
            result.packs.add(entry.pack)
            rolled.compare(entry)
            if entry.seq >= begins:
                _check_entry(zone, entry, result, deep=deep)
    rolled.finish(result.end)
    _find_orphans(zone, shard, result)
    return result


def _check_entry(zone: ZoneReader, entry: ManifestEntry, result: ShardCheck, *, deep: bool) -> None:
    result.gaps += entry.kind == "gap"
    result.marked += entry.kind == "blob"
    result.raw_bytes += entry.raw_bytes
    result.stored_bytes += entry.stored_bytes
    try:
        container = zone.files.read_range(entry.pack, entry.offset, entry.stored_bytes if deep else 20_000)
        if deep:
            piece = open_piece(container)
            raw = piece.raw()
            header = piece.header
            if hashlib.sha256(raw).digest() != header.sha:
                raise PieceDamaged("the SHA-256 of the raw bytes differs")
            result.sha_ok += entry.kind != "gap"
            result.findings += [f"seq {entry.seq}: {entry.box}: {text}" for text in _records(piece, raw, result)]
        else:
            header, _ = decode_header(container[: entry.stored_bytes])
        if (
            (header.box, header.epoch) != (entry.box, entry.epoch)
            or entry.start < header.start
            or entry.end > header.end
        ):
            raise PieceDamaged("the piece is not the one the entry describes")
    except (OSError, PieceDamaged) as error:
        result.findings.append(f"seq {entry.seq}: {entry.pack} at {entry.offset}: {error}")


def _records(piece: Piece, raw: bytes, result: ShardCheck) -> list[str]:
    from uplink_spark.centre.record_check import bad_records  # body CRC, log_offset, topic: needs numpy

    result.records += piece.header.records
    return bad_records(piece, raw)


def _find_orphans(zone: ZoneReader, shard: int, result: ShardCheck) -> None:
    """Packs nobody points to and that no writer is about to name (below the next seq)."""
    for day in zone.files.names(f"pack/{shard:04x}"):
        for name in zone.files.names(f"pack/{shard:04x}/{day}"):
            path = f"pack/{shard:04x}/{day}/{name}"
            stem = name.partition(".")[0].partition("-")[0]  # in an object store the writer's mark follows the seq
            if path not in result.packs and stem.isdigit() and result.first <= int(stem) < result.end:
                result.orphans.append(path)


def consumers(files: Listing) -> dict[str, dict[str, Any]]:
    """Return the positions readers have written: name -> {offsets, updated_ms}."""
    found: dict[str, dict[str, Any]] = {}
    for name in sorted(name for name in files.names("consumers") if name.endswith(".json")):
        try:
            consumer = json.loads(files.read(f"consumers/{name}", 0) or b"")
            positions(consumer)
            int(str(consumer.get("updated_ms", 0)))
            found[name.removesuffix(".json")] = consumer
        except (ValueError, TypeError, AttributeError) as error:  # no JSON, or JSON of another shape
            raise LandingError(f"consumers/{name}: {error}; remove it or let its consumer write it again") from error
    return found


def positions(consumer: dict[str, Any]) -> dict[int, int]:
    """The seqs of a consumer by shard; its offsets may be written as text or as a map."""
    offsets = consumer.get("offsets", {})
    if isinstance(offsets, str):
        offsets = json.loads(offsets)
    return {int(shard): int(seq) for shard, seq in offsets.items()}
