"""What a batch of foreachBatch contains, out of the checkpoint that Spark writes before it."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from uplink_spark import spark_source
from uplink_spark.errors import ConfigError
from uplink_spark.jobs.offset_range import OffsetRange, offset_range
from uplink_spark.jobs.testing import Fleet


def note(checkpoint: Path, batch: int, *offsets: str) -> None:
    (checkpoint / "offsets").mkdir(exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(["v1", "{}", *offsets]))


def test_a_batch_goes_from_the_end_of_the_one_before_to_its_own(tmp_path: Path) -> None:
    note(tmp_path, 0, '{"0": 4, "1": 2, "zone": "ab", "last": {"0": "seq 3"}}')
    note(tmp_path, 1, '{"0": 4, "1": 9, "zone": "ab"}')
    first, second = offset_range(str(tmp_path), 0), offset_range(str(tmp_path), 1)
    assert (first.start, first.end, first.version) == ({}, {"0": 4, "1": 2}, 6)
    assert second == OffsetRange({"0": 4, "1": 2}, {"0": 4, "1": 9}, '{"0": 4, "1": 9, "zone": "ab"}')
    assert second.version > first.version


def test_of_several_sources_one_is_chosen(tmp_path: Path) -> None:
    note(tmp_path, 0, '{"other": 1}', '{"0": 4}')
    assert offset_range(str(tmp_path), 0, source=1).end == {"0": 4}
    with pytest.raises(ConfigError, match="batch 0 has no offset of source 2"):
        offset_range(str(tmp_path), 0, source=2)


def test_a_checkpoint_of_another_query_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no offsets of batch 3: is it the one of this query"):
        offset_range(str(tmp_path), 3)


@pytest.mark.slow
def test_a_sink_that_keeps_the_version_has_each_row_once_after_its_checkpoint_is_lost(
    spark: Any, fleet: Fleet, tmp_path: Path
) -> None:
    kept: list[OffsetRange] = []
    rows: Counter[tuple[str, bytes]] = Counter()

    def run(checkpoint: str, **options: object) -> None:
        def write(batch: Any, number: int) -> None:
            found = offset_range(checkpoint, number)
            if not kept or found.version > kept[-1].version:
                rows.update((row["box"], bytes(row["body"])) for row in batch.collect())
                kept.append(found)

        stream = spark_source.read(spark, str(fleet.landing.root), stream=True, maxPiecesPerTrigger=2, **options)
        query = stream.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()

    for _ in range(3):
        fleet.land("box-1", 4)
    run(str(tmp_path / "one"))
    assert [(found.start, found.end) for found in kept] == [({}, {"0": 2}), ({"0": 2}, {"0": 3})]
    fleet.land("box-1", 4)
    run(str(tmp_path / "two"), startingOffsets=kept[-1].text)
    run(str(tmp_path / "three"))  # from the beginning: its batches are not after what is there
    assert rows == fleet.expected
