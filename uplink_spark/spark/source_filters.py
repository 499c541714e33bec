"""Filters that Spark hands to a batch reader: what the reader takes over, and what only prunes pieces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from uplink_spark.spark.fields import KINDS
from uplink_spark.spark.source_options import SourceOptions
from uplink_spark.spark.spark_api import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

_TIMES = frozenset(("store_time", "landed_time"))
_PRUNED = _TIMES | {"log_offset", "seq"}
_ANY = 1 << 64  # beyond every value


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """The options with the filters in them, and the filters Spark still has to evaluate."""

    options: SourceOptions
    left: list[Filter]


def narrow(options: SourceOptions, filters: Iterable[Filter]) -> PushedFilters:
    """Take over = and IN of topic, box and kind; keep = and ranges of times, log_offset and seq for pruning only."""
    left: list[Filter] = []
    for one in filters:
        path: tuple[str, ...] = getattr(one, "attribute", ())  # Not has none
        column = path[0] if len(path) == 1 else ""
        values = _values(one)
        if values is not None and (column in ("topic", "box") or (column == "kind" and not options.view.raw)):
            options = _with_values(options, column, values)
            continue
        left.append(one)
        if column in _PRUNED:
            options = _with_range(options, column, one)
    return PushedFilters(options, left)


def _values(one: Filter) -> frozenset[str] | None:
    if isinstance(one, EqualTo):
        values: tuple[Any, ...] = (one.value,)
    elif isinstance(one, In):
        values = tuple(one.value)
    else:
        return None
    return frozenset(values) if all(isinstance(value, str) for value in values) else None


def _with_values(options: SourceOptions, column: str, values: frozenset[str]) -> SourceOptions:
    view = options.view
    if column == "box":
        return replace(options, boxes=values if options.boxes is None else options.boxes & values)
    if column == "topic":
        return replace(options, view=replace(view, topics=values if view.topics is None else view.topics & values))
    kinds = frozenset(KINDS) if view.include is None else view.include
    return replace(options, view=replace(view, include=kinds & values))


def _with_range(options: SourceOptions, column: str, one: Filter) -> SourceOptions:
    """Narrow to the values the filter leaves, rounded outwards; Spark evaluates it exactly afterwards."""
    value = _whole(getattr(one, "value", None))
    if value is None:
        return options
    strict = 0 if column in _TIMES else 1  # the millisecond a time is in may hold later times
    low = value if isinstance(one, (EqualTo, GreaterThanOrEqual)) else None
    low = value + strict if isinstance(one, GreaterThan) else low
    high = value if isinstance(one, (EqualTo, LessThanOrEqual)) else None
    high = value - strict if isinstance(one, LessThan) else high
    if low is None and high is None:
        return options
    if column == "store_time":
        view = options.view
        since = [ms for ms in (low, view.store_since_ms) if ms is not None]
        until = [ms for ms in (None if high is None else high + 1, view.store_until_ms) if ms is not None]
        narrowed = replace(view, store_since_ms=max(since, default=None), store_until_ms=min(until, default=None))
        return replace(options, view=narrowed)
    lowest, highest = options.pruned.get(column, (-_ANY, _ANY))
    left = max(lowest, -_ANY if low is None else low), min(highest, _ANY if high is None else high)
    return replace(options, pruned={**options.pruned, column: left})


def _whole(value: object) -> int | None:
    """Return a number as it is, a time as the millisecond it is in, None for anything else."""
    if isinstance(value, datetime):
        when = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (when - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)
    return value if type(value) is int else None
