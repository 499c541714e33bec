"""Entries as rows: each column from its field, times that no clock gives, losses as text."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from uplink_spark.spark.source_manifest import MANIFEST_SCHEMA, manifest_batch
from uplink_spark.testing import SOURCE, MadeLanding, MadeRecord, gap_piece, log_piece
from uplink_spark.zone.manifest import decode_entry


def test_each_column_is_its_field_and_the_entry_comes_back_from_its_bytes(tmp_path: Path) -> None:
    landing = MadeLanding(tmp_path / "zone")
    facts: dict[str, object] = {"id": [7, 1], "class": "missing", "reason": "ü", "queues": [["T", 0, 1, 2, 2]]}
    records = [MadeRecord(topic="B"), MadeRecord(topic="A")]
    log, gap = landing.land(log_piece(records), gap_piece(200, 300, facts))
    landing.close()
    batch = manifest_batch([(3, log.encode()), (3, gap.encode())])
    assert batch.schema == MANIFEST_SCHEMA
    first, second = batch.to_pylist()
    assert (first["shard"], first["seq"], first["kind"], first["box"]) == (3, 0, "log", "box-17")
    assert (first["from_offset"], first["to_offset"], first["records"]) == (0, log.end, 2)
    assert (first["epoch"], first["run"], first["clock_ok"], first["gap"]) == (SOURCE.epoch, SOURCE.run, True, None)
    assert (first["pack"], first["pack_offset"], first["stored_bytes"]) == (log.pack, 0, log.stored_bytes)
    assert first["topics"] == ["A", "B"]
    assert first["store_time_min"] == datetime(2023, 11, 14, 22, 13, 20, 1000, tzinfo=UTC)
    assert decode_entry(first["entry"]) == log
    assert (second["kind"], second["from_offset"], second["to_offset"]) == ("gap", 200, 300)
    assert json.loads(second["gap"]) == facts
    assert "ü" in second["gap"]


def test_a_time_no_calendar_has_is_no_error(tmp_path: Path) -> None:
    landing = MadeLanding(tmp_path / "zone")
    (entry,) = landing.land(log_piece([MadeRecord()]))
    landing.close()
    far = replace(entry, stored_ms_max=(1 << 63) - 1, cut_ms=1 << 62, clock_ok=0)
    batch = manifest_batch([(0, far.encode())])
    assert batch.num_rows == 1
    assert batch.column("clock_ok").to_pylist() == [False]


def test_no_entries_are_no_rows() -> None:
    assert manifest_batch([]).num_rows == 0
