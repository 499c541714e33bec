"""Requests to an object store by kind: what a query, a stream, bronze and the gateway ask a bucket of moto for.

    python tests/bench/bench_requests.py [--commits 600 2136] [--triggers 30 130] [--boxes 40]

A zone of one shard, four pieces a commit, 150 commits a day, made by the gateway's own writer; read by the code that
runs in Spark's driver and tasks, without a JVM. Requests are those in the server's log. A count that differs between
the columns grows with the zone; the sizes end at the same place between two checkpoints of Delta's log, two states and
two rolled-up files.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.uplink_spark.object_server import KEY, REGION, SECRET, make_bucket, running_s3, url_of
from uplink_spark.centre.zone_files.coverage import ShardCover
from uplink_spark.centre.zone_files.landing import NewPiece
from uplink_spark.centre.zone_files.object_store import ObjectStore
from uplink_spark.centre.zone_files.objects import ObjectShardWriter, open_object_zone
from uplink_spark.jobs.bronze import Bronze, BronzeConfig
from uplink_spark.jobs.table.bucket_files import read_paths
from uplink_spark.jobs.table.delta import Table
from uplink_spark.spark.rows import SCHEMA
from uplink_spark.spark.source_options import parse_options
from uplink_spark.spark.source_tasks import ManifestRows, MessageRows, Work
from uplink_spark.spark_source import BatchReader, StreamReader
from uplink_spark.testing import MadeRecord, log_piece
from uplink_spark.wire.batch import PieceSource
from uplink_spark.zone.manifest import DAY_MS

T0 = 1_700_000_000_000
PIECES, RECORDS = 4, 20
STEP_MS = DAY_MS // 150
LINE = re.compile(r'"(?:\x1b\[[0-9;]*m)*([A-Z]+) (\S+) HTTP/1\.1')  # other answers than 200 are coloured
KINDS = ("GET", "HEAD", "LIST", "PUT", "POST", "DELETE")


class Requests:
    """Counts what the server's log tells."""

    def __init__(self, log: Path) -> None:
        self._log, self._at = log, 0

    def new(self) -> Counter[str]:
        """Return the requests by kind since the last call."""
        with self._log.open("rb") as file:
            file.seek(self._at)
            text = file.read()
            self._at += len(text)
        return Counter(kind_of(*found.groups()) for found in LINE.finditer(text.decode()))


def kind_of(method: str, target: str) -> str:
    _, _, query = target.partition("?")
    if method == "GET" and ("list-type=" in query or "prefix=" in query):
        return "LIST"
    return method


@dataclass
class Zone:
    """A landing zone in a bucket and the gateway's writer of its only shard."""

    url: str
    boxes: int
    writer: ObjectShardWriter
    cover: ShardCover
    ends: Counter[str]
    landed_ms: int = T0
    commits: int = 0

    def commit(self) -> None:
        """Land a piece of each of the next four boxes."""
        pieces = []
        for number in range(PIECES):
            box = f"box-{(self.commits * PIECES + number) % self.boxes:05d}"
            records = [
                MadeRecord("Vitals", 0, n, b"{}" * 20, "", self.landed_ms, self.landed_ms) for n in range(RECORDS)
            ]
            source = PieceSource(box=box, epoch=5, run=7, run_start=0, cut_ms=self.landed_ms, clock_ok=1)
            header, container = log_piece(records, self.ends[box], source=source)
            self.ends[box] = header.end
            pieces.append(NewPiece(header, container, ((header.start, header.end),)))
        self.landed_ms += STEP_MS
        self.commits += 1
        for entry in self.writer.commit(pieces, self.landed_ms):
            self.cover.note(entry)


def open_zone(url: str, boxes: int) -> Zone:
    store = ObjectStore(url)
    open_object_zone(store, 1)
    writer, cover = ObjectShardWriter(store, 0), ShardCover()
    writer.open(cover)
    return Zone(url, boxes, writer, cover, Counter())


def plan(zone: Zone, **options: str) -> None:
    parsed = parse_options({"path": zone.url, **options})
    assert BatchReader(parsed, MessageRows(parsed)).partitions()


def read_box_day(zone: Zone) -> None:
    """What a query of one box and its last day asks for: its plan and its pieces."""
    parsed = parse_options({"path": zone.url, "boxes": "box-00003", "startingTimestamp": str(zone.landed_ms - DAY_MS)})
    content = MessageRows(parsed)
    for work in BatchReader(parsed, content).partitions():
        assert isinstance(work, Work)
        assert sum(batch.num_rows for batch in content.batches(work))


class Follower:
    """A stream, and bronze behind it: the code of Spark's driver and, in bronze, of its tasks."""

    def __init__(self, zone: Zone, table: str) -> None:
        self.bronze = Bronze(BronzeConfig(zone.url, table, ""))
        parsed = parse_options({"path": zone.url, "maxBytesPerTrigger": "1g"})
        self.reader = StreamReader(parsed, ManifestRows(parsed))
        have = self.bronze.end()
        self.at: dict[str, Any] = {"0": have["0"]} if have else self.reader.initialOffset()

    def latest(self) -> dict[str, Any]:
        return self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())

    def trigger(self) -> None:
        """Offsets, the plan, the tasks, the commit, its note for the centre's retention, the lag."""
        end = self.latest()
        works = self.reader.partitions(self.at, end)
        self.bronze.write([item for work in works if isinstance(work, Work) for item in work.entries])
        self.bronze._note_lag()
        self.at = end


def box_day_of_table(table: str) -> None:
    """One box's last day out of bronze: the table is opened, the files of the day are read and filtered."""
    files = Table(table).snapshot().part("data")
    newest = max(file.day for file in files)
    paths = [file.path for file in files if file.day == newest]
    assert list(read_paths(table, paths, SCHEMA, [("box", "in", ["box-00003"])]))


def measured(url: str, table: str, requests: Requests, size: Size) -> dict[str, Counter[str]]:
    """Make a zone and a table of a size, and return what each step asked for."""
    found: dict[str, Counter[str]] = {}

    def note(name: str, step: Callable[[], object]) -> None:
        requests.new()
        step()
        found[name] = requests.new()

    zone = open_zone(url, size.boxes)
    behind = Follower(zone, table)
    for number in range(size.commits):
        zone.commit()
        if (number + 1) * size.triggers // size.commits > number * size.triggers // size.commits:
            behind.trigger()
    note("gateway, a commit of four pieces", zone.commit)
    note("gateway, start", lambda: open_zone(url, size.boxes))
    note("planning, whole zone", lambda: plan(zone))
    note("planning, one box", lambda: plan(zone, boxes="box-00003"))
    note("planning and reading one box's last day", lambda: read_box_day(zone))
    note("stream, latestOffset with a new commit", behind.latest)
    note("bronze, a trigger with one commit", behind.trigger)
    note("stream, latestOffset with nothing new", behind.latest)
    zone.commit()
    note("bronze, start and a trigger (--once)", lambda: Follower(zone, table).trigger())
    note("one box's last day out of bronze", lambda: box_day_of_table(table))
    return found


class Size(NamedTuple):
    """How large a zone and a table are."""

    boxes: int
    commits: int
    triggers: int


def table_of_counts(sizes: Sequence[Size], columns: Sequence[dict[str, Counter[str]]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown: of each step its requests, by size of the zone."""
    heads = [f"{size.commits:,} commits, {size.triggers} triggers" for size in sizes]
    yield f"| requests | {' | '.join(heads)} |"
    yield "| --- " * (1 + len(sizes)) + "|"
    for name in columns[0]:
        cells = [
            ", ".join(f"{column[name][kind]} {kind}" for kind in KINDS if column[name][kind]) for column in columns
        ]
        yield f"| {name} | {' | '.join(cells)} |"


def counts(sizes: Sequence[Size], folder: Path) -> list[dict[str, Counter[str]]]:
    """Return the requests of each step for each size, at a server of its own."""
    os.environ |= {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    with running_s3(folder) as address:
        make_bucket(address, "lake")
        requests = Requests(folder / "store.log")
        return [
            measured(url_of(address, "lake", f"zone-{n}"), url_of(address, "lake", f"bronze-{n}"), requests, size)
            for n, size in enumerate(sizes)
        ]


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--commits", type=int, nargs="+", default=[600, 2136])
    asked.add_argument("--triggers", type=int, nargs="+", default=[30, 130])
    asked.add_argument("--boxes", type=int, default=40)
    given = asked.parse_args()
    sizes = [Size(given.boxes, *pair) for pair in zip(given.commits, given.triggers, strict=True)]
    with tempfile.TemporaryDirectory(prefix="bench-requests-") as folder:
        for line in table_of_counts(sizes, counts(sizes, Path(folder))):
            print(line)


if __name__ == "__main__":
    main()
