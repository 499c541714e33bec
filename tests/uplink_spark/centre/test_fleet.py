"""What a landing zone tells about its boxes: states, torn status lines, exports over trims."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from uplink_spark.centre.fleet import SILENT_S, BoxFacts, boxes, check, consumers, export_log, positions
from uplink_spark.centre.zone_files.landing import NewPiece
from uplink_spark.centre.zone_files.records import CentreRecords
from uplink_spark.errors import LandingError
from uplink_spark.testing import SOURCE, MadeLanding, MadeRecord, encode_log, raw_piece
from uplink_spark.zone.files import LocalFiles
from uplink_spark.zone.manifest import shard_of
from uplink_spark.zone.reader import ZoneReader

NOW = 1_700_000_000_000
SIZE = 97
RAW = encode_log([MadeRecord(queue_offset=n) for n in range(12)])


def part(first: int, last: int, low: int | None = None, high: int | None = None) -> NewPiece:
    """Records first..last as a piece of which only low..high is new."""
    header, container = raw_piece(RAW[first * SIZE : last * SIZE], first * SIZE)
    new = ((first if low is None else low) * SIZE, (last if high is None else high) * SIZE)
    return NewPiece(header, container, (new,))


@pytest.mark.parametrize(
    ("silent_ms", "durable", "landed", "state"),
    [
        (0, None, 10, "live"),
        (SILENT_S * 1000, 10, 10, "live"),
        (SILENT_S * 1000 + 1, 10, 10, "silent"),
        (0, 11, 10, "live, backlog"),
        (0, 9, 10, "live"),  # its status is older than what has landed
    ],
)
def test_the_state_of_a_box(silent_ms: int, durable: int | None, landed: int, state: str) -> None:
    facts = BoxFacts("box-17", landed_end=landed, landed_ms=NOW - silent_ms, durable=durable)
    assert facts.state(NOW) == state


def test_a_status_line_that_is_half_written_is_passed_over_and_the_newest_counts(tmp_path: Path) -> None:
    landing = MadeLanding(tmp_path / "zone", shards=3)
    landing.land(part(0, 4), part(8, 10), now_ms=NOW)
    folder = tmp_path / f"zone/status/{shard_of('box-17', 3):04x}"
    folder.mkdir(parents=True)
    line = {"box": "box-17", "durable": 5, "received_ms": NOW}
    (folder / "2023-11-13.jsonl").write_text(json.dumps(line) + "\n")
    newer = json.dumps(line | {"durable": 1000})
    (folder / "2023-11-14.jsonl").write_text(newer + "\n" + newer[:20] + "\n" + newer.replace("1000", "1100") + "\n{")
    (facts,) = boxes(ZoneReader(str(landing.root)))
    assert (facts.durable, facts.landed_end, facts.pending_bytes) == (1100, 10 * SIZE, 4 * SIZE)
    assert facts.lag() == 1100 - 10 * SIZE + 4 * SIZE
    landing.close()


def test_a_box_that_was_admitted_is_shown_before_anything_lands(tmp_path: Path) -> None:
    landing = MadeLanding(tmp_path / "zone", shards=3)
    CentreRecords(landing.root, 3).save("box-9", 5, ((7, 0),))
    (facts,) = boxes(ZoneReader(str(landing.root)))
    assert (facts.box, facts.state(NOW), facts.lag(), facts.landed_end) == ("box-9", "new", None, 0)


def test_a_box_that_was_only_heard_of_is_shown(tmp_path: Path) -> None:
    landing = MadeLanding(tmp_path / "zone")
    folder = tmp_path / "zone/status/0000"
    folder.mkdir(parents=True)
    (folder / "2023-11-14.jsonl").write_text(json.dumps({"box": "new", "durable": 7, "received_ms": NOW}) + "\n")
    (facts,) = boxes(ZoneReader(str(landing.root)))
    assert (facts.box, facts.landed_end, facts.lag()) == ("new", 0, 7)
    landing.close()


def test_an_export_takes_each_byte_once_where_pieces_overlap(tmp_path: Path) -> None:
    landing = MadeLanding(tmp_path / "zone")
    landing.land(part(0, 4), part(2, 8, low=4), part(6, 12, low=8))
    zone = ZoneReader(str(landing.root))
    for start, end in ((0, 12 * SIZE), (3 * SIZE + 7, 9 * SIZE - 7), (4 * SIZE, 4 * SIZE + 1), (5, 5)):
        assert b"".join(export_log(zone, "box-17", None, start, end)) == RAW[start:end]
    with pytest.raises(
        LandingError, match=f"box box-17: bytes from log offset {12 * SIZE} are not in the landing zone"
    ):
        list(export_log(zone, "box-17", None, 11 * SIZE, 12 * SIZE + 1))
    with pytest.raises(LandingError, match="box other"):
        list(export_log(zone, "other", None, 0, 1))
    landing.close()


def test_the_blank_that_ends_a_file_is_exported_as_zeros(tmp_path: Path) -> None:
    landing = MadeLanding(tmp_path / "zone")
    landing.land(raw_piece(RAW[: 2 * SIZE], 0, blank=30))
    found = b"".join(export_log(ZoneReader(str(landing.root)), "box-17", SOURCE.epoch, 0, 2 * SIZE + 30))
    assert found == RAW[: 2 * SIZE] + b"\0" * 30
    landing.close()


def test_a_piece_put_in_the_place_of_another_is_found_without_reading_it_whole(tmp_path: Path) -> None:
    landing = MadeLanding(tmp_path / "zone")
    entry = landing.land(part(0, 4))[0]
    other = raw_piece(RAW[4 * SIZE : 8 * SIZE], 4 * SIZE)[1]
    landing.close()
    (landing.root / entry.pack).write_bytes(other)
    (result,) = check(ZoneReader(str(landing.root)), deep=False)
    assert result.findings == [f"seq 0: {entry.pack} at 0: the piece is not the one the entry describes"]


@pytest.mark.parametrize("offsets", [{"0": 5, "2": 7}, '{"0": 5, "2": 7}'])
def test_positions_are_read_in_both_forms(offsets: object) -> None:
    assert positions({"offsets": offsets}) == {0: 5, 2: 7}
    assert positions({}) == {}


def test_no_consumers_are_none_and_one_that_is_no_json_is_named(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    assert consumers(files) == {}
    (tmp_path / "consumers").mkdir()
    (tmp_path / "consumers/a.json").write_text('{"offsets": {"0": 1}}')
    (tmp_path / "consumers/b.json.tmp").write_text("half")
    assert list(consumers(files)) == ["a"]
    (tmp_path / "consumers/c.json").write_text('{"offsets": {"shard": 1}}')
    with pytest.raises(LandingError, match=r"c\.json: .*remove it or let its consumer write it again"):
        consumers(files)
