"""The term table of a log: which leader appended which bytes. Term beside the log, not in it.

A row says: from `start` on, until the next row, the bytes were appended in this term. Starts and terms rise strictly.
A row never begins at or above the end of its log, except for the moment between its sync and its first byte.
"""

from collections.abc import Sequence
from itertools import pairwise

from storage_driver.named_tuple import NamedTuple

ROWS_KEPT = 1024


class Row(NamedTuple):
    """From this log offset on the bytes are of this term."""

    term: int
    start: int


Rows = tuple[Row, ...]


def term_below(rows: Sequence[Row], log_offset: int) -> int:
    """Return the term of the byte before a log offset; 0 when no row covers it."""
    for row in reversed(rows):
        if row.start < log_offset:
            return row.term
    return 0


def row_at(rows: Sequence[Row], log_offset: int) -> Row:
    """Return the row of the byte at a log offset; term 0 from 0 on when none covers it."""
    for row in reversed(rows):
        if row.start <= log_offset:
            return row
    return Row(0, 0)


def row_end(rows: Sequence[Row], term: int, end: int) -> int:
    """Return where the row of a term ends, in a log that ends at `end`."""
    for row in rows:
        if row.term > term:
            return min(row.start, end)
    return end


def rows_below(rows: Sequence[Row], log_offset: int) -> Rows:
    """Return the rows that have bytes below a log offset: the table after a cut there."""
    return tuple(row for row in rows if row.start < log_offset)


def with_row(rows: Sequence[Row], row: Row) -> Rows:
    """Return the table with one more row behind. Raises ValueError when it does not rise."""
    kept = rows_below(rows, row.start)
    if kept and kept[-1].term >= row.term:
        raise ValueError(f"term {row.term} at {row.start} after term {kept[-1].term} at {kept[-1].start}")
    return (*kept, row)[-ROWS_KEPT:]


def are_rising(rows: Sequence[Row]) -> bool:
    """Return whether rows can be a term table: terms from 1 on and starts rise, starts are no less than 0."""
    return all(row.term > 0 and row.start >= 0 for row in rows) and all(
        before.term < after.term and before.start < after.start for before, after in pairwise(rows)
    )


def common_point(ours: Sequence[Row], our_end: int, theirs: Sequence[Row], their_end: int) -> int | None:
    """Return up to where two logs are the same bytes; None when no row is common: two foreign logs.

    Two logs that begin a term at the same log offset have the same bytes below it, and above it up to where the term
    ends in either: a term has one leader, which only appends. So the newest common row decides, in one round.
    """
    known = {row.term: row.start for row in ours}
    for row in reversed(theirs):
        if known.get(row.term) == row.start:
            return min(row_end(ours, row.term, our_end), row_end(theirs, row.term, their_end))
    from_zero = ours and theirs and ours[0].start == theirs[0].start == 0
    return 0 if from_zero else None  # two that began a group's log at once have nothing below 0 to differ in
