"""What readers get: pruned files, healed gaps, silence, older and newer schemas, and the same rows in other engines."""

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from uplink_spark.centre.zone_files.records import CentreRecords
from uplink_spark.jobs import bronze, tables
from uplink_spark.jobs.bronze import Bronze, BronzeConfig
from uplink_spark.jobs.table.commits import TableError
from uplink_spark.jobs.table.delta import Table
from uplink_spark.jobs.table.parquet import write_file
from uplink_spark.jobs.testing import Fleet, landed_items, source_of
from uplink_spark.spark.rows import SCHEMA, RowSelection
from uplink_spark.testing import gap_piece
from uplink_spark.wire.frames import Hello, Status

pytestmark = pytest.mark.slow


@pytest.fixture
def root(spark: Any, fleet: Fleet, config: BronzeConfig) -> str:
    """A table of three commits: box-a topic A, box-b topic B, box-a with a retry."""
    job = Bronze(config)
    for box, topic in (("box-a", "A"), ("box-b", "B"), ("box-a", "%RETRY%g")):
        fleet.land(box, 10, topic=topic)
        job.write(landed_items(fleet.landing.root))
    return config.table


def test_files_that_cannot_hold_the_rows_are_not_opened(spark: Any, root: str) -> None:
    table = Table(root)
    (first,) = (file for file in table.snapshot().part("data") if file.topics == ("A", "A"))
    Path(root, first.path).unlink()
    assert tables.bronze(spark, root, topics=["B"]).count() == 10
    assert tables.bronze(spark, root, boxes=["box-b"]).count() == 10
    assert tables.bronze(spark, root, topics=["%RETRY%g"], boxes=["box-a"]).count() == 10
    assert tables.bronze(spark, root, landed_since="2023-11-14T22:13:22Z").count() == 20
    assert tables.messages(spark, root, topics=["B"]).count() == 10
    assert tables.messages(spark, root, topics=["%RETRY%g"]).count() == 0


def test_a_file_no_commit_lists_is_no_part_of_the_table(spark: Any, root: str) -> None:
    path = Path(root, Table(root).snapshot().part("data")[0].path)
    path.with_name("twice.parquet").write_bytes(path.read_bytes())
    assert tables.bronze(spark, root).count() == 30


def test_a_folder_that_is_no_table_is_named(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="it has no folder _delta_log"):
        tables.bronze(spark, str(tmp_path))


def test_bytes_that_arrive_after_all_heal_a_declared_loss(spark: Any, fleet: Fleet, config: BronzeConfig) -> None:
    fleet.land("box-a", 10)
    hole = fleet.end("box-a")
    gap: dict[str, object] = {"class": "missing", "reason": "disk_full", "records": 99}
    fleet.landing.land(gap_piece(hole, hole + 10_000, gap, source=source_of("box-a")), now_ms=1_700_000_009_000)
    broken: dict[str, object] = {"class": "damaged", "reason": "repair"}
    fleet.landing.land(gap_piece(hole, hole + 50, broken, source=source_of("box-a")), now_ms=1_700_000_009_000)
    bronze = Bronze(config)
    bronze.write(landed_items(fleet.landing.root))
    lost = tables.gaps(spark, config.table)
    assert {(r["class"], r["from_offset"], r["to_offset"], r["records"]) for r in lost.collect()} == {
        ("missing", hole, hole + 10_000, 99),
        ("damaged", hole, hole + 50, None),
    }
    fleet.land("box-a", 10)  # a stick brought part of it
    end = fleet.end("box-a")
    bronze.write(landed_items(fleet.landing.root))
    lost = tables.gaps(spark, config.table)
    assert {(r["class"], r["from_offset"], r["to_offset"], r["records"]) for r in lost.collect()} == {
        ("missing", end, hole + 10_000, None),
        ("damaged", hole, hole + 50, None),
    }


def test_silence_is_measured_by_landed_time(spark: Any, root: str) -> None:
    rows = tables.freshness(spark, root, now_ms=1_700_000_063_000).orderBy("box").collect()
    assert [(row["box"], row["silent_for"].total_seconds()) for row in rows] == [("box-a", 60), ("box-b", 61)]


def commit_of_a_newer_program(root: str) -> None:
    """Five rows with a column that this program does not know."""
    table = Table(root)
    wider = SCHEMA.append(pa.field("site", pa.string()))
    now = table.declare({"data": wider}, ["0"])
    known = pq.read_table(table.paths(now.part("data"))[0], schema=SCHEMA).slice(0, 5)
    rows = known.append_column("site", pa.array(["north"] * 5))
    file = write_file(root, "2023-11-14", wider, rows.to_batches(), part="data")
    table.append(now, [file], now.end, now.origin)


def test_a_column_added_later_is_null_in_older_files_and_older_programs_go_on_writing(
    spark: Any, fleet: Fleet, config: BronzeConfig, root: str
) -> None:
    commit_of_a_newer_program(root)
    rows = tables.bronze(spark, root)
    assert rows.columns[-1] == "site"
    assert {tuple(row) for row in rows.groupBy("site").count().collect()} == {(None, 30), ("north", 5)}
    fleet.land("box-c", 5)
    Bronze(config).write(landed_items(fleet.landing.root))
    counts = tables.bronze(spark, root).groupBy("site").count().collect()
    assert {tuple(row) for row in counts} == {(None, 35), ("north", 5)}


def test_a_table_from_before_messages_had_their_trace_grows_by_its_columns(
    spark: Any, fleet: Fleet, config: BronzeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pa.schema([column for column in SCHEMA if column.name not in ("traceparent", "trace_id")])
    assert before.names == SCHEMA.names[:-2]
    with monkeypatch.context() as older:
        older.setattr(bronze, "SCHEMA", before)
        older.setattr(bronze, "RowSelection", partial(RowSelection, columns=tuple(before.names)))
        fleet.land("box-a", 10)
        Bronze(config).write(landed_items(fleet.landing.root))
        assert tables.bronze(spark, config.table).columns == before.names
    fleet.land("box-a", 5)
    Bronze(config).write(landed_items(fleet.landing.root))
    rows = tables.bronze(spark, config.table)
    assert (rows.columns, rows.count(), rows.where("trace_id IS NULL").count()) == (SCHEMA.names, 15, 15)


def test_the_files_are_ordinary_parquet_with_partitions_and_statistics(root: str) -> None:
    table = Table(root)
    paths = table.paths(table.snapshot().part("data"))
    rows = ds.dataset(paths, partitioning="hive").to_table(columns=["box", "topic", "landed_day", "properties"])
    assert pc.unique(rows["landed_day"]).to_pylist() == ["2023-11-14"]
    group = pq.ParquetFile(paths[0]).metadata.row_group(0)
    columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    assert columns["store_time"].statistics.has_min_max
    assert columns["log_offset"].statistics.max > columns["log_offset"].statistics.min
    assert (columns["box"].compression, "RLE_DICTIONARY" in columns["box"].encodings) == ("ZSTD", True)


def test_duckdb_reads_the_same_rows(root: str) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: pip install duckdb")
    bronze = DeltaTable(root).to_pyarrow_dataset()
    query = "SELECT box, topic, count(*), min(landed_day) FROM bronze WHERE part = 'data' GROUP BY ALL ORDER BY ALL"
    found = duckdb.sql(query).fetchall()
    assert [(box, topic, count) for box, topic, count, _ in found] == [
        ("box-a", "%RETRY%g", 10),
        ("box-a", "A", 10),
        ("box-b", "B", 10),
    ]
    assert {str(day) for *_, day in found} == {"2023-11-14"}
    rows = duckdb.sql("SELECT body, properties FROM bronze WHERE part = 'data' ORDER BY box, log_offset LIMIT 1")
    assert rows.fetchall() == [(b"box-a 0", {})]
    assert duckdb.sql("SELECT sum(records) FROM bronze WHERE part = 'ranges'").fetchall() == [(30,)]
    assert bronze.to_table(filter=ds.field("part") == "data").num_rows == 30


def test_what_boxes_say_of_themselves_is_a_table(spark: Any, fleet: Fleet) -> None:
    landing = str(fleet.landing.root)
    assert tables.box_status(spark, landing).count() == 0
    hello = Hello("box-a", ((5, 0),), ((7, 0),), 0, 97, 1_700_000_000_000, 1, "rocketbox 0.1.0")
    status = Status(
        97, 12, 1_700_000_000_000, 1 << 30, 44, 2, "clean", "rocketbox 0.1.0", 1_700_000_060_000, 1, "ok", ()
    )
    CentreRecords(fleet.landing.root, 1).append_status(hello, status, 1_700_000_060_500)
    (row,) = tables.box_status(spark, landing).collect()
    assert (row["box"], row["epoch"], row["unshipped"], row["gaps"], row["verdict"]) == ("box-a", 5, 12, 2, "clean")
    assert row["received"].timestamp() == 1_700_000_060.5
    assert (row["state"], row["conditions"]) == ("ok", [])
