"""Counting gives the number of rows that reading gives, whatever options choose them."""

from typing import Any

import pytest

from uplink_spark import spark_source
from uplink_spark.jobs.count import count
from uplink_spark.testing import MadeLanding, MadeRecord, log_piece

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
