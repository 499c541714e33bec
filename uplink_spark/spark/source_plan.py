"""Which landed ranges a query reads: pruning, admission of a micro-batch, grouping into tasks. Plain values only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from uplink_spark.spark.packs import PieceRef, ref_of
from uplink_spark.spark.source_options import LATEST, OptionError, SourceOptions, SourcePosition
from uplink_spark.zone.manifest import ManifestEntry

Seqs = dict[int, int]


def to_offset(seqs: Mapping[int, int]) -> dict[str, int]:
    """Return a position as Spark keeps it: shard numbers as text, sorted."""
    return {str(shard): seqs[shard] for shard in sorted(seqs)}


def from_offset(offset: Mapping[str, Any], shards: int) -> Seqs:
    """Return the numbers of Spark's offset; a shard it does not name begins at 0. Raises OptionError."""
    unknown = [shard for shard in offset if shard.isdigit() and int(shard) >= shards]
    if unknown:
        raise OptionError(f"shard {unknown[0]} is not in this landing zone, which has {shards}: another landing zone?")
    return {shard: int(offset.get(str(shard), 0)) for shard in range(shards)}


def resolve(position: SourcePosition, oldest: Seqs, ends: Seqs, at_landed: Seqs | None) -> Seqs:
    """Return the seq of each shard a position stands for. Raises OptionError outside of what is there."""
    if position.latest:
        return dict(ends)
    if at_landed is not None:
        return at_landed
    given = position.seqs or {}
    if unknown := sorted(set(given) - set(ends)):
        raise OptionError(f"shard {unknown[0]} is not in this landing zone, which has shards 0..{len(ends) - 1}")
    seqs = {}
    for shard, end in ends.items():
        seq = given.get(shard, oldest[shard])
        if seq > end:
            raise OptionError(f"shard {shard} ends at seq {end}; an offset of {seq} is beyond it")
        seqs[shard] = end if seq == LATEST else seq
    return seqs


def wants(entry: ManifestEntry, options: SourceOptions) -> bool:
    """Whether an entry can have rows for this query; decided without opening its piece."""
    view = options.view
    if entry.kind != "log" and (entry.kind != "pick" or view.raw):
        return False
    if not entry.records or (options.boxes is not None and entry.box not in options.boxes):
        return False
    if view.store_since_ms is not None and entry.stored_ms_max < view.store_since_ms:
        return False
    if view.store_until_ms is not None and entry.stored_ms_min >= view.store_until_ms:
        return False
    if not _after_log_offset(entry, options) or not _within(entry, options.pruned):
        return False
    return entry.topics is None or _topic_wanted(entry, options)


def _topic_wanted(entry: ManifestEntry, options: SourceOptions) -> bool:
    view, skip = options.view, () if options.view.raw else entry.skip
    pattern = re.compile(view.topic_pattern) if view.topic_pattern else None
    return any(
        topic not in skip
        and (view.topics is None or topic in view.topics)
        and (pattern is None or pattern.search(topic) is not None)
        for topic in entry.topics or ()
    )


def _after_log_offset(entry: ManifestEntry, options: SourceOptions) -> bool:
    if entry.box not in options.log_offsets:
        return True
    epoch, offset = options.log_offsets[entry.box]
    return (epoch is None or is_epoch(entry.epoch, epoch)) and entry.end > offset


def is_epoch(epoch: int, wanted: str) -> bool:
    """Whether the hexadecimal digits are those of the epoch, or the first of them."""
    return f"{epoch:016x}".startswith(wanted) or epoch == int(wanted, 16)


def check_log_offsets(entries: Iterable[ManifestEntry], options: SourceOptions) -> None:
    """Raise OptionError where a box or epoch of startingLogOffsets is not there: a slip would read all or nothing."""
    there: dict[str, set[int]] = {box: set() for box in options.log_offsets}
    for entry in entries:
        if entry.box in there:
            there[entry.box].add(entry.epoch)
    for box, (wanted, _) in options.log_offsets.items():
        if not there[box]:
            raise OptionError(f"option startingLogOffsets: this landing zone has no data of box {box}")
        if wanted is not None and sum(is_epoch(epoch, wanted) for epoch in there[box]) != 1:
            epochs = ", ".join(f"{epoch:016x}" for epoch in sorted(there[box]))
            raise OptionError(
                f"option startingLogOffsets: {wanted} is not one epoch of {box}; in this landing zone it has {epochs}"
            )


def _within(entry: ManifestEntry, pruned: Mapping[str, tuple[int, int]]) -> bool:
    """Whether a row of the entry can have the values that filters left; every row has its entry's seq and time."""
    spans = {
        "log_offset": (entry.start, entry.end - 1),
        "seq": (entry.seq, entry.seq),
        "landed_time": (entry.landed_ms, entry.landed_ms),
    }
    return all(low <= spans[column][1] and spans[column][0] <= high for column, (low, high) in pruned.items())


def refs_of(entries: Iterable[ManifestEntry], shard: int, options: SourceOptions) -> Iterator[PieceRef]:
    """Yield what tasks need of the wanted entries of one shard."""
    for entry in entries:
        if wants(entry, options):
            yield _trimmed(ref_of(entry, shard), options)


def _trimmed(ref: PieceRef, options: SourceOptions) -> PieceRef:
    """Begin at the asked log offset where it is inside the range."""
    _, offset = options.log_offsets.get(ref.origin.box, (None, 0))
    if offset <= ref.origin.from_offset:
        return ref
    of = ref.origin
    origin = type(of)(of.box, of.epoch, of.shard, of.seq, offset, of.to_offset, of.landed_ms, of.clock_ok, of.skip)
    return PieceRef(origin, ref.pack, ref.offset, ref.stored_bytes, ref.raw_bytes)


def group(refs: Iterable[PieceRef], partition_bytes: int) -> list[list[PieceRef]]:
    """Group pieces, in order, into tasks of about partition_bytes raw bytes; at least one piece each."""
    tasks: list[list[PieceRef]] = []
    size = partition_bytes
    for ref in refs:
        if size + ref.raw_bytes > partition_bytes:
            tasks.append([])
            size = 0
        tasks[-1].append(ref)
        size += ref.raw_bytes
    return tasks


@dataclass(frozen=True, slots=True)
class BatchLimit:
    """What one micro-batch may hold; None is no limit."""

    raw_bytes: int | None = None
    rows: int | None = None
    pieces: int | None = None

    def of(self, entry: ManifestEntry) -> int:
        """How much of the limit an entry takes."""
        if self.raw_bytes is not None:
            return entry.raw_bytes
        return entry.records if self.rows is not None else 1

    @property
    def most(self) -> int | None:
        return next((limit for limit in (self.raw_bytes, self.rows, self.pieces) if limit is not None), None)


def admit(waiting: Mapping[int, Sequence[ManifestEntry]], start: Mapping[int, int], limit: BatchLimit) -> Seqs:
    """Return where a micro-batch ends: shards share the limit by what waits in them, at least one piece in all."""
    ends = dict(start)
    most = limit.most
    costs = {shard: [limit.of(entry) for entry in entries] for shard, entries in waiting.items() if entries}
    total = sum(sum(cost) for cost in costs.values())
    if most is None or total <= most:
        return ends | {shard: start[shard] + len(cost) for shard, cost in costs.items()}
    for shard, cost in costs.items():
        share, used, taken = most * sum(cost) / max(1, total), 0, 0
        while taken < len(cost) and used + cost[taken] <= share:
            used += cost[taken]
            taken += 1
        ends[shard] = start[shard] + taken
    if ends == dict(start) and costs:
        fullest = max(costs, key=lambda shard: sum(costs[shard]))
        ends[fullest] += 1
    return ends
