"""Silver sums equal plain counts over bronze, whatever comes late, without clock, or twice."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from uplink_spark.jobs import care, tables
from uplink_spark.jobs.bronze import Bronze, BronzeConfig
from uplink_spark.jobs.silver import LONGEST_MS, take_in
from uplink_spark.jobs.table.commits import TableError
from uplink_spark.jobs.table.delta import Table
from uplink_spark.jobs.table.log import LOG
from uplink_spark.jobs.testing import landed_items
from uplink_spark.testing import MadeLanding, MadeRecord, log_piece
from uplink_spark.wire.batch import PieceSource

pytestmark = pytest.mark.slow
T0 = 1_700_000_040_000  # begins a minute


@pytest.fixture
def roots(tmp_path: Path) -> tuple[str, str]:
    return str(tmp_path / "bronze"), str(tmp_path / "silver")


def land(landing: MadeLanding, records: list[MadeRecord], *, start: int = 0, box: str = "b", clock_ok: int = 1) -> int:
    source = PieceSource(box=box, epoch=5, run=7, run_start=0, cut_ms=T0, clock_ok=clock_ok)
    piece = log_piece(records, start, source=source)
    landing.land(piece, now_ms=T0 + 10_000)
    return piece[0].end


def bronze_of(spark: Any, landing: MadeLanding, roots: tuple[str, str]) -> Bronze:
    return Bronze(BronzeConfig(str(landing.root), roots[0], roots[0] + "-checkpoint"))


def test_figures_are_per_box_topic_and_minute_of_store_time(
    spark: Any, landing: MadeLanding, roots: tuple[str, str]
) -> None:
    records = [MadeRecord("A", body=b"xy", born_ms=T0 + n * 30_000 - 7, stored_ms=T0 + n * 30_000) for n in range(4)]
    end = land(landing, records)
    land(landing, [MadeRecord("A", stored_ms=T0 - 2 * 3_600_000, born_ms=T0)], start=end)  # late, born after it
    land(landing, [MadeRecord("A", stored_ms=1), MadeRecord("%RETRY%g", stored_ms=T0)], box="no-clock", clock_ok=0)
    bronze_of(spark, landing, roots).write(landed_items(landing.root))
    assert take_in(spark, *roots) == 1
    rows = {(r["box"], int(r["minute"].timestamp() * 1000)): r for r in tables.per_minute(spark, roots[1]).collect()}
    assert set(rows) == {("b", T0), ("b", T0 + 60_000), ("b", T0 - 2 * 3_600_000), ("no-clock", 0)}
    first = rows[("b", T0)]
    assert (first["rows"], first["body_bytes"], first["record_bytes"]) == (2, 4, 2 * 94)
    assert (first["born_store_ms_sum"], first["born_store_ms_max"], first["latency_rows"]) == (14, 7, 2)
    assert (first["store_landed_ms_sum"], first["late_rows"], first["clock_bad_rows"]) == (10_000, 0, 0)
    late = rows[("b", T0 - 2 * 3_600_000)]
    assert (late["late_rows"], late["born_store_ms_sum"]) == (1, 0)  # a negative difference counts as 0
    blind = rows[("no-clock", 0)]
    assert (blind["rows"], blind["clock_bad_rows"], blind["latency_rows"], blind["born_store_ms_sum"]) == (1, 1, 0, 0)


def test_clocks_that_are_ages_apart_end_no_job(spark: Any, landing: MadeLanding, roots: tuple[str, str]) -> None:
    first_ms, last_ms = -62_135_596_800_000, 253_402_300_740_000  # of the years 1 and 9999: 29,500 of these are 2**63
    land(landing, [MadeRecord("A", born_ms=first_ms, stored_ms=last_ms)] * 30_000)
    bronze_of(spark, landing, roots).write(landed_items(landing.root))
    assert take_in(spark, *roots) == 1
    (row,) = tables.per_minute(spark, roots[1]).collect()
    assert (row["rows"], row["latency_rows"]) == (30_000, 30_000)
    assert row["born_store_ms_max"] == LONGEST_MS


def test_a_table_of_another_kind_or_one_made_anew_is_refused(
    spark: Any, landing: MadeLanding, roots: tuple[str, str], tmp_path: Path
) -> None:
    bronze = bronze_of(spark, landing, roots)
    end = 0
    for _ in range(2):
        end = land(landing, [MadeRecord("A", stored_ms=T0)], start=end)
        bronze.write(landed_items(landing.root))
    take_in(spark, *roots)
    with pytest.raises(TableError, match="silver is not a bronze table: its columns are box, topic, minute"):
        take_in(spark, roots[1], str(tmp_path / "x"))
    with pytest.raises(TableError, match="bronze is not a per_minute table"):
        tables.per_minute(spark, roots[0])
    shutil.copytree(roots[0], tmp_path / "copy")
    land(landing, [MadeRecord("A", stored_ms=T0)], start=end)
    bronze.write(landed_items(landing.root))
    take_in(spark, *roots)
    shutil.rmtree(roots[0])
    (tmp_path / "copy").rename(roots[0])
    with pytest.raises(TableError, match=r"bronze ends at version 2, .*silver has read version 3 of another one"):
        take_in(spark, *roots)
    bronze_of(spark, landing, roots).write(landed_items(landing.root))
    land(landing, [MadeRecord("A", stored_ms=T0)], box="other")
    bronze_of(spark, landing, roots).write(landed_items(landing.root))
    with pytest.raises(
        TableError, match=r"silver has read version 3: \w+ of .*bronze, which is now version 3: \w+: was"
    ):
        take_in(spark, *roots)
    shutil.rmtree(roots[0])
    bronze_of(spark, landing, roots).write(landed_items(landing.root))
    with pytest.raises(TableError, match=r"bronze ends at version 1, .*silver has read version 3 of another one"):
        take_in(spark, *roots)


def test_a_box_back_after_three_weeks_adds_to_minutes_long_past(
    spark: Any, landing: MadeLanding, roots: tuple[str, str]
) -> None:
    bronze = bronze_of(spark, landing, roots)
    land(landing, [MadeRecord("A", stored_ms=T0 + n) for n in range(20)])
    bronze.write(landed_items(landing.root))
    take_in(spark, *roots)
    weeks = 21 * 86_400_000
    land(landing, [MadeRecord("A", stored_ms=T0 - weeks + n * 60_000) for n in range(50)], box="late")
    land(landing, [MadeRecord("A", stored_ms=T0 + n) for n in range(5)], box="c")
    bronze.write(landed_items(landing.root))
    assert take_in(spark, *roots) == 2
    assert take_in(spark, *roots) == 2  # again: nothing is counted twice
    sums = tables.per_minute(spark, roots[1]).groupBy("box").sum("rows").collect()
    plain = tables.messages(spark, roots[0]).groupBy("box").count().collect()
    assert {tuple(row) for row in sums} == {tuple(row) for row in plain} == {("b", 20), ("late", 50), ("c", 5)}


def test_compaction_of_bronze_and_of_silver_changes_no_figure(
    spark: Any, landing: MadeLanding, roots: tuple[str, str]
) -> None:
    bronze, at = bronze_of(spark, landing, roots), 0
    for n in range(3):
        at = land(landing, [MadeRecord("A", stored_ms=T0 + n)] * 4, start=at)
        bronze.write(landed_items(landing.root))
        take_in(spark, *roots)
    care.compact(spark, roots[0], "2023-11-14")
    assert take_in(spark, *roots) == 5  # one commit for each part
    (day,) = care.days(Table(roots[1]).snapshot())
    assert care.compact(spark, roots[1], day).files_after == 1
    assert [row["rows"] for row in tables.per_minute(spark, roots[1]).collect()] == [12]


def figures(spark: Any, silver: str) -> dict[str, int]:
    return {row["box"]: row["rows"] for row in tables.per_minute(spark, silver).collect()}


def test_a_restore_of_bronze_is_told_where_it_took_back_rows_that_are_counted(
    spark: Any, landing: MadeLanding, roots: tuple[str, str], tmp_path: Path
) -> None:
    bronze, end = bronze_of(spark, landing, roots), 0
    for n in range(3):
        end = land(landing, [MadeRecord("A", stored_ms=T0)] * (n + 1), start=end)
        bronze.write(landed_items(landing.root))
        take_in(spark, *roots)
    DeltaTable(roots[0]).restore(1)
    bronze.write(landed_items(landing.root))
    with pytest.raises(
        TableError, match=r"RESTORE of .*bronze took back version 2, whose rows were read: RESTORE what"
    ):
        take_in(spark, *roots)
    anew = str(tmp_path / "anew")
    assert (take_in(spark, roots[0], anew), figures(spark, anew)) == (5, {"b": 6})
    DeltaTable(roots[1]).restore(1)  # silver as it was when bronze had version 1
    assert (take_in(spark, *roots), figures(spark, roots[1])) == (5, {"b": 6})


def test_a_new_table_begins_with_what_bronze_is_although_its_first_versions_have_left_the_log(
    spark: Any, landing: MadeLanding, roots: tuple[str, str]
) -> None:
    bronze, end = bronze_of(spark, landing, roots), 0
    for _ in range(3):
        end = land(landing, [MadeRecord("A", stored_ms=T0)] * 2, start=end)
        bronze.write(landed_items(landing.root))
    DeltaTable(roots[0]).create_checkpoint()
    for version in range(3):
        (Path(roots[0]) / LOG / f"{version:020d}.json").unlink()
    assert (take_in(spark, *roots), figures(spark, roots[1])) == (3, {"b": 6})
    assert take_in(spark, *roots) == 3


def test_a_file_that_was_vacuumed_before_it_was_read_is_named(
    spark: Any, landing: MadeLanding, roots: tuple[str, str]
) -> None:
    bronze, end, paths = bronze_of(spark, landing, roots), 0, list[str]()
    for _ in range(4):
        end = land(landing, [MadeRecord("A", stored_ms=T0)], start=end)
        bronze.write(landed_items(landing.root))
        take_in(spark, *roots) if not paths else None
        paths = [file.path for file in Table(roots[0]).snapshot().part("data")]
    (Path(roots[0]) / paths[1]).unlink()  # in the middle of what is unread
    with pytest.raises(TableError, match=f"{paths[1]} of .* was vacuumed before silver read it"):
        take_in(spark, *roots)
