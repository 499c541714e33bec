"""Which landed ranges a query reads: pruning, admission of a micro-batch, grouping into tasks. Plain values only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from uplink_spark.spark.packs import PieceRef
from uplink_spark.spark.pieces import Pieces, pieces_of
from uplink_spark.spark.source_options import LATEST, OptionError, SourceOptions, SourcePosition
from uplink_spark.zone.entry_table import EntryTable, Flags, Ints, Words, joined, table_of

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


def wanted(table: EntryTable, options: SourceOptions) -> Flags:
    """Tell of each entry whether it can have rows for this query; decided without opening its piece."""
    view, number, word = options.view, table.numbers, table.words
    found = word["kind"].where(lambda kind: kind == "log" or (kind == "pick" and not view.raw))
    found &= number["records"] > 0
    if options.boxes is not None:
        found &= word["box"].where(options.boxes.__contains__)
    if view.store_since_ms is not None:
        found &= number["stored_ms_max"] >= view.store_since_ms
    if view.store_until_ms is not None:
        found &= number["stored_ms_min"] < view.store_until_ms
    found &= _after_log_offsets(table, options) & _within(table, options.pruned)
    if view.topics is not None or view.topic_pattern is not None or word["skip"].values != [None]:
        found &= _topics_wanted(table, options)
    return found


def _topics_wanted(table: EntryTable, options: SourceOptions) -> Flags:
    """Ask once for each pair of topics and skipped topics; an entry that lists no topics may have any."""
    view = options.view
    pattern = re.compile(view.topic_pattern) if view.topic_pattern else None

    def accepts(skip: tuple[str, ...], topics: tuple[str, ...] | None) -> bool:
        return topics is None or any(
            topic not in skip
            and (view.topics is None or topic in view.topics)
            and (pattern is None or pattern.search(topic) is not None)
            for topic in topics
        )

    topics, skips = table.words["topics"], table.words["skip"]
    found = np.zeros(len(table), np.bool_)
    for code, skip in enumerate(skips.values):
        left_out = () if view.raw else tuple(skip or ())
        of_skip = skips.codes == code
        found |= of_skip & topics.where(partial(accepts, left_out))
    return found


def _after_log_offsets(table: EntryTable, options: SourceOptions) -> Flags:
    found = np.ones(len(table), np.bool_)
    for box, (epoch, offset) in options.log_offsets.items():
        of_box = table.words["box"].where(box.__eq__)
        after = table.numbers["end"] > offset
        if epoch is not None:
            after &= Words(*_numbered(table.numbers["epoch"])).where(partial(_same_epoch, epoch))
        found &= ~of_box | after
    return found


def _same_epoch(wanted: str, epoch: int) -> bool:
    return is_epoch(epoch, wanted)


def _numbered(column: Ints) -> tuple[npt.NDArray[np.int32], list[Any]]:
    values, codes = np.unique(column, return_inverse=True)
    return codes.astype(np.int32), values.tolist()


def is_epoch(epoch: int, wanted: str) -> bool:
    """Whether the hexadecimal digits are those of the epoch, or the first of them."""
    return f"{epoch:016x}".startswith(wanted) or epoch == int(wanted, 16)


def check_log_offsets(tables: Iterable[EntryTable], options: SourceOptions) -> None:
    """Raise OptionError where a box or epoch of startingLogOffsets is not there: a slip would read all or nothing."""
    there: dict[str, set[int]] = {box: set() for box in options.log_offsets}
    for table in tables:
        for box, epochs in there.items():
            of_box = table.words["box"].where(box.__eq__)
            epochs.update(np.unique(table.numbers["epoch"][of_box]).tolist())
    for box, (wanted, _) in options.log_offsets.items():
        if not there[box]:
            raise OptionError(f"option startingLogOffsets: this landing zone has no data of box {box}")
        if wanted is not None and sum(is_epoch(epoch, wanted) for epoch in there[box]) != 1:
            listed = ", ".join(f"{epoch:016x}" for epoch in sorted(there[box]))
            raise OptionError(
                f"option startingLogOffsets: {wanted} is not one epoch of {box}; in this landing zone it has {listed}"
            )


def _within(table: EntryTable, pruned: Mapping[str, tuple[int, int]]) -> Flags:
    """Whether a row of the entry can have the values that filters left; every row has its entry's seq and time."""
    number = table.numbers
    spans = {
        "log_offset": (number["start"], number["end"] - 1),
        "seq": (table.seq, table.seq),
        "landed_time": (number["landed_ms"], number["landed_ms"]),
    }
    found = np.ones(len(table), np.bool_)
    for column, (low, high) in pruned.items():
        found &= (low <= spans[column][1]) & (spans[column][0] <= high)
    return found


def pieces_wanted(table: EntryTable, shard: int, options: SourceOptions) -> Pieces:
    """Return what tasks need of the wanted entries of one shard, from the log offset asked for."""
    found = pieces_of(shard, table, np.flatnonzero(wanted(table, options)))
    start = found.table.numbers["start"]
    for box, (_, offset) in options.log_offsets.items():
        of_box = found.table.words["box"].where(box.__eq__)
        start = np.where(of_box, np.maximum(start, offset), start)
    numbers = {**found.table.numbers, "start": start}
    return Pieces(shard, EntryTable(found.table.seq, numbers, found.table.words))


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

    def of(self, table: EntryTable) -> Ints:
        """How much of the limit each entry takes."""
        if self.raw_bytes is not None:
            return table.numbers["raw_bytes"]
        return table.numbers["records"] if self.rows is not None else np.ones(len(table), np.int64)

    @property
    def most(self) -> int | None:
        return next((limit for limit in (self.raw_bytes, self.rows, self.pieces) if limit is not None), None)


def admit(waiting: Mapping[int, Ints], start: Mapping[int, int], limit: BatchLimit) -> Seqs:
    """Return where a micro-batch ends: shards share the limit by what waits in them, at least one piece in all.

    waiting: what each entry of a shard takes of the limit.
    """
    ends = dict(start)
    most = limit.most
    costs = {shard: cost for shard, cost in waiting.items() if len(cost)}
    total = sum(int(cost.sum()) for cost in costs.values())
    if most is None or total <= most:
        return ends | {shard: start[shard] + len(cost) for shard, cost in costs.items()}
    for shard, cost in costs.items():
        share = most * int(cost.sum()) // max(1, total)
        ends[shard] = start[shard] + int(np.searchsorted(np.cumsum(cost), share, "right"))
    if ends == dict(start) and costs:
        fullest = max(costs, key=lambda shard: int(costs[shard].sum()))
        ends[fullest] += 1
    return ends


def until_full(tables: Iterator[EntryTable], limit: BatchLimit, ranges: int) -> EntryTable:
    """Take entries until they alone would fill the limit: a backlog of weeks is not held in memory.

    ranges: how many at most, where the limit is one of bytes or rows.
    """
    taken: list[EntryTable] = []
    used, count, most = 0, 0, limit.most
    left = ranges if most is not None and limit.pieces is None else None
    for table in tables:
        part = table if left is None else table.part(int(table.seq[0]), int(table.seq[0]) + left - count)
        sums = used + np.cumsum(limit.of(part))
        over = len(part) if most is None else int(np.searchsorted(sums, most, "right")) + 1
        part = part.part(int(part.seq[0]), int(part.seq[0]) + over)
        taken.append(part)
        used, count = int(sums[len(part) - 1]), count + len(part)
        if (most is not None and used > most) or (left is not None and count >= left):
            break
    return joined(taken) if taken else table_of(0, ())
