"""The status job: what boxes say of themselves, from the landing zone into a Delta table that goes on.

    python -m uplink_spark.jobs.status --landing DIR --table DIR [--once]

It needs no Spark: the driver reads the lines and writes the files. How far each file of the zone is read is in the
commit of its rows, so a kill, a second job or an old copy of the table leave each line in the table once.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as pa_json

from uplink_spark.bounds import amount
from uplink_spark.jobs.bronze import stop_at
from uplink_spark.jobs.table.commits import Conflict, NewFile, TableError
from uplink_spark.jobs.table.delta import Table
from uplink_spark.jobs.table.parquet import day_of, write_file
from uplink_spark.jobs.waiting import run_job, wait_for_zone
from uplink_spark.spark.fields import TIMESTAMP
from uplink_spark.zone.files import Files
from uplink_spark.zone.reader import ZoneReader, status_paths

INPUT = "status"
BATCH_BYTES = 32 << 20  # lines in one commit
LATE = timedelta(hours=2)  # a file's name is remembered for so long: an object may be written later than it is named
LINES = pa.schema(
    [
        ("box", pa.string()),
        ("epoch", pa.int64()),
        ("received_ms", pa.int64()),
        ("durable", pa.int64()),
        ("unshipped", pa.int64()),
        ("oldest_ms", pa.int64()),
        ("disk_free", pa.int64()),
        ("inflow", pa.int64()),
        ("gaps", pa.int64()),
        ("verdict", pa.string()),
        ("software", pa.string()),
        ("now_ms", pa.int64()),
        ("clock_ok", pa.bool_()),
        ("state", pa.string()),
        ("conditions", pa.list_(pa.field("element", pa.string()))),
    ]
)
BOX_STATUS = LINES.append(pa.field("received", TIMESTAMP))


@dataclass(slots=True)
class LinesRead:
    """How far the files of a zone are read: below `before` all of them, of the others so many bytes."""

    before: str = ""  # name of a file
    read: dict[str, int] = field(default_factory=dict)  # <shard>/<name>, in a bucket <shard>/<day>/<name>

    @classmethod
    def of(cls, origin: Mapping[str, str]) -> LinesRead:
        found = json.loads(origin.get(INPUT, "{}"))
        return cls(found.get("before", ""), dict(found.get("read", {})))

    def text(self) -> str:
        return json.dumps({"before": self.before, "read": self.read}, separators=(",", ":"))

    def forget(self, until_ms: int, unread: str | None) -> None:
        """Remember the names of the last hours, or from the first unread one on; older ones are read, or late."""
        old_ms = max(0, until_ms - LATE // timedelta(milliseconds=1))
        old = f"{day_of(old_ms)}-{old_ms:014d}"
        self.before = max(self.before, old if unread is None else min(unread, old))
        self.read = {path: size for path, size in self.read.items() if _name(path) >= self.before}


def parse(data: bytes) -> tuple[pa.Table, int]:
    """Return the rows of whole lines, and how many lines are none: a gateway may have died in the middle of one."""
    try:
        return _parsed(data), 0
    except pa.ArrowInvalid:
        lines = data.splitlines(keepends=True)
        good = [line for line in lines if _is_status(line)]
        return _parsed(b"".join(good)), len(lines) - len(good)


def _parsed(data: bytes) -> pa.Table:
    if not data:
        return LINES.empty_table()
    options = pa_json.ParseOptions(explicit_schema=LINES, unexpected_field_behavior="ignore")
    return pa_json.read_json(io.BytesIO(data), parse_options=options).select(LINES.names)


def _is_status(line: bytes) -> bool:
    try:
        return bool(_parsed(line).num_rows == 1)
    except pa.ArrowInvalid:
        return False


class StatusJob:
    """Brings the lines of a landing zone into a table."""

    def __init__(self, zone: ZoneReader, root: str) -> None:
        self._files: Files = zone.files
        self._zone, self._shards = zone.zone.landing_id.hex(), zone.zone.shards
        self.table = Table(root)
        self.rows = self.damaged = 0

    def take_in(self, now_ms: int) -> None:
        """Commit all whole lines that the table lacks. Raises TableError, OSError."""
        while self._commit(now_ms):
            pass

    def _commit(self, now_ms: int) -> bool:
        """Commit some lines; return whether there were any."""
        have = self.table.declare({"data": BOX_STATUS}, [INPUT])
        if have.origin.get("zone", self._zone) != self._zone:
            raise TableError(
                f"table {self.table.root} has rows of landing zone {have.origin['zone'][:8]}, {self._files.root} is "
                f"{self._zone[:8]}: is the right file system mounted there? For another zone start a new table"
            )
        reach = LinesRead.of(have.origin)
        found, unread = self._fresh(reach)
        lines, damaged = parse(found)
        if not lines.num_rows and not damaged:
            return False
        newest_ms = pc.max(lines["received_ms"]).as_py() or 0
        reach.forget(min(now_ms, newest_ms), unread)  # no clock that runs ahead lets a file go by
        new = list(_write(self.table.root, lines))
        stop_at("S2")
        try:
            done = {INPUT: have.end.get(INPUT, 0) + 1}
            self.table.append(have, new, done, {"zone": self._zone, INPUT: reach.text()})
        except Conflict:
            return True  # another job was first: look again what is lacking
        self.rows, self.damaged = self.rows + lines.num_rows, self.damaged + damaged
        return True

    def _fresh(self, reach: LinesRead) -> tuple[bytes, str | None]:
        """Return whole lines that are not read yet, about BATCH_BYTES at most, noted in `reach`; and the name of the
        first file that is left for the next commit."""
        found, left = list[bytes](), BATCH_BYTES
        for path in self._paths(reach):
            name, at = _name(path), reach.read.get(path, 0)
            if left <= 0:
                return b"".join(found), name
            data = self._read(f"status/{path}", at, left)
            lines = data[: data.rfind(b"\n") + 1]
            if lines:
                reach.read[path] = at + len(lines)
                found.append(lines)
            if len(data) == left:  # it may have more
                return b"".join(found), name
            left -= len(data)
        return b"".join(found), None

    def _read(self, path: str, at: int, most: int) -> bytes:
        """Return bytes of a file; of one that never grows all, which are those of a minute."""
        if self._files.final:
            return self._files.read(path, at) or b""
        try:
            return self._files.read_range(path, at, most)
        except FileNotFoundError:  # the gateway keeps 30 days
            return b""

    def _paths(self, reach: LinesRead) -> Iterator[str]:
        """Yield the paths of files that may have more, oldest first."""
        found: list[tuple[str, str]] = []
        for shard in range(self._shards):
            paths = (f"{shard:04x}/{path}" for path in status_paths(self._files, shard, since=reach.before))
            found += [(_name(path), path) for path in paths if not (self._files.final and path in reach.read)]
        for _, path in sorted(found):
            yield path


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _write(root: str, lines: pa.Table) -> Iterator[NewFile]:
    """Write one file for each day on which lines were received."""
    received = lines["received_ms"].fill_null(0)
    lines = lines.append_column("received", pc.cast(received, pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP))
    days = pc.divide(received, 86_400_000)
    for day in sorted(pc.unique(days).to_pylist()):
        rows = lines.filter(pc.equal(days, day)).sort_by([("box", "ascending"), ("received_ms", "ascending")])
        yield write_file(root, day_of(day * 86_400_000), BOX_STATUS, rows.to_batches(), part="data")


def main(arguments: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser("python -m uplink_spark.jobs.status", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--landing", required=True, help="folder or URL of the landing zone")
    made.add_argument("--table", required=True, help="folder or URL of the table box_status")
    made.add_argument("--once", action="store_true", help="read what is there, then exit")
    made.add_argument("--every", type=amount(), default=300, help="interval without --once in seconds (300)")
    made.add_argument("--wait", type=amount(zero=True), default=60, help="seconds to wait for the landing zone (60)")
    given = made.parse_args(arguments)

    def job() -> None:
        zone = wait_for_zone(given.landing, given.wait)
        Table(given.table).prepare()
        status = StatusJob(zone, given.table)
        while True:
            status.take_in(time.time_ns() // 1_000_000)
            print(f"status table={given.table} rows={status.rows} damaged_lines={status.damaged}", flush=True)
            if given.once:
                return
            time.sleep(given.every)

    return run_job("status", job)


if __name__ == "__main__":
    sys.exit(main())
