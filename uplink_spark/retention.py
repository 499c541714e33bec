"""What may leave a landing zone: packs every consumer has read and that are old enough, then their manifest files.

Before the first file goes, `retention/<shard>.json` names the lowest seq that stays: for readers that is where the
shard begins, and a pack that is missing above it is damage.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from uplink_spark.centre import consumers, positions
from uplink_spark.landing import make_folders, write_synced
from uplink_spark.manifest import (
    DAY_MS,
    Entry,
    first_seq_of,
    kept_of,
    kept_path,
    manifest_folder,
    manifest_path,
    read_head,
    read_items,
)
from uplink_spark.zone import LocalFiles

log = logging.getLogger("uplink_spark.gateway")
SILENT_DAYS = 30


@dataclass(frozen=True, slots=True)
class Removal:
    """What a pass would remove of one shard."""

    shard: int
    packs: tuple[str, ...]
    files: tuple[int, ...]  # first seqs of manifest files
    kept: int  # the lowest seq whose pack stays
    held_by: str  # the consumer that is furthest behind, empty if none pins anything
    silent: tuple[str, ...]  # consumers not heard of for 30 days: they pin nothing

    @property
    def empty(self) -> bool:
        return not self.packs and not self.files


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


def plan_removal(root: Path, shard: int, keep_days: int, now_ms: int) -> Removal:
    """Return what may go now. A pack goes when all its entries are read and older than keep_days. Blocks."""
    floor, holder, silent = floor_of(consumers(root), shard, now_ms)
    oldest_ms = now_ms - keep_days * DAY_MS
    folder = root / manifest_folder(shard)
    firsts = sorted(f for f in map(first_seq_of, os.listdir(folder)) if f is not None) if folder.exists() else []
    packs: dict[str, bool] = {}
    begins: dict[str, int] = {}  # pack -> its first seq
    files: list[int] = []
    stopped, end = False, firsts[0] if firsts else 0
    for first, following in zip(firsts, [*firsts[1:], None], strict=True):
        data = (root / manifest_path(shard, first)).read_bytes()
        entries = read_items(data[read_head(data, shard, first) :], first).entries
        done = True
        for entry in entries:
            free = _free(entry, floor, oldest_ms)
            packs[entry.pack] = packs.get(entry.pack, True) and free
            begins.setdefault(entry.pack, entry.seq)
            done, end = done and free, entry.seq + 1
        kept_state = following is not None and (root / manifest_path(shard, following, "state")).exists()
        stopped = stopped or not done or not kept_state
        if not stopped:
            files.append(first)
    there = tuple(pack for pack, free in packs.items() if free and (root / pack).exists())
    kept = min((begins[pack] for pack, free in packs.items() if not free), default=end)
    kept = max(kept, kept_of(LocalFiles(str(root)).read(kept_path(shard), 0)))
    return Removal(shard, there, tuple(files), kept, holder, silent)


def _free(entry: Entry, floor: int, oldest_ms: int) -> bool:
    return entry.seq < floor and entry.landed_ms < oldest_ms


def remove(root: Path, removal: Removal) -> None:
    """Carry a removal out: the mark, packs, then manifest files with their states, oldest first. Raises OSError."""
    body = {"v": 1, "shard": removal.shard, "seq": removal.kept}
    make_folders(root, "retention")
    write_synced(root / kept_path(removal.shard), json.dumps(body).encode())
    for pack in removal.packs:
        (root / pack).unlink(missing_ok=True)
    for day in (root / f"pack/{removal.shard:04x}").glob("*"):
        if day.is_dir() and not any(day.iterdir()):
            try:
                day.rmdir()
            except OSError:  # a pack has just been written there
                continue
    for first in removal.files:
        (root / manifest_path(removal.shard, first)).unlink(missing_ok=True)
        (root / manifest_path(removal.shard, first, "state")).unlink(missing_ok=True)


def clean(root: Path, shards: int, keep_days: int, now_ms: Callable[[], int]) -> list[Removal]:
    """One pass over all shards; returns what was removed. Blocks."""
    done = [plan_removal(root, shard, keep_days, now_ms()) for shard in range(shards)]
    for removal in done:
        for name in removal.silent:
            log.warning("consumer=%s has been silent for 30 days and pins nothing any more", name)
        if not removal.empty:
            remove(root, removal)
            log.info("retention shard=%04x packs=%d files=%d", removal.shard, len(removal.packs), len(removal.files))
    return done
