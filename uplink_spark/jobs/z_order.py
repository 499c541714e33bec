"""Rows along a z-curve over box and topic, so that row groups hold few of both.

Each value gets the share of the rows that lie before it as a number of 16 bits; the bits of both are interleaved. By
shares, not by names: a topic that has half of the rows takes half of the curve.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

AXES = ("topic", "box")  # the later one has the higher of two bits
PLACE = "_place"
BITS = 16


def spread(number: int) -> int:
    """Return the number with a zero before each of its bits."""
    return sum((number >> bit & 1) << 2 * bit for bit in range(BITS))


def places(rows_of: Mapping[str, int]) -> dict[str, int]:
    """Return for each value the spread number of the share of rows before it, by the order of values."""
    whole, before, found = sum(rows_of.values()), 0, {}
    for value in sorted(rows_of):
        found[value] = spread((before << BITS) // whole)
        before += rows_of[value]
    return found


def with_place(rows: DataFrame) -> DataFrame:
    """Return the rows with their place on the curve as one more column."""
    placed, place = rows, F.lit(0).cast("bigint")
    for shift, name in enumerate(AXES):
        counted = rows.where(F.col(name).isNotNull()).groupBy(name).count().collect()
        found = [(value, at << shift) for value, at in places({row[0]: row[1] for row in counted}).items()]
        known = rows.sparkSession.createDataFrame(found, f"{name} string, {PLACE}_{name} bigint")
        placed = placed.join(F.broadcast(known), name, "left")
        place += F.coalesce(F.col(f"{PLACE}_{name}"), F.lit(0).cast("bigint"))
    return placed.select(*rows.columns, place.alias(PLACE))
