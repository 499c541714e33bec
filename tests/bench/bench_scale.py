"""A landing zone of many boxes: planning, latestOffset, start of the gateway; time, processor time, memory.

    python tests/bench/bench_scale.py [--boxes 10000] [--pieces 100] [--shards 1] [--zone DIR]

The manifest is real: entries, files of 65,536, rolled-up columns, the state of each file. Packs hold nothing: planning
opens none. Boxes send pieces of 0.2 to 0.5 MB; seven days. Each figure is of a process of its own. --zone keeps the
zone, or takes one made before.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from uplink_spark.centre.zone_files.coverage import ShardCover
from uplink_spark.centre.zone_files.landing import _Folder, open_zone
from uplink_spark.config import GatewayConfig
from uplink_spark.zone.manifest import (
    DAY_MS,
    FILE_ENTRIES,
    ManifestEntry,
    encode_items,
    encode_mark,
    file_head,
    manifest_path,
    pack_path,
    shard_of,
)
from uplink_spark.zone.rollup import RollUp

T0 = 1_700_000_000_000


def entries_of(boxes: list[str], pieces: int, shard: int) -> Iterator[ManifestEntry]:
    """Yield what the boxes of a shard send in seven days, in turns."""
    ends = dict.fromkeys(boxes, 0)
    seq, step = 0, 7 * DAY_MS // max(1, pieces * len(boxes))
    for _ in range(pieces):
        for number, box in enumerate(boxes):
            size = 200_000 + number * 7919 % 300_000
            start, landed = ends[box], T0 + seq * step
            ends[box] += size
            topics = {"Vitals": (500, 180_000), f"Alarm{number % 10}": (100, 20_000)}
            pack = pack_path(shard, landed, seq - seq % 16)
            yield ManifestEntry(
                seq, "log", box, (1 << 60) + number, 7, pack, seq % 16 * 70_000, 70_000, start, start + size,
                600 + number % 100, size, landed - 9000, landed - 1000, landed, landed - 500, 1, topics,
            )  # fmt: skip
            seq += 1


def make(root: Path, boxes: int, pieces: int, shards: int) -> None:
    """Write the manifest of a zone as its gateway would."""
    open_zone(root, shards)
    names = [f"box-{number:05d}" for number in range(boxes)]
    for shard in range(shards):
        own = [name for name in names if shard_of(name, shards) == shard]
        rollup, cover = RollUp(shard, _Folder(root)), ShardCover()
        rollup.begin(0, 0)
        waiting: list[ManifestEntry] = []
        for entry in entries_of(own, pieces, shard):
            waiting.append(entry)
            if len(waiting) == FILE_ENTRIES:
                _write(root, shard, waiting, rollup, cover)
                waiting = []
        _write(root, shard, waiting, rollup, cover)


def _write(root: Path, shard: int, entries: list[ManifestEntry], rollup: RollUp, cover: ShardCover) -> None:
    first = entries[0].seq if entries else 0
    path = root / manifest_path(shard, first)
    path.parent.mkdir(parents=True, exist_ok=True)
    if first:
        path.with_suffix(".state").write_bytes(cover.encode(first))
    data = encode_items(entries)
    path.write_bytes(file_head(shard, first) + data + encode_mark(first + len(entries)))
    for at in range(0, len(entries), 256):
        rollup.note(entries[at : at + 256])
    for entry in entries:
        cover.note(entry)


def plan(zone: str, **options: str) -> str:
    from uplink_spark.spark.source_options import parse_options
    from uplink_spark.spark.source_tasks import MessageRows
    from uplink_spark.spark_source import BatchReader

    parsed = parse_options({"path": zone, **options})
    return f"{len(BatchReader(parsed, MessageRows(parsed)).partitions())} tasks"


def stream(zone: str) -> str:
    """The first latestOffset and partitions of a stream, then as many more as the clock allows in a second."""
    from uplink_spark.spark.source_options import parse_options
    from uplink_spark.spark.source_tasks import MessageRows
    from uplink_spark.spark_source import StreamReader

    parsed = parse_options({"path": zone, "maxBytesPerTrigger": "1g"})
    reader = StreamReader(parsed, MessageRows(parsed))
    at, begun, batches = reader.initialOffset(), time.process_time(), 0
    while batches < 20:
        end = reader.latestOffset(at, reader.getDefaultReadLimit())
        reader.partitions(at, end)
        at, batches = end, batches + 1
    return f"{(time.process_time() - begun) / batches * 1000:.0f} ms of processor time for each of {batches} batches"


def start(zone: str) -> str:
    """Open every shard as a gateway does at its start."""
    from uplink_spark.centre.gateway import open_landers

    with open_landers(GatewayConfig(zone, ("127.0.0.1", 0)), lambda: T0 + 8 * DAY_MS) as (landers, _):
        return f"{sum(len(lander.cover.boxes) for lander in landers):,} boxes"


WHAT: dict[str, tuple[Callable[..., str], dict[str, str]]] = {
    "planning, whole zone": (plan, {}),
    "planning, one box": (plan, {"boxes": "box-00017"}),
    "planning, last 15 minutes": (plan, {"startingTimestamp": str(T0 + 7 * DAY_MS - 900_000)}),
    "stream": (stream, {}),
    "start of the gateway": (start, {}),
}


def measured(zone: str, name: str) -> None:
    """In a process of its own: print what it took."""
    job, options = WHAT[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun, spent = time.perf_counter(), time.process_time()
    told = job(zone, **options)
    row: dict[str, Any] = {"s": time.perf_counter() - begun, "cpu": time.process_time() - spent, "told": told}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps(row | {"mb": peak / 1024, "before": before / 1024}))


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--boxes", type=int, default=10_000)
    asked.add_argument("--pieces", type=int, default=100)
    asked.add_argument("--shards", type=int, default=1)
    asked.add_argument("--zone", type=Path)
    asked.add_argument("--only", help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.only:
        measured(str(given.zone), given.only)
        return
    folder = Path(tempfile.mkdtemp(prefix="bench-scale-"))
    zone = given.zone or folder / "zone"
    try:
        if not zone.exists():
            make(zone, given.boxes, given.pieces, given.shards)
        for name in WHAT:
            command = [sys.executable, __file__, "--zone", str(zone), "--only", name]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            row = json.loads(done.stdout.splitlines()[-1])
            figures = f"{row['s']:7.2f} s {row['cpu']:7.2f} s of processor time {row['mb']:6.0f} MB resident at most"
            print(f"{name:28} {figures}  {row['told']}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
