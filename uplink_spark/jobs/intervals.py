"""Ranges of a log: what is covered by data, what was declared lost, what is still expected. Plain functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

Span = tuple[int, int]
NEVER_HEALED = frozenset(("damaged", "rejected", "cut", "alone"))  # what arrives later does not make these good


class Covered(NamedTuple):
    """One stretch of a log and what is known of it: landed, gap or pending."""

    start: int
    end: int
    state: str


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return the union of ranges, ascending, neighbours joined."""
    out: list[Span] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def minus(span: Span, taken: list[Span]) -> Iterator[Span]:
    """Yield what is left of a range without others (merged, ascending)."""
    at, last = span
    for start, end in taken:
        if end <= at:
            continue
        if start >= last:
            break
        if start > at:
            yield (at, start)
        at = max(at, end)
    if at < last:
        yield (at, last)


def coverage_of(landed: Iterable[Span], lost: Iterable[Span]) -> list[Covered]:
    """Return one log's stretches in order: data wins over a declared loss, what is between is still expected."""
    data = merged(landed)
    gaps = merged(rest for span in merged(lost) for rest in minus(span, data))
    known = sorted([Covered(*span, "landed") for span in data] + [Covered(*span, "gap") for span in gaps])
    out: list[Covered] = []
    for stretch in known:
        if out and out[-1].end < stretch.start:
            out.append(Covered(out[-1].end, stretch.start, "pending"))
        out.append(stretch)
    return out
