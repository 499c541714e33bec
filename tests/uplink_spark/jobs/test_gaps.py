"""Losses as rows: what is not known is null and never 0."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from uplink_spark.jobs.gaps import GAPS_SCHEMA, gap_rows, lost_entry
from uplink_spark.testing import MadeLanding, MadeRecord, gap_piece, log_piece
from uplink_spark.zone.manifest import ManifestEntry

NOW = 1_700_000_000_000


def landed(tmp_path: Path, **facts: Any) -> tuple[ManifestEntry, ManifestEntry]:
    tmp_path.mkdir(exist_ok=True)
    landing = MadeLanding(tmp_path / "zone")
    gap = {"id": [7, 1], "class": "missing", "reason": "quota_bytes", **facts}
    first, second = landing.land(log_piece([MadeRecord()]), gap_piece(97, 300, gap))
    landing.close()
    return first, second


def test_a_gap_is_a_row_for_each_queue_it_touches(tmp_path: Path) -> None:
    log, gap = landed(
        tmp_path, since=NOW, until=NOW + 5, declared=NOW + 9, records=7,
        queues=[["T", 0, 10, 13, 4], ["T", 1, 5, 7, 3]],
    )  # fmt: skip
    batch = gap_rows([log, gap])
    assert batch.schema == GAPS_SCHEMA
    rows = batch.to_pylist()
    assert [
        (r["topic"], r["queue_id"], r["first_queue_offset"], r["last_queue_offset"], r["records"]) for r in rows
    ] == [
        ("T", 0, 10, 13, 4),
        ("T", 1, 5, 7, 3),
    ]
    assert {(r["from_offset"], r["to_offset"], r["class"], r["reason"]) for r in rows} == {
        (97, 300, "missing", "quota_bytes")
    }
    assert int(rows[0]["since"].timestamp() * 1000) == NOW


def test_what_a_gap_does_not_say_is_null(tmp_path: Path) -> None:
    _, gap = landed(tmp_path, since=0, queues=[])
    (row,) = gap_rows([gap]).to_pylist()
    for name in ("topic", "queue_id", "first_queue_offset", "records", "since", "until", "declared", "bytes_path"):
        assert row[name] is None, name
    _, counted = landed(tmp_path / "2", records=0)
    assert gap_rows([counted]).to_pylist()[0]["records"] == 0  # known to be none
    assert gap_rows([]).num_rows == 0


@pytest.mark.parametrize(
    "facts",
    [
        {"queues": [["T", 1 << 31, 0, 0, 1]]},
        *(
            {"queues": [], name: value}
            for name in ("records", "since")
            for value in ("x", b"x", [1], 1 << 63, -1 << 64)
        ),
    ],
)
def test_whatever_a_box_declares_is_a_row_and_ends_no_job(tmp_path: Path, facts: dict[str, Any]) -> None:
    _, gap = landed(tmp_path, **facts)
    (row,) = gap_rows([gap]).to_pylist()
    assert (row["class"], row["queue_id"], row["since"]) == ("missing", None, None)
    assert row["records"] == (1 if facts["queues"] else None)


def test_a_damaged_range_says_where_its_bytes_lie(tmp_path: Path) -> None:
    log, _ = landed(tmp_path)
    blob = replace(log, kind="blob", gap=None, offset=17)
    (row,) = gap_rows([blob]).to_pylist()
    assert (row["class"], row["bytes_path"]) == ("damaged", f"{log.pack}@17")


def test_a_lost_pack_counts_its_records_only_where_all_of_them_are_lost(tmp_path: Path) -> None:
    log, _ = landed(tmp_path)
    assert (lost_entry(log, NOW).gap or {})["records"] == 1
    trimmed = replace(log, start=log.start + 10)
    assert "records" not in (lost_entry(trimmed, NOW).gap or {})
    (row,) = gap_rows([lost_entry(trimmed, NOW)]).to_pylist()
    assert (row["class"], row["reason"], row["records"]) == ("damaged", "pack_lost", None)
