"""What `check --deep` finds in records that landed: those whose bytes changed before anybody hashed them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from uplink_spark.centre.fleet import check
from uplink_spark.testing import MadeLanding, MadeRecord, encode_log, encode_record, gap_piece, raw_piece
from uplink_spark.zone.reader import ZoneReader

RECORDS = [MadeRecord("orders", number % 2, number // 2, b"b" * 50, "KEYS\1k\2") for number in range(10)]
RAW, SIZE = encode_log(RECORDS), len(encode_record(RECORDS[0], 0))


def findings(folder: Path, raw: bytes, start: int = 0) -> list[str]:
    landing = MadeLanding(folder / "landing")
    landing.land(raw_piece(raw, start), gap_piece(start + len(raw), 9000, {"id": [7, 1], "class": "missing"}))
    landing.close()
    (result,) = check(ZoneReader(str(landing.root)), deep=True)
    assert (result.sha_ok, result.records, result.marked) == (1, len(raw) // SIZE, 0)
    return [text.removeprefix("seq 0: box-17: ") for text in result.findings]


def changed(at: int, value: bytes) -> bytes:
    return RAW[:at] + value + RAW[at + len(value) :]


@pytest.mark.parametrize("records", [RECORDS, [MadeRecord("gone", 0, 7), MadeRecord("gone"), MadeRecord("gone", 0, 1)]])
def test_records_that_are_whole_are_no_finding(records: Sequence[MadeRecord], tmp_path: Path) -> None:
    landing = MadeLanding(tmp_path / "landing")
    landing.land(raw_piece(encode_log(records), 0))
    landing.close()
    (result,) = check(ZoneReader(str(landing.root)), deep=True)
    assert (result.findings, result.records) == ([], len(records))


@pytest.mark.parametrize(
    ("at", "value", "found"),
    [
        (3 * SIZE + 100, b"\xff", "log offset 462: the body does not match its CRC"),
        (2 * SIZE + 8, bytes(4), "log offset 308: the body does not match its CRC"),
        (SIZE + 88 + 50 + 1, b"\xff", "log offset 154: the topic is not UTF-8"),
        (6 * SIZE + 27, b"\1", "log offset 924: queue offset 1 of orders/0 after 2"),
    ],
)
def test_damage_that_was_there_before_the_digest_is_found(at: int, value: bytes, found: str, tmp_path: Path) -> None:
    assert SIZE == 154
    assert findings(tmp_path, changed(at, value)) == [found]


def test_of_many_bad_records_a_few_are_told_and_the_rest_counted(tmp_path: Path) -> None:
    bad = encode_log([MadeRecord("t", 0, number, b"b" * 62) for number in range(10)]).replace(b"bbb", b"bab")
    assert len(bad) == 10 * SIZE
    assert findings(tmp_path, bad)[2:] == [
        f"log offset {2 * SIZE}: the body does not match its CRC",
        "and 7 more records",
    ]
