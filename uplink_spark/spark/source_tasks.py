"""What the tasks of a query read: pieces of packs, manifest entries, or the plan itself; planned on the driver."""

from __future__ import annotations

import ctypes
import gc
import pickle
from collections.abc import Iterator, Sequence
from functools import cache

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from uplink_spark.spark.packs import PieceRef, read_batches
from uplink_spark.spark.pieces import Pieces, TaskCutter
from uplink_spark.spark.source_manifest import manifest_batch
from uplink_spark.spark.source_options import SourceOptions
from uplink_spark.spark.source_plan import Seqs, check_log_offsets, pieces_wanted
from uplink_spark.zone.files import open_files
from uplink_spark.zone.reader import ZoneReader

PLAN_SCHEMA = pa.schema([("work", pa.binary())])
MANIFEST_TASK_ENTRIES = 20_000
LARGE_BYTES = 32 << 20  # the most that glibc allows: larger blocks come from the system and go back to it
KEPT_BYTES = 64 << 20  # of freed memory, by worker
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h


class Work(InputPartition):  # type: ignore[misc]
    """One task: the pieces it reads, or the manifest entries it shows."""

    def __init__(self, pieces: Sequence[Pieces] = (), entries: Sequence[tuple[int, bytes]] = ()) -> None:
        self.pieces, self.entries = tuple(pieces), tuple(entries)

    def refs(self) -> list[PieceRef]:
        """Return the pieces one by one."""
        return [ref for part in self.pieces for ref in part.refs()]


@cache
def settle_worker() -> None:
    """Spare this Python worker work that it has with each task or batch, whatever is in them.

    PySpark collects garbage after each task and looks at every module then, for 20 ms. Memory that is given back to the
    system after each batch comes again by page faults: a tenth of what decoding takes.
    """
    gc.collect()
    gc.freeze()
    _keep_memory()


def _keep_memory() -> None:
    """Let glibc keep up to KEPT_BYTES of freed memory (mallopt(3)), and Arrow take its buffers from there."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt") and libc.mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES):
        libc.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        pa.set_memory_pool(pa.system_memory_pool())


class MessageRows:
    """What batch and stream readers of `commitlog` share: planning pieces, reading them in a task."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def plan(self, zone: ZoneReader, start: Seqs, end: Seqs) -> list[Work]:
        if self.options.log_offsets:
            check_log_offsets(zone.tables(start, end), self.options)
        cutter = TaskCutter(self.options.partition_bytes)
        for log in zone.shards:
            for table in log.tables(start[log.shard], end[log.shard]):
                cutter.add(pieces_wanted(table, log.shard, self.options))
        return [Work(pieces=task) for task in cutter.tasks()]

    def batches(self, partition: Work) -> Iterator[pa.RecordBatch]:
        settle_worker()
        options = self.options
        files = open_files(options.path)
        return read_batches(files, partition.refs(), options.view, fail_on_loss=options.fail_on_loss)


class ManifestRows:
    """The rows of `commitlog_manifest`; the driver has the entries already, so tasks carry them."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def plan(self, zone: ZoneReader, start: Seqs, end: Seqs) -> list[Work]:
        boxes = self._options.boxes
        found = [
            (log.shard, entry.encode())
            for log in zone.shards
            for entry in log.entries(start[log.shard], end[log.shard])
            if boxes is None or entry.box in boxes
        ]
        step = MANIFEST_TASK_ENTRIES
        return [Work(entries=found[at : at + step]) for at in range(0, len(found), step)]

    def batches(self, partition: Work) -> Iterator[pa.RecordBatch]:
        if partition.entries:
            yield manifest_batch(partition.entries)


class PlanRows(MessageRows):
    """The tasks of a query as rows: what each reads, pickled."""

    def batches(self, partition: Work) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(partition)], pa.binary())], schema=PLAN_SCHEMA)


Content = MessageRows | ManifestRows


def batches_of(content: Content, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Spark hands a plain InputPartition to `read` when there was nothing to plan."""
    return content.batches(partition) if isinstance(partition, Work) else iter(())
