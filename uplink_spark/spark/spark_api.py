"""The parts of Spark's Python data source API that not every version has: limits of a trigger (4.2), filters (4.1).

Where a version lacks them the names stand for classes that Spark never hands over, so readers need no second form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import datasource

from uplink_spark.spark.source_plan import BatchLimit

__all__ = [
    "HAS_FILTERS",
    "HAS_LIMITS",
    "EqualTo",
    "Filter",
    "GreaterThan",
    "GreaterThanOrEqual",
    "In",
    "LessThan",
    "LessThanOrEqual",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxFiles",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "limit_of",
]
HAS_FILTERS = hasattr(datasource, "Filter")

if TYPE_CHECKING or HAS_FILTERS:
    from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual
else:

    class Filter:
        """What a query asks of a column."""

    class EqualTo(Filter):
        pass

    class In(Filter):
        pass

    class GreaterThan(Filter):
        pass

    class GreaterThanOrEqual(Filter):
        pass

    class LessThan(Filter):
        pass

    class LessThanOrEqual(Filter):
        pass


if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxBytes,
            ReadMaxFiles,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

        HAS_LIMITS = True
    except ImportError:
        HAS_LIMITS = False

        class ReadLimit:
            """How much a batch may hold."""

        class ReadAllAvailable(ReadLimit):
            pass

        @dataclass
        class ReadMaxBytes(ReadLimit):
            max_bytes: int

        @dataclass
        class ReadMaxRows(ReadLimit):
            max_rows: int

        @dataclass
        class ReadMaxFiles(ReadLimit):
            max_files: int

        class SupportsTriggerAvailableNow:
            """Spark fixes the end by itself."""


def limit_of(limit: ReadLimit) -> BatchLimit:
    """Return what one micro-batch may hold of what Spark asks for."""
    if isinstance(limit, ReadMaxBytes):
        return BatchLimit(raw_bytes=limit.max_bytes)
    if isinstance(limit, ReadMaxRows):
        return BatchLimit(rows=limit.max_rows)
    return BatchLimit(pieces=limit.max_files) if isinstance(limit, ReadMaxFiles) else BatchLimit()
