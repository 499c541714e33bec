"""The PySpark data sources `commitlog` (rows of messages) and `commitlog_manifest` (what has landed).

    spark_source.register(spark)
    spark.read.format("commitlog").option("topics", "Vitals").load("/landing")
    spark.readStream.format("commitlog").load("/landing")

A position is one sequence number per manifest shard. What a reader sees is in front of the manifest's last mark, so
nothing it has read is ever taken back. Spark calls `reader` and `streamReader` with the keyword `schema`.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from uplink_spark.errors import LandingError
from uplink_spark.spark.offset_fingerprint import check_stamp, lag_of, stamped
from uplink_spark.spark.rows import schema_of
from uplink_spark.spark.source_filters import PushedFilters, narrow
from uplink_spark.spark.source_manifest import MANIFEST_SCHEMA
from uplink_spark.spark.source_options import (
    BATCH,
    MANIFEST_OPTIONS,
    OPTIONS,
    STREAM,
    OptionError,
    SourceOptions,
    check_mode,
    parse_options,
)
from uplink_spark.spark.source_plan import (
    Seqs,
    admit,
    from_offset,
    to_offset,
    until_full,
)
from uplink_spark.spark.source_positions import check_order, checked_start, now_ms, positions, save_consumer
from uplink_spark.spark.source_tasks import PLAN_SCHEMA, Content, ManifestRows, MessageRows, PlanRows, batches_of
from uplink_spark.spark.spark_api import (
    HAS_FILTERS,
    HAS_LIMITS,
    Filter,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    limit_of,
)
from uplink_spark.zone.entry_table import EntryTable
from uplink_spark.zone.reader import ZoneReader

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
MAX_RANGES = 25_000  # of a micro-batch bounded by bytes or rows: 25,000 took 324 MB in bronze's driver


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """Everything between two positions, fixed when the query is planned."""

    def __init__(self, options: SourceOptions, content: Content) -> None:
        self._options, self._content = options, content

    def partitions(self) -> Sequence[InputPartition]:
        zone = ZoneReader(self._options.path)
        start = positions(zone, self._options, self._options.start)
        end = positions(zone, self._options, self._options.end)
        check_order(start, end)
        if self._options.consumer:
            save_consumer(zone, self._options.consumer, start)  # pins the packs while the query runs
        return self._content.plan(zone, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches_of(self._content, partition)


class PushdownReader(BatchReader):
    """A batch reader that takes over filters; Spark refuses it while its push-down is switched off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        narrowed: PushedFilters = narrow(self._options, filters)
        self._options = narrowed.options
        self._content = MessageRows(narrowed.options)
        return narrowed.left


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Micro-batches over the manifest; runs in one Python process on the driver, `read` in the tasks."""

    def __init__(self, options: SourceOptions, content: Content, clock: Callable[[], float] = time.monotonic) -> None:
        self._options, self._content, self._clock = options, content, clock
        self._opened: ZoneReader | None = None
        self._until: Seqs | None = None  # the fixed end under Trigger.AvailableNow
        self._waiting_since: float | None = None
        self._planned: Seqs = {}  # where the newest batch ends

    @property
    def _zone(self) -> ZoneReader:
        if self._opened is None:
            self._opened = ZoneReader(self._options.path)
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def initialOffset(self) -> dict[str, Any]:
        return stamped(self._zone, positions(self._zone, self._options, self._options.start))

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_rows is not None:
            return ReadMaxRows(options.max_rows)
        if options.max_pieces is not None:
            return ReadMaxFiles(options.max_pieces)
        return ReadAllAvailable() if options.max_bytes is None else ReadMaxBytes(options.max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self._zone.ends()

    def reportLatestOffset(self) -> dict[str, Any]:
        """What StreamingQueryProgress shows as latestOffset: the ends, and what waits behind the batch planned last."""
        ends = self._zone.ends()
        return {**to_offset(ends), **lag_of(self._zone, self._planned, ends, now_ms())}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        zone = self._zone
        zone.check_same()
        ends = self._until or zone.ends()
        begin = from_offset(start, zone.zone.shards)
        check_stamp(zone, start, back=self._options.fail_on_loss)
        if self._options.fail_on_loss:
            self._check_reached(begin, ends)
        ends = {shard: max(seq, begin[shard]) for shard, seq in ends.items()}
        self._planned = begin
        if ends == begin:
            return start
        begin = self._from_oldest(begin, ends)
        bound = limit_of(limit)
        most = max(1, MAX_RANGES // len(zone.shards))
        waiting = {
            log.shard: until_full(log.tables(begin[log.shard], ends[log.shard]), bound, most) for log in zone.shards
        }
        if self._should_wait(waiting):
            return start
        self._planned = admit({shard: bound.of(table) for shard, table in waiting.items()}, begin, bound)
        return stamped(zone, self._planned)

    def _from_oldest(self, begin: Seqs, ends: Seqs) -> Seqs:
        zone = self._zone
        oldest = {log.shard: min(log.begins(), ends[log.shard]) for log in zone.shards}
        return checked_start(zone, self._options, begin, oldest)

    def _should_wait(self, waiting: Mapping[int, EntryTable]) -> bool:
        """Whether a small batch waits for more: below minBytesPerTrigger and not yet maxTriggerDelay."""
        options = self._options
        if not options.min_bytes or self._until is not None:
            return False
        now = self._clock()
        self._waiting_since = now if self._waiting_since is None else self._waiting_since
        size = sum(int(table.numbers["raw_bytes"].sum()) for table in waiting.values())
        if size < options.min_bytes and now - self._waiting_since < options.max_delay_s:
            return True
        self._waiting_since = None
        return False

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        zone = self._zone
        zone.check_same()
        ends = zone.ends()
        for offset in (start, end):
            check_stamp(zone, offset, back=self._options.fail_on_loss)
        begin, until = from_offset(start, zone.zone.shards), from_offset(end, zone.zone.shards)
        self._check_reached(until, ends)
        return self._content.plan(zone, self._from_oldest(begin, until), until)

    def _check_reached(self, wanted: Seqs, ends: Seqs) -> None:
        """Waiting until the zone gets there would pass over what lands until then. Raises LandingError."""
        for shard, seq in wanted.items():
            if seq > ends[shard]:
                raise LandingError(
                    f"the checkpoint needs seq {seq} of shard {shard}, {self._zone.files.root} ends at {ends[shard]}: "
                    "is this the landing zone the checkpoint was made with, and no older copy of it?"
                )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches_of(self._content, partition)

    def commit(self, end: dict[str, Any]) -> None:
        if self._options.consumer:
            save_consumer(self._zone, self._options.consumer, from_offset(end, self._zone.zone.shards))


class UnlimitedStreamReader(StreamReader):
    """For a Spark that tells neither where a batch begins nor how much it may hold: each has all that has landed."""

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        zone = self._zone
        zone.check_same()
        return stamped(zone, zone.ends())


class CommitLogSource(DataSource):  # type: ignore[misc]
    """Rows of messages out of a landing zone."""

    known = frozenset(OPTIONS)

    @classmethod
    def name(cls) -> str:
        return "commitlog"

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._parsed = parse_options(dict(options), known=self.known)

    def schema(self) -> StructType:
        return from_arrow_schema(self._arrow_schema())

    def _arrow_schema(self) -> pa.Schema:
        return schema_of(self._parsed.view)

    def _content(self) -> Content:
        return MessageRows(self._parsed)

    def _checked(self, schema: StructType, mode: str) -> Content:
        check_mode(dict(self.options), mode)
        if schema.names != self._arrow_schema().names:
            raise OptionError(
                f"the schema given has columns {', '.join(schema.names)}; leave .schema(...) out and name columns "
                f"with option columns (out of: {', '.join(self._arrow_schema().names)})"
            )
        return self._content()

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(self._parsed, self._checked(schema, BATCH))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        kind = StreamReader if HAS_LIMITS else UnlimitedStreamReader
        return kind(self._parsed, self._checked(schema, STREAM))


class CommitLogPushdownSource(CommitLogSource):
    """The same with filter push-down in batch queries."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return PushdownReader(self._parsed, self._checked(schema, BATCH))


class PlanSource(CommitLogSource):
    """What `commitlog` would read, one row a task: mapInArrow makes the rows of it."""

    @classmethod
    def name(cls) -> str:
        return "commitlog_plan"

    def _arrow_schema(self) -> pa.Schema:
        return PLAN_SCHEMA

    def _content(self) -> Content:
        return PlanRows(self._parsed)

    def rows(self, plans: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        content = MessageRows(self._parsed)
        for plan in plans:
            for work in plan.column(0).to_pylist():
                yield from content.batches(pickle.loads(work))


class ManifestSource(CommitLogSource):
    """One row for each range that landed: data, declared loss, blobs."""

    known = MANIFEST_OPTIONS

    @classmethod
    def name(cls) -> str:
        return "commitlog_manifest"

    def _arrow_schema(self) -> pa.Schema:
        return MANIFEST_SCHEMA

    def _content(self) -> Content:
        return ManifestRows(self._parsed)


def register(spark: SparkSession) -> None:
    """Register both formats; the class follows the session's push-down setting as it is now."""
    pushdown = HAS_FILTERS and str(spark.conf.get(PUSHDOWN, "false")).lower() == "true"
    spark.dataSource.register(CommitLogPushdownSource if pushdown else CommitLogSource)
    spark.dataSource.register(ManifestSource)


def read(spark: SparkSession, path: str, *, stream: bool = False, **options: object) -> DataFrame:
    """Return a DataFrame over a landing zone, registered as Spark is set now; lists and booleans may be given."""
    register(spark)
    return _reader(spark, CommitLogSource, options, stream).load(path)


def read_wide(spark: SparkSession, path: str, *, stream: bool = False, **options: object) -> DataFrame:
    """Return the same rows for queries that need most columns: Spark copies each once, not twice, pushes no filter.

    In the progress of a stream the number of input rows is that of its tasks.
    """
    spark.dataSource.register(PlanSource)
    source = PlanSource({name: as_text(value) for name, value in options.items()} | {"path": path})
    plan = _reader(spark, PlanSource, options, stream).load(path)
    return plan.mapInArrow(source.rows, CommitLogSource(source.options).schema())


def _reader(spark: SparkSession, source: type[CommitLogSource], options: Mapping[str, object], stream: bool) -> Any:
    reader: Any = spark.readStream if stream else spark.read
    return reader.format(source.name()).options(**{name: as_text(value) for name, value in options.items()})


def as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return json.dumps(value)
    return json.dumps(list(value)) if isinstance(value, (list, tuple, set, frozenset)) else str(value)
