"""What may leave a landing zone: packs every consumer has read and that are old enough, then their manifest files.

Before the first file goes, `retention/<shard>.json` names the lowest seq that stays: for readers that is where the
shard begins, and a pack that is missing above it is damage. Whatever is below it goes with its day: packs of a commit
that failed and whose seq was given to another one, too.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from storage_driver.files.disk import SPACE_ERRORS
from uplink_spark.centre.fleet import consumers, positions
from uplink_spark.centre.zone_files.keeping import Keeping
from uplink_spark.errors import LandingError, ManifestDamaged
from uplink_spark.zone.manifest import (
    DAY_MS,
    ManifestEntry,
    first_seq_of,
    kept_of,
    kept_path,
    manifest_folder,
    manifest_path,
    read_head,
    read_items,
    state_seq_of,
)
from uplink_spark.zone.rollup import range_of, rolled_folder, rolled_path

log = logging.getLogger("uplink_spark.gateway")
SILENT_DAYS = 30


@dataclass(frozen=True, slots=True)
class Removal:
    """What a pass would remove of one shard."""

    shard: int
    packs: tuple[str, ...]
    files: tuple[int, ...]  # first seqs of manifest files
    states: tuple[int, ...]
    rolled: tuple[tuple[int, int], ...]  # first and end seq of rolled-up entries
    spare: tuple[tuple[int, int], ...]  # the same of packs that go while their manifest stays
    kept: int  # the lowest seq whose pack stays
    held_by: str  # the consumer that is furthest behind, empty if none pins anything
    silent: tuple[str, ...]  # consumers not heard of for 30 days: they pin nothing

    @property
    def empty(self) -> bool:
        return not self.packs and not self.files and not self.states and not self.rolled


def floor_of(known: dict[str, dict[str, object]], shard: int, now_ms: int) -> tuple[int, str, tuple[str, ...]]:
    """Return the lowest seq a live consumer still wants, who that is, and who is silent."""
    floor, holder, silent = 1 << 63, "", []
    for name, consumer in known.items():
        updated = consumer.get("updated_ms", 0)
        if now_ms - int(str(updated)) > SILENT_DAYS * DAY_MS:
            silent.append(name)
            continue
        seq = positions(consumer).get(shard, 0)
        if seq < floor:
            floor, holder = seq, name
    return floor, holder, tuple(silent)


def plan_removal(files: Keeping, shard: int, keep_days: int, now_ms: int) -> Removal:
    """Return what may go now. A pack goes when all its entries are read and older than keep_days. Blocks.

    Seqs and landed times only ever rise in a shard, so what may go is its beginning.
    """
    floor, holder, silent = floor_of(consumers(files), shard, now_ms)
    oldest_ms = now_ms - keep_days * DAY_MS
    names = files.names(manifest_folder(shard))
    firsts = sorted(first for first in map(first_seq_of, names) if first is not None)
    states = sorted(seq for seq in map(state_seq_of, names) if seq is not None)
    free, kept = _free_below(files, shard, firsts, lambda entry: entry.seq < floor and entry.landed_ms < oldest_ms)
    kept = max(kept, kept_of(files.read(kept_path(shard), 0)))
    rolled = [pair for pair in map(range_of, files.names(rolled_folder(shard))) if pair]
    base = max((seq for seq in states if firsts and seq <= min(free, firsts[-1])), default=0)  # where a start begins
    return Removal(
        shard,
        tuple(_packs_below(files, shard, kept, oldest_ms)),
        tuple(first for first in firsts if first < base),
        tuple(seq for seq in states if seq < base),
        tuple(pair for pair in rolled if pair[1] <= base),
        tuple(pair for pair in rolled if base < pair[1] <= kept),
        kept,
        holder,
        silent,
    )


def _free_below(
    files: Keeping, shard: int, firsts: Sequence[int], may_go: Callable[[ManifestEntry], bool]
) -> tuple[int, int]:
    """Return the first seq whose entry may not go, and the first seq of the pack it is in."""
    end = begins = firsts[0] if firsts else 0
    pack = ""
    for first in firsts:
        for entry in _entries(files, shard, first):
            if entry.pack != pack:
                pack, begins = entry.pack, entry.seq
            if not may_go(entry):
                return entry.seq, begins
            end = entry.seq + 1
    return end, end


def _entries(files: Keeping, shard: int, first: int) -> tuple[ManifestEntry, ...]:
    path = manifest_path(shard, first)
    data = files.read(path, 0) or b""
    try:
        return read_items(data[read_head(data, shard, first) :], first).entries
    except ManifestDamaged as error:
        raise LandingError(f"{path}: {error}") from error


def _packs_below(files: Keeping, shard: int, kept: int, oldest_ms: int) -> Iterator[str]:
    """Yield the packs of days gone by that begin below a seq: each has been read or belongs to no entry."""
    last_day = datetime.fromtimestamp(max(0, oldest_ms) / 1000, UTC).date().isoformat()
    folder = f"pack/{shard:04x}"
    for day in sorted(files.names(folder)):
        if day > last_day:
            return
        for name in sorted(files.names(f"{folder}/{day}")):
            seq = name[:20]
            if name.endswith(".pack") and seq.isdigit() and int(seq) < kept:
                yield f"{folder}/{day}/{name}"


def remove(files: Keeping, removal: Removal) -> None:
    """Carry a removal out: the mark, packs, then manifest files and states, oldest first. Raises OSError."""
    mark = json.dumps({"v": 1, "shard": removal.shard, "seq": removal.kept}).encode()
    try:
        files.replace(kept_path(removal.shard), mark)
    except OSError as error:
        if error.errno not in SPACE_ERRORS:
            raise
        for first, end in removal.rolled + removal.spare:  # they are derived: readers take the manifest instead
            files.delete(rolled_path(removal.shard, first, end))
        files.replace(kept_path(removal.shard), mark)
    for pack in removal.packs:
        files.delete(pack)
    for first, end in removal.rolled:
        files.delete(rolled_path(removal.shard, first, end))
    for first in removal.files:
        files.delete(manifest_path(removal.shard, first))
    for seq in removal.states:
        files.delete(manifest_path(removal.shard, seq, "state"))


def clean(files: Keeping, shards: Iterable[int], keep_days: int, now_ms: Callable[[], int]) -> list[Removal]:
    """One pass over shards; returns what was removed. Blocks."""
    done = [plan_removal(files, shard, keep_days, now_ms()) for shard in shards]
    for removal in done:
        for name in removal.silent:
            log.warning("consumer=%s has been silent for 30 days and no longer blocks deletion", name)
        if not removal.empty:
            remove(files, removal)
            log.info("retention shard=%04x packs=%d files=%d", removal.shard, len(removal.packs), len(removal.files))
    return done
