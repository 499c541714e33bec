"""Counting gives the number of rows that reading gives, whatever options choose them."""

from dataclasses import replace
from typing import Any

import pytest

from uplink_spark import spark_source
from uplink_spark.jobs.count import count
from uplink_spark.testing import SOURCE, MadeLanding, MadeRecord, log_piece

pytestmark = pytest.mark.slow
T0 = 1_700_000_000_000


def test_a_count_is_that_of_the_rows_that_are_read(spark: Any, landing: MadeLanding) -> None:
    where, end = str(landing.root), 0
    assert count(spark, where) == 0
    for topic in ("Vitals", "Alarm", "%RETRY%g"):
        piece = log_piece([MadeRecord(topic=topic, stored_ms=T0 + number) for number in range(50)], end)
        landing.land(piece)
        end = piece[0].end
    assert count(spark, where) == spark_source.read(spark, where, columns="seq").count() == 100
    assert count(spark, where, topics=["Alarm", "%RETRY%g"], include="all", storeSince=T0 + 40) == 20


def test_a_count_takes_the_options_of_a_read(spark: Any, landing: MadeLanding) -> None:
    where = str(landing.root)
    for number, box in enumerate(("box-1", "box-2"), 1):
        source = replace(SOURCE, box=box)
        vitals = [MadeRecord(topic="Vitals", stored_ms=T0 + at) for at in range(50)]
        landing.land(log_piece(vitals, source=source))
        landing.land(log_piece([MadeRecord(topic="Alarm")] * number, 1 << 20, source=source))
    chosen: list[tuple[dict[str, Any], int]] = [
        ({"boxes": ["box-2"]}, 52),
        ({"boxes": ["box-2"], "topics": ["Alarm"]}, 2),
        ({"topicPattern": "A.*"}, 3),
        ({"storeSince": T0 + 30, "storeUntil": T0 + 40, "boxes": "box-1"}, 10),
        ({"startingOffsets": "latest"}, 0),
        ({"endingTimestamp": "1970-01-02T00:00:00Z"}, 0),
    ]
    for options, wanted in chosen:
        found = spark_source.read(spark, where, columns="seq", **options).count()
        assert (count(spark, where, **options), found) == (wanted, wanted), options
