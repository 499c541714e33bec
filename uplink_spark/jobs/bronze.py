"""The bronze job: writes every landed record once into a Delta table. Each commit names its manifest range.

    python -m uplink_spark.jobs.bronze --landing DIR --table DIR [--master M] [--once]

Only manifest rows pass through Spark; the tasks open the packs, decode with Arrow and write Parquet themselves. A kill
at any moment leaves files that no commit lists, and the next run begins where the newest commit ends.
"""

from __future__ import annotations

import argparse
import os
import pickle
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from uplink_spark.bounds import amount, interval, whole
from uplink_spark.jobs import rollup
from uplink_spark.jobs.gaps import GAPS_SCHEMA, gap_rows, lost_entry
from uplink_spark.jobs.metrics import JobMetrics
from uplink_spark.jobs.offset_range import finished
from uplink_spark.jobs.session import open_session
from uplink_spark.jobs.table.commits import Conflict, NewFile, Position, Snapshot, TableError
from uplink_spark.jobs.table.delta import Table
from uplink_spark.jobs.table.parquet import day_of, write_file
from uplink_spark.jobs.tables import RANGES_SCHEMA
from uplink_spark.jobs.waiting import run_job, wait_for_zone
from uplink_spark.spark.offset_fingerprint import name_of
from uplink_spark.spark.packs import PieceRef, read_batches
from uplink_spark.spark.rows import EVERYTHING, SCHEMA, RowSelection
from uplink_spark.spark.source_manifest import manifest_batch
from uplink_spark.spark.source_options import SourceOptions
from uplink_spark.spark.source_plan import group, pieces_wanted
from uplink_spark.spark.source_positions import now_ms, save_consumer
from uplink_spark.spark.source_tasks import settle_worker
from uplink_spark.spark_source import MAX_RANGES, register
from uplink_spark.zone.entry_table import table_of
from uplink_spark.zone.files import open_files
from uplink_spark.zone.manifest import ManifestEntry, decode_entry
from uplink_spark.zone.reader import ZoneReader

MIB = 1 << 20
PARTITIONS = "spark.sql.leafNodeDefaultParallelism"  # of a DataFrame made of local rows
PARTS = {"data": "bronze", "ranges": "ranges", "gaps": "gaps"}  # part of the table -> its name for users
Step = Callable[[str], None]
RunTasks = Callable[["BronzeConfig", Sequence[Sequence[PieceRef]]], "list[BronzeOutput]"]


@dataclass(frozen=True, slots=True)
class BronzeOutput:
    """What a task made of its pieces: a file, and (shard, seq) of those that could not be read."""

    file: NewFile
    lost: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class BronzeConfig:
    """Where from, where to, and how much at a time."""

    landing: str
    table: str
    checkpoint: str
    consumer: str = "bronze"
    partition_bytes: int = 64 * MIB
    trigger_bytes: int = 1024 * MIB
    fail_on_loss: bool = True
    system_topics: frozenset[str] = frozenset()
    metrics: str | None = None  # file of Prometheus text


def schemas_of_table() -> dict[str, pa.Schema]:
    """Return the columns of each part of the table."""
    return {"data": SCHEMA, "ranges": RANGES_SCHEMA, "gaps": GAPS_SCHEMA}


def stop_at(name: str) -> None:
    """Stop this process where a test asked for it (SIGKILL, as a power cut would)."""
    if os.environ.get("UPLINK_STOP_AT") == name:
        os.kill(os.getpid(), signal.SIGKILL)


def new_items(have: Position, items: Iterable[tuple[int, bytes]]) -> list[tuple[int, ManifestEntry, bytes]]:
    """Return the entries the table lacks, in order. Raises TableError where the batch would leave a hole."""
    found: list[tuple[int, ManifestEntry, bytes]] = []
    following: dict[int, int | None] = {}
    for shard, data in items:
        entry = decode_entry(data)
        wanted = following.setdefault(shard, have.get(str(shard)))
        if wanted is not None and entry.seq < wanted:
            continue
        if wanted is not None and entry.seq > wanted:
            raise TableError(
                f"shard {shard}: the table is at seq {wanted}, the batch begins at {entry.seq}: the table was "
                "set back, or the checkpoint is of another one; run again, after deleting the folder of --checkpoint"
            )
        following[shard] = entry.seq + 1
        found.append((shard, entry, data))
    return found


def tasks_of(items: Sequence[tuple[int, ManifestEntry, bytes]], partition_bytes: int) -> list[list[PieceRef]]:
    """Group the pieces into tasks; a task's pieces landed on one day, so it writes one file."""
    options = SourceOptions(path="", view=EVERYTHING)
    refs: list[PieceRef] = []
    for shard, of_shard in groupby(items, key=lambda item: item[0]):
        taken = list(of_shard)
        table = table_of(taken[0][1].seq, [data for _, _, data in taken])
        refs += pieces_wanted(table, shard, options).refs()
    refs.sort(key=lambda ref: (day_of(ref.origin.landed_ms), ref.pack, ref.offset))
    tasks: list[list[PieceRef]] = []
    for _, of_day in groupby(refs, key=lambda ref: day_of(ref.origin.landed_ms)):
        tasks += group(of_day, partition_bytes)
    return tasks


def write_task(config: BronzeConfig, refs: Sequence[PieceRef]) -> BronzeOutput:
    """Decode the pieces of one task into one file; runs in a Python worker."""
    view, lost = RowSelection(include=None, system_topics=config.system_topics), list[PieceRef]()
    batches = read_batches(open_files(config.landing), refs, view, fail_on_loss=config.fail_on_loss, lost=lost)
    file = write_file(config.table, day_of(refs[0].origin.landed_ms), SCHEMA, batches, part="data")
    return BronzeOutput(file, tuple((ref.origin.shard, ref.origin.seq) for ref in lost))


def on_spark(spark: SparkSession) -> RunTasks:
    """Return a runner that spreads the tasks of a batch over the executors, each in a partition of its own."""

    def run(config: BronzeConfig, tasks: Sequence[Sequence[PieceRef]]) -> list[BronzeOutput]:
        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            settle_worker()
            for batch in batches:
                found = [write_task(config, pickle.loads(task)) for task in batch.column(0).to_pylist()]
                done = [pickle.dumps((made.file, made.lost)) for made in found]  # no class of a program's __main__
                yield pa.RecordBatch.from_arrays([pa.array(done, pa.binary())], ["written"])

        before = spark.conf.get(PARTITIONS, None)
        spark.conf.set(PARTITIONS, str(len(tasks)))
        try:
            planned = spark.createDataFrame(pa.table({"task": pa.array(map(pickle.dumps, tasks), pa.binary())}))
            rows = planned.mapInArrow(write, "written binary").collect()
        finally:
            spark.conf.unset(PARTITIONS) if before is None else spark.conf.set(PARTITIONS, before)
        return [BronzeOutput(*pickle.loads(row["written"])) for row in rows]

    return run


def in_process(config: BronzeConfig, tasks: Sequence[Sequence[PieceRef]]) -> list[BronzeOutput]:
    """Run the tasks one after the other in this process, without Spark."""
    return [write_task(config, refs) for refs in tasks]


class Bronze:
    """Writes batches of manifest entries into the table."""

    def __init__(self, config: BronzeConfig, *, step: Step = stop_at) -> None:
        self.config, self._step = config, step
        self.table = Table(config.table)
        self.metrics = JobMetrics(config.consumer)
        self._zone = ZoneReader(config.landing)
        self._commits = rollup.MOST  # since small files were looked for: the first commit of a run looks

    def end(self) -> Position:
        """Return where the table ends. Raises TableError where the landing zone is not the one it was made from."""
        have = self.table.snapshot()
        self._check_origin(have)
        return have.end

    def on_batch(self, batch: DataFrame, _number: int) -> None:
        begun = time.monotonic()
        rows = batch.select("shard", "seq", "entry").collect()
        rows.sort(key=lambda row: (row["shard"], row["seq"]))  # Spark's own sort is a sample, a shuffle and two stages
        for at in range(0, len(rows), MAX_RANGES):  # before PySpark 4.2 a batch has no limit
            items = [(row["shard"], bytes(row["entry"])) for row in rows[at : at + MAX_RANGES]]
            self.write(items, on_spark(batch.sparkSession))
        self.metrics.note_batch(time.monotonic() - begun)
        self._note_lag()
        self.metrics.write(self.config.metrics)

    def _note_lag(self) -> None:
        """How far the table is behind what has landed: ranges, and the age of the oldest of them."""
        have = {int(shard): seq for shard, seq in self.table.snapshot().end.items()}
        ends = self._zone.ends()
        self.metrics.lag_entries = sum(end - have.get(shard, 0) for shard, end in ends.items())
        waiting = self._zone.entries(have, {shard: min(end, have.get(shard, 0) + 1) for shard, end in ends.items()})
        oldest_ms = min((entry.landed_ms for entry in waiting), default=None)
        self.metrics.lag_seconds = 0.0 if oldest_ms is None else max(0.0, time.time() - oldest_ms / 1000)

    def write(self, items: Sequence[tuple[int, bytes]], run_tasks: RunTasks = in_process) -> None:
        """Commit the entries the table lacks; when another driver commits first, look again what is lacking."""
        inputs = [str(log.shard) for log in self._zone.shards]
        while True:
            have = self.table.declare(schemas_of_table(), inputs)
            self._check_origin(have)
            fresh = new_items(have.end, items)
            if not fresh:
                break
            ends = {str(shard): entry.seq + 1 for shard, entry, _ in fresh}
            files = self._write(fresh, run_tasks)
            self._step("S2")
            origin = have.origin | {"zone": self._zone.zone.landing_id.hex()}
            origin |= {str(shard): name_of(entry) for shard, entry, _ in fresh}
            try:
                self.table.append(have, files, ends, origin)
            except Conflict:
                self.metrics.conflicts += 1
                continue  # the files just written stay unlisted; vacuum removes them
            for file in files:
                self.metrics.rows[PARTS[file.part]] += file.rows
            self._roll_up()
            break
        self._step("S3")
        save_consumer(self._zone, self.config.consumer, {int(k): v for k, v in self.table.snapshot().end.items()})

    def _roll_up(self) -> None:
        """Now and then join the small files that commits leave."""
        self._commits += 1
        if self._commits > rollup.MOST:
            self._commits = 0
            rollup.roll_up(self.table, schemas_of_table())

    def _check_origin(self, have: Snapshot) -> None:
        """Where the table ends the landing zone must hold what the table took there. Raises TableError."""
        here, ends, place = self._zone.zone.landing_id.hex(), self._zone.ends(), self._zone.files.root
        told = f"table {self.config.table} has rows of landing zone"
        if have.origin.get("zone", here) != here:
            raise TableError(
                f"{told} {have.origin['zone'][:8]}, {place} is {here[:8]}: is the right file system "
                "mounted there? For another landing zone start a new table"
            )
        for shard, seq in have.end.items():
            log, known, end = self._zone.shards[int(shard)], have.origin.get(shard, ""), ends[int(shard)]
            if seq < (first := log.begins()):
                raise TableError(
                    f"table {self.config.table} ends at seq {seq} of shard {shard}, {place} begins at {first}: "
                    "retention removed what is between. Was the table set back? RESTORE a newer version of it, else "
                    "start a new table"
                )
            entry = next(iter(log.entries(seq - 1, seq)), None) if seq > first else None
            found = f"ends at seq {end}" if entry is None else name_of(entry)
            noted = known.startswith(f"seq {seq - 1}:")  # a program that does not know of it writes none
            if seq > end or (entry is not None and noted and known != found):
                raise TableError(
                    f"{told} {here[:8]} up to shard {shard}, {known or f'seq {seq - 1}'}; {place} now: "
                    f"{found}. Was it set back to an older copy? "
                    "Re-landed data has new sequence numbers: start a new table"
                )

    def _write(self, items: Sequence[tuple[int, ManifestEntry, bytes]], run_tasks: RunTasks) -> list[NewFile]:
        """Write rows and ranges; with `fail_on_loss` off what cannot be read is a declared loss, never just absent."""
        tasks = tasks_of(items, self.config.partition_bytes)
        written = run_tasks(self.config, tasks) if tasks else []
        lost = {place for task in written for place in task.lost}
        found = [_declared(item) if (item[0], item[1].seq) in lost else item for item in items]
        return [task.file for task in written if task.file.rows] + self._write_ranges(found)

    def _write_ranges(self, items: Sequence[tuple[int, ManifestEntry, bytes]]) -> list[NewFile]:
        """Write what landed and what was declared lost as rows of their own: small, by the driver."""
        batch = manifest_batch([(shard, data) for shard, _, data in items])
        day = day_of(max(entry.landed_ms for _, entry, _ in items))
        ranges = batch.select(RANGES_SCHEMA.names)
        files = [write_file(self.config.table, day, RANGES_SCHEMA, [ranges], part="ranges")]
        lost = gap_rows(entry for _, entry, _ in items)
        if lost.num_rows:
            files.append(write_file(self.config.table, day, GAPS_SCHEMA, [lost], part="gaps"))
        return files


def _declared(item: tuple[int, ManifestEntry, bytes]) -> tuple[int, ManifestEntry, bytes]:
    """Return the item of the loss that stands for one that cannot be read."""
    shard, entry, _ = item
    gap = lost_entry(entry, now_ms())
    return shard, gap, gap.encode()


def run_bronze(spark: SparkSession, config: BronzeConfig, *, once: bool, trigger: str = "10 seconds") -> Any:
    """Start the stream; with once, return after everything that has landed is in the table."""
    register(spark)
    bronze = Bronze(config)
    have = bronze.end()
    _check_checkpoint(config, have)
    reader = spark.readStream.format("commitlog_manifest").option("maxBytesPerTrigger", str(config.trigger_bytes))
    if have:  # only used without a checkpoint: the table says where to continue
        reader = reader.option("startingOffsets", _offsets(have))
    reader = reader.option("failOnDataLoss", str(config.fail_on_loss).lower())
    stream = reader.load(config.landing).select("shard", "seq", "entry")
    writer = stream.writeStream.foreachBatch(bronze.on_batch).option("checkpointLocation", config.checkpoint)
    query = (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=trigger)).start()
    if once:
        query.awaitTermination()
    return query


def _check_checkpoint(config: BronzeConfig, have: Position) -> None:
    """A checkpoint that is ahead of the table would leave out what the table lacks. Raises TableError."""
    for shard, seq in finished(config.checkpoint).items():
        if seq > have.get(shard, 0):
            raise TableError(
                f"shard {shard}: the table is at seq {have.get(shard, 0)}, checkpoint {config.checkpoint} at {seq}: "
                "the table was set back or is another one; delete the checkpoint folder: the table knows its position"
            )


def _offsets(end: Position) -> str:
    return "{" + ", ".join(f'"{shard}": {seq}' for shard, seq in sorted(end.items())) + "}"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("python -m uplink_spark.jobs.bronze", description=__doc__.splitlines()[0])
    made.add_argument("--landing", required=True, help="folder or URL of the landing zone")
    made.add_argument("--table", required=True, help="folder or URL of the bronze table")
    made.add_argument("--checkpoint", help="folder of Spark's checkpoint (a temporary one)")
    made.add_argument("--once", action="store_true", help="read what has landed, then exit")
    made.add_argument("--trigger", type=interval, default="10 seconds", help="interval without --once (10 seconds)")
    made.add_argument("--consumer", default="bronze", help="name of the consumer for the retention of packs (bronze)")
    made.add_argument("--partition-mib", type=whole(1), default=64, help="raw MiB per task (64)")
    made.add_argument("--trigger-mib", type=whole(1), default=1024, help="raw MiB per commit (1024)")
    made.add_argument("--skip-lost", action="store_true", help="leave out packs that are missing or damaged")
    made.add_argument("--metrics", help="file for Prometheus text, replaced after each batch")
    made.add_argument(
        "--system-topics", default="", help="names of clusters and brokers; topics of these names get kind system"
    )
    made.add_argument("--wait", type=amount(zero=True), default=60, help="seconds to wait for the landing zone (60)")
    made.add_argument("--master", help="Spark master (local[*])")
    return made


def config_of(given: argparse.Namespace, table: Table, scratch: str) -> BronzeConfig:
    """Return the settings; without --checkpoint it is in `scratch`: the table knows where it stands."""
    return BronzeConfig(
        landing=os.path.abspath(given.landing) if "://" not in given.landing else given.landing,
        table=table.root,
        checkpoint=given.checkpoint or scratch,
        consumer=given.consumer,
        partition_bytes=given.partition_mib * MIB,
        trigger_bytes=given.trigger_mib * MIB,
        fail_on_loss=not given.skip_lost,
        metrics=given.metrics,
        system_topics=frozenset(filter(None, given.system_topics.split(","))),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)

    def job() -> None:
        with tempfile.TemporaryDirectory(prefix="rocketbox-bronze-", ignore_cleanup_errors=True) as scratch:
            run(Table(given.table), scratch)

    def run(table: Table, scratch: str) -> None:
        config = config_of(given, table, scratch)
        wait_for_zone(config.landing, given.wait)
        table.prepare()
        spark = open_session("rocketbox bronze", master=given.master)
        run_bronze(spark, config, once=given.once, trigger=given.trigger).awaitTermination()
        state = table.snapshot()
        rows = sum(file.rows for file in state.part("data"))
        print(f"bronze table={config.table} version={state.version} rows={rows} to={_offsets(state.end)}")

    return run_job("bronze", job)


if __name__ == "__main__":
    sys.exit(main())
