"""The stream reader as Spark drives it, offset by offset, without a JVM: limits, restarts, lost checkpoints."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from uplink_spark import spark_source
from uplink_spark.errors import LandingError
from uplink_spark.spark.source_options import OptionError, parse_options
from uplink_spark.spark.source_tasks import Content, MessageRows
from uplink_spark.spark_source import StreamReader
from uplink_spark.testing import MadeLanding, MadeRecord, log_piece

T0 = 1_700_000_000_000


class Driver:
    """Plans micro-batches until the reader has no more, as Spark's driver does under Trigger.AvailableNow."""

    def __init__(self, root: Path, **options: str) -> None:
        parsed = parse_options({"path": str(root), **options})
        self.now = 0.0
        content: Content = MessageRows(parsed)
        self.reader = StreamReader(parsed, content, clock=lambda: self.now)

    def available_now(self, start: dict[str, Any] | None = None) -> list[list[bytes]]:
        self.reader.prepareForTriggerAvailableNow()
        at = self.reader.initialOffset() if start is None else start
        batches = []
        while (end := self.reader.latestOffset(at, self.reader.getDefaultReadLimit())) != at:
            batches.append(self.rows(at, end))
            at = end
        return batches

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
        found: list[bytes] = []
        for partition in self.reader.partitions(start, end):
            for batch in self.reader.read(partition):
                found += batch.column("body").to_pylist()
        return found


def pieces(landing: MadeLanding, count: int, start: int = 0, first: int = 0) -> int:
    """Land pieces of two records each; their bodies are numbers."""
    for n in range(first, first + 2 * count, 2):
        records = [MadeRecord(body=b"%d" % number, stored_ms=T0 + number) for number in (n, n + 1)]
        piece = log_piece(records, start)
        landing.land(piece, now_ms=T0 + 1000 * n)
        start = piece[0].end
    return start


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [b"0 1 2 3 4 5"]),
        ({"maxPiecesPerTrigger": "2"}, [b"0 1 2 3", b"4 5"]),
        ({"maxRowsPerTrigger": "3"}, [b"0 1", b"2 3", b"4 5"]),
        ({"maxRowsPerTrigger": "4"}, [b"0 1 2 3", b"4 5"]),
        ({"maxBytesPerTrigger": "1"}, [b"0 1", b"2 3", b"4 5"]),
        ({"startingOffsets": '{"0": 1}', "maxPiecesPerTrigger": "1"}, [b"2 3", b"4 5"]),
        ({"startingOffsets": "latest"}, []),
        ({"startingTimestamp": str(T0 + 2000)}, [b"2 3 4 5"]),
        ({"minBytesPerTrigger": "1g", "maxTriggerDelay": "1h"}, [b"0 1 2 3 4 5"]),  # availableNow does not wait
    ],
)
def test_a_micro_batch_holds_what_was_admitted_and_at_least_one_piece(
    landing: MadeLanding, options: dict[str, str], wanted: list[bytes]
) -> None:
    pieces(landing, 3)
    assert [b" ".join(rows) for rows in Driver(landing.root, **options).available_now()] == wanted


def test_what_lands_during_available_now_waits_for_the_next_run(landing: MadeLanding) -> None:
    end = pieces(landing, 1)
    driver = Driver(landing.root)
    driver.reader.prepareForTriggerAvailableNow()
    pieces(landing, 1, end, 2)
    start = driver.reader.initialOffset()
    until = driver.reader.latestOffset(start, driver.reader.getDefaultReadLimit())
    assert (start["0"], until["0"]) == (0, 1)
    assert driver.reader.latestOffset(until, driver.reader.getDefaultReadLimit()) == until
    shown = driver.reader.reportLatestOffset()
    assert (shown["0"], shown["lag"]["ranges"]) == (2, 1)
    assert shown["lag"]["seconds"] > 0


def test_progress_shows_what_waits_behind_the_batch(landing: MadeLanding) -> None:
    pieces(landing, 3)
    reader = Driver(landing.root, maxPiecesPerTrigger="2").reader
    limit = reader.getDefaultReadLimit()
    assert reader.reportLatestOffset() == {"0": 3}  # nothing was planned yet
    middle = reader.latestOffset({"0": 0}, limit)
    assert reader.reportLatestOffset()["lag"]["ranges"] == 1
    reader.latestOffset(middle, limit)
    assert reader.reportLatestOffset() == {"0": 3, "lag": {"ranges": 0, "seconds": 0.0}}


def test_a_small_batch_waits_for_more_until_the_delay_is_over(landing: MadeLanding) -> None:
    end = pieces(landing, 1)
    driver = Driver(landing.root, minBytesPerTrigger="400", maxTriggerDelay="30s")
    limit = driver.reader.getDefaultReadLimit()
    assert driver.reader.latestOffset({"0": 0}, limit) == {"0": 0}
    driver.now = 29
    assert driver.reader.latestOffset({"0": 0}, limit) == {"0": 0}
    driver.now = 30
    assert driver.reader.latestOffset({"0": 0}, limit)["0"] == 1
    pieces(landing, 3, end, 2)
    assert driver.reader.latestOffset({"0": 1}, limit)["0"] == 4  # enough at once


def test_a_checkpoint_of_another_landing_zone_is_refused(landing: MadeLanding) -> None:
    pieces(landing, 1)
    with pytest.raises(LandingError, match="is this the landing zone the checkpoint was made with"):
        Driver(landing.root).reader.partitions({"0": 0}, {"0": 3})
    driver = Driver(landing.root)
    with pytest.raises(LandingError, match=r"needs seq 3 of shard 0, .* ends at 1: is this the landing zone"):
        driver.available_now({"0": 3})  # else it would wait, and leave out seq 1 and 2 when they land
    reader = Driver(landing.root, failOnDataLoss="false").reader
    assert reader.latestOffset({"0": 3}, reader.getDefaultReadLimit()) == {"0": 3}
    with pytest.raises(OptionError, match="shard 7 is not in this landing zone"):
        Driver(landing.root).reader.partitions({"7": 0}, {"7": 3})


def another(root: Path, copy: Path) -> None:
    """At the same path lies another landing zone, which has more than the one before."""
    shutil.rmtree(root)
    made = MadeLanding(root)
    pieces(made, 5, first=100)
    made.close()


def set_back(root: Path, copy: Path) -> None:
    """The landing zone is an older copy of itself, and has taken more since."""
    shutil.rmtree(root)
    copy.rename(root)
    made = MadeLanding(root)
    pieces(made, 5, 4096, 100)
    made.close()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            another,
            r"is of landing zone [0-9a-f]{8}, /.*/landing is [0-9a-f]{8}: is this the landing zone the checkpoint",
        ),
        (
            set_back,
            r"ends after seq 1: box-17 \S+ log 186..372 of shard 0, /.*/landing has seq 1: box-17 \S+ log 4096",
        ),
    ],
)
def test_a_zone_that_has_other_rows_where_the_checkpoint_ends_is_refused_though_it_has_more(
    landing: MadeLanding, change: Callable[[Path, Path], None], told: str
) -> None:
    end = pieces(landing, 1)
    landing.close()
    copy = shutil.copytree(landing.root, landing.root.with_name("copy"))
    landing = MadeLanding(landing.root)
    pieces(landing, 1, end, 2)
    landing.close()
    reader = Driver(landing.root).reader
    limit = reader.getDefaultReadLimit()
    start = reader.initialOffset()
    middle = reader.latestOffset(start, limit)
    assert json.loads(json.dumps(middle)) == middle  # so Spark keeps it
    change(landing.root, copy)
    for read in (
        lambda: Driver(landing.root).reader.latestOffset(middle, limit),
        lambda: Driver(landing.root).reader.partitions(start, middle),  # a batch that did not end
        lambda: Driver(landing.root, startingOffsets=json.dumps(middle)).reader.initialOffset(),
    ):
        with pytest.raises(LandingError, match=told):
            read()
    old = Driver(landing.root).reader.latestOffset({"0": 2}, limit)  # a checkpoint that names no zone
    assert old["0"] > 2
    assert Driver(landing.root).available_now(old) == []


def test_a_stream_does_not_go_on_in_a_zone_that_was_put_in_place_of_its_own(
    landing: MadeLanding, tmp_path: Path
) -> None:
    pieces(landing, 2)
    landing.close()
    driver = Driver(landing.root)
    assert len(driver.available_now()) == 1
    offset = driver.reader.initialOffset()
    another(landing.root, tmp_path)
    with pytest.raises(LandingError, match=r"was landing zone .* now: mount the former zone and start again"):
        driver.reader.latestOffset(offset, driver.reader.getDefaultReadLimit())
    shutil.rmtree(landing.root)
    with pytest.raises(LandingError, match="no landing zone at"):
        driver.reader.latestOffset(offset, driver.reader.getDefaultReadLimit())


@pytest.mark.parametrize("stamp", ['"zone": 5, "last": []', '"zone": "ab", "last": {"1": "x"}', '"last": {}'])
def test_a_position_that_is_no_streams_is_refused_by_name(landing: MadeLanding, stamp: str) -> None:
    with pytest.raises(OptionError, match="startingOffsets"):
        Driver(landing.root, startingOffsets=f'{{"0": 0, {stamp}}}')


@pytest.mark.slow
def test_a_batch_bounded_by_bytes_has_no_more_ranges_than_a_driver_holds(
    landing: MadeLanding, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces(landing, 5)
    monkeypatch.setattr(spark_source, "MAX_RANGES", 2)
    counts = [len(batch) // 2 for batch in Driver(landing.root).available_now()]
    assert counts == [2, 2, 1]
    assert [len(batch) // 2 for batch in Driver(landing.root, maxPiecesPerTrigger="4").available_now()] == [4, 1]
