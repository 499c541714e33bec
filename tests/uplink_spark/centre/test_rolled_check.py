"""`check` compares the rolled-up entries, which Spark plans from, with those of the manifest."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from uplink_spark.centre.fleet import check
from uplink_spark.centre.rolled_check import RolledCheck
from uplink_spark.testing import MadeLanding, MadeRecord, log_piece
from uplink_spark.zone import rollup
from uplink_spark.zone.entry_table import encode_table, table_of
from uplink_spark.zone.manifest import encode_items
from uplink_spark.zone.reader import ZoneReader
from uplink_spark.zone.rollup import HEAD, encode_rolled, rolled_folder, rolled_path


@pytest.fixture
def landing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeLanding:
    """A zone of 6 entries of which 0..2 and 2..4 are rolled up."""
    monkeypatch.setattr(rollup, "ROLLED_ENTRIES", 2)
    made = MadeLanding(tmp_path / "zone")
    for number in range(6):
        made.land(log_piece([MadeRecord(queue_offset=number)], number * 97))
    made.close()
    assert len(list((made.root / "manifest/0000/rolled").iterdir())) >= 2
    return made


def findings(landing: MadeLanding) -> list[str]:
    (result,) = check(ZoneReader(str(landing.root)), deep=False)
    assert result.entries == 6
    return result.findings


def test_what_a_gateway_rolled_up_is_what_it_wrote(landing: MadeLanding) -> None:
    assert findings(landing) == []


def test_another_entry_a_damaged_file_other_columns_and_a_range_without_manifest_are_found(
    landing: MadeLanding,
) -> None:
    zone = ZoneReader(str(landing.root))
    entries = list(zone.entries({}, zone.ends()))
    wrong = replace(entries[1], records=99)
    first, second = (landing.root / rolled_path(0, at, at + 2) for at in (0, 2))
    other = encode_rolled(0, encode_items([entries[0], wrong]))
    assert first.exists()
    first.write_bytes(other)
    second.write_bytes(second.read_bytes()[:-1] + b"x")
    (landing.root / rolled_path(0, 90, 92)).write_bytes(b"")
    told = findings(landing)
    assert told[0].startswith(f"{rolled_path(0, 0, 2)}: seq 1 is not the entry of the manifest; remove the file")
    assert told[1].startswith(f"{rolled_path(0, 2, 4)}: rolled-up entries with a wrong CRC-32; remove the file")
    assert told[2].startswith(f"{rolled_path(0, 90, 92)}: has entries that the manifest, which ends at seq 6, has not")
    good = encode_rolled(0, encode_items(entries[:2]))
    table = encode_table(table_of(0, [entries[0].encode(), wrong.encode()]))
    columns = zstandard.ZstdCompressor().compress(table)
    _, _, length = HEAD.unpack_from(good)
    body = columns + good[HEAD.size + length :]
    first.write_bytes(HEAD.pack(rollup.MAGIC, zlib.crc32(body), len(columns)) + body)
    assert findings(landing)[0].startswith(f"{rolled_path(0, 0, 2)}: the columns are of other entries; remove the file")


def test_a_file_that_was_replaced_while_the_check_runs_is_no_finding(landing: MadeLanding) -> None:
    zone, told = ZoneReader(str(landing.root)), list[str]()
    looked = RolledCheck(zone.files, 0, told.append)
    for path in (landing.root / rolled_folder(0)).iterdir():
        path.unlink()
    for entry in zone.entries({}, zone.ends()):
        looked.compare(entry)
    looked.finish(6)
    assert told == []
