"""Filters Spark hands over: what a reader takes must be exact, what only prunes must never lose a row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from uplink_spark.spark.rows import RowSelection
from uplink_spark.spark.source_filters import narrow
from uplink_spark.spark.source_options import SourceOptions
from uplink_spark.spark.source_plan import wanted
from uplink_spark.zone.entry_table import table_of
from uplink_spark.zone.manifest import ManifestEntry

BEGIN = datetime(2023, 11, 14, tzinfo=UTC)
COMPARE: dict[type[Filter], Any] = {
    GreaterThan: lambda row, value: row > value,
    GreaterThanOrEqual: lambda row, value: row >= value,
    LessThan: lambda row, value: row < value,
    LessThanOrEqual: lambda row, value: row <= value,
    EqualTo: lambda row, value: row == value,
}


def options(**view: Any) -> SourceOptions:
    return SourceOptions("/zone", RowSelection(**view))


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from(list(COMPARE)), st.integers(-5000, 5000)), max_size=4),
    st.integers(-6000, 6000),
)
def test_no_row_that_the_filters_want_is_pruned_by_its_millisecond(
    told: list[tuple[type[Filter], int]], micros: int
) -> None:
    filters = [kind(("store_time",), BEGIN + timedelta(microseconds=at)) for kind, at in told]
    narrowed = narrow(options(), filters)
    assert narrowed.left == filters  # Spark evaluates them all
    stored_ms = int(BEGIN.timestamp() * 1000) + micros // 1000
    row = BEGIN + timedelta(milliseconds=micros // 1000)  # store times have whole milliseconds
    if all(COMPARE[kind](row, BEGIN + timedelta(microseconds=at)) for kind, at in told):
        view = narrowed.options.view
        assert view.store_since_ms is None or view.store_since_ms <= stored_ms
        assert view.store_until_ms is None or stored_ms < view.store_until_ms


LOW, HIGH = 1000, 1040  # log offsets of a piece


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(list(COMPARE)), st.sampled_from(["log_offset", "seq", "landed_time"]), st.integers(-3, 3)
        ),
        max_size=4,
    ),
    st.integers(LOW, HIGH - 1),
)
def test_no_piece_with_a_row_that_the_filters_want_is_pruned(
    told: list[tuple[type[Filter], str, int]], log_offset: int
) -> None:
    landed = BEGIN + timedelta(milliseconds=7)
    row: dict[str, Any] = {"log_offset": log_offset, "seq": 9, "landed_time": landed}
    steps: dict[str, Any] = {"log_offset": 20, "seq": 1, "landed_time": timedelta(microseconds=300)}
    filters = [kind((column,), row[column] + steps[column] * by) for kind, column, by in told]
    narrowed = narrow(options(), filters)
    assert narrowed.left == filters
    landed_ms = landed.timestamp() * 1000
    entry = ManifestEntry(9, "log", "b", 5, 1, "p", 0, 9, LOW, HIGH, 4, 40, 1, 2, int(landed_ms), 0, 1)
    if all(COMPARE[kind](row[column], row[column] + steps[column] * by) for kind, column, by in told):
        assert bool(wanted(table_of(entry.seq, [entry.encode()]), narrowed.options)[0])


@pytest.mark.parametrize(
    ("one", "opened"),
    [
        (EqualTo(("seq",), 9), True),
        (EqualTo(("seq",), 8), False),
        (GreaterThan(("seq",), 8), True),
        (GreaterThan(("seq",), 9), False),
        (LessThan(("log_offset",), LOW), False),
        (LessThan(("log_offset",), LOW + 1), True),
        (GreaterThanOrEqual(("log_offset",), HIGH), False),
        (GreaterThanOrEqual(("log_offset",), HIGH - 1), True),
        (LessThan(("landed_time",), BEGIN), False),
        (GreaterThan(("landed_time",), BEGIN + timedelta(milliseconds=2)), False),
        (In(("seq",), (1, 2)), True),  # not understood: all pieces are read
    ],
)
def test_pieces_outside_of_a_range_are_not_opened(one: Filter, opened: bool) -> None:
    entry = ManifestEntry(
        9, "log", "b", 5, 1, "p", 0, 9, LOW, HIGH, 4, 40, 1, 2, int(BEGIN.timestamp() * 1000) + 1, 0, 1
    )
    table = table_of(entry.seq, [entry.encode()])
    assert wanted(table, narrow(options(), [one]).options).tolist() == [opened]


def test_topics_boxes_and_kinds_are_taken_over_and_only_ever_become_fewer() -> None:
    filters = [In(("topic",), ("a", "b")), EqualTo(("topic",), "b"), EqualTo(("box",), "x"), In(("box",), ("y",))]
    narrowed = narrow(options(), filters)
    assert narrowed.left == []
    assert narrowed.options.view.topics == frozenset({"b"})
    assert narrowed.options.boxes == frozenset()  # both cannot hold: no row
    kept = narrow(options(topics=frozenset({"c"})), [EqualTo(("topic",), "b")])
    assert kept.options.view.topics == frozenset()


def test_kind_is_taken_over_unless_all_records_are_read_raw() -> None:
    one = EqualTo(("kind",), "message")
    assert narrow(options(), [one]).left == []
    assert narrow(options(raw=True), [one]).left == [one]


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("topic",), None),
        EqualTo(("topic",), 5),
        In(("topic",), ("a", None)),
        EqualTo(("properties", "topic"), "a"),  # a field of a map
        GreaterThan(("topic",), "a"),
        EqualTo(("tags",), "a"),
        GreaterThan(("store_time",), "2023"),
        EqualTo(("born_time",), BEGIN),
        Not(EqualTo(("topic",), "a")),
        Not(GreaterThan(("seq",), 5)),
        IsNotNull(("seq",)),
    ],
)
def test_what_is_not_understood_is_left_to_spark_and_changes_nothing(one: Filter) -> None:
    narrowed = narrow(options(), [one])
    assert narrowed.left == [one]
    assert narrowed.options == options()
