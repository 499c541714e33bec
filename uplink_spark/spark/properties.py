"""The properties of stored records, cut into names and values for many rows at once, and the columns made of them.

Stored they read name 01 value 02 name 01 value …, with or without a last 02. Rows of one producer have the same names
in the same order: then the bytes 01 and 02 of all rows are a table, and no name is looked up. Any other rows are cut
piece by piece. A row that is not UTF-8 has no properties. A piece without name, 01 or value is ignored; the later of
two wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from uplink_spark.spark.fields import LIST, MAP, repeated
from uplink_spark.zone.record_layout import Bytes, Ints

_SEEN_LIMIT = 1 << 26  # cells of the table that finds repeated names; above it a sort is cheaper
_ASSIGN, _CUT, _BLANK = 1, 2, 32


class _Alike(NamedTuple):
    """All rows have these names, in this order; `values` holds the values of row 0, then those of row 1 …"""

    names: tuple[str, ...]
    values: pa.Array


class _Pairs(NamedTuple):
    """The pairs of all rows, rows ascending."""

    row: Ints
    names: pa.DictionaryArray
    values: pa.Array


@dataclass(frozen=True)
class Properties:
    """The properties of each row."""

    stored: pa.Array  # string; null where the bytes are not UTF-8

    @cached_property
    def _buffers(self) -> tuple[Ints, Bytes]:
        return _string_buffers(self.stored)

    @cached_property
    def _alike(self) -> _Alike | None:
        return _same_names(*self._buffers)

    @cached_property
    def _cut(self) -> _Pairs:
        edges, data = self._buffers
        row, starts, ends, assigns = _pieces(edges, data)
        assign = _first_assigns(assigns, starts, ends, len(data))
        good = (assign > starts) & (assign + 1 < ends)
        if not good.all():
            starts, assign, ends, row = starts[good], assign[good], ends[good], row[good]
        fields = _words(data, (starts, assign, assign + 1, ends))
        take = 4 * np.arange(len(starts), dtype=np.int32)
        names, values = fields.take(pa.array(take)).dictionary_encode(), fields.take(pa.array(take + 2))
        return self._last_of_each_name(_Pairs(row, names, values))

    def _last_of_each_name(self, pairs: _Pairs) -> _Pairs:
        width = max(1, len(pairs.names.dictionary))
        key = pairs.row * width + pairs.names.indices.to_numpy(zero_copy_only=False)
        if len(self.stored) * width <= _SEEN_LIMIT:
            seen = np.zeros(len(self.stored) * width, np.bool_)
            seen[key] = True
            if int(np.count_nonzero(seen)) == len(key):
                return pairs
        _, last = np.unique(key[::-1], return_index=True)
        keep = np.sort(len(key) - 1 - last)
        return _Pairs(pairs.row[keep], pairs.names.take(pa.array(keep)), pairs.values.take(pa.array(keep)))

    @cached_property
    def maps(self) -> pa.Array:
        """The column of maps."""
        rows = len(self.stored)
        if self._alike is not None:
            names, values = self._alike
            offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * np.int32(len(names)))
            return pa.MapArray.from_arrays(offsets, repeated(names, rows), values).cast(MAP)
        row, found, values = self._cut
        edges = np.zeros(rows + 1, np.int32)
        np.cumsum(np.bincount(row, minlength=rows), out=edges[1:])
        offsets = pa.array(edges) if self.stored.null_count == 0 else _with_nulls(edges, self.stored.is_valid())
        return pa.MapArray.from_arrays(offsets, found.cast(pa.string()), values).cast(MAP)

    def value_of(self, name: str) -> pa.Array:
        """Return the value of one property in each row, null if there is none."""
        rows = len(self.stored)
        if self._alike is not None:
            names, values = self._alike
            if name not in names:
                return pa.nulls(rows, pa.string())
            return values.take(pa.array(np.arange(rows) * len(names) + names.index(name)))
        row, found, values = self._cut
        code = pc.index(found.dictionary, name).as_py()
        if code < 0:
            return pa.nulls(rows, pa.string())
        where = np.flatnonzero(found.indices.to_numpy(zero_copy_only=False) == code)
        if len(where) == rows:
            return values.take(pa.array(where))
        at = np.full(rows, -1, np.int64)
        at[row[where]] = where
        return values.take(pa.array(at, mask=at < 0))


def _same_names(edges: Ints, data: Bytes) -> _Alike | None:
    """Return the pairs of rows that all have the same names, each name once and no piece odd; None for any others."""
    rows, marks = len(edges) - 1, np.flatnonzero(data <= _CUT)
    if not rows or not len(marks) or len(marks) % rows:
        return None
    table = marks.reshape(rows, -1)
    assigns, ends = table[:, 0::2], table[:, 1::2]
    closed = ends.shape[1] == assigns.shape[1]  # whether the last value is followed by 02
    if not closed:
        ends = np.column_stack((ends, edges[1:]))
    behind = ends[:, -1] + closed
    if (behind != edges[1:]).any() or (table[:, 0] < edges[:-1]).any() or (assigns + 1 >= ends).any():
        return None
    starts = [0, *(ends[0, :-1] + 1).tolist()]
    names = [data[start:end].tobytes() for start, end in zip(starts, assigns[0].tolist(), strict=True)]
    if b"" in names or len(set(names)) < len(names):
        return None
    words = _words(data, ((assigns + 1).reshape(-1), ends.reshape(-1)))  # value, what is between it and the next …
    at = 2 * np.arange(ends.size, dtype=np.int32)
    between = [b"\2%b\1" % name for name in names]
    between[0] = between[0] if closed else between[0][1:]
    expected = repeated([text.decode() for text in (*between[1:], between[0])], rows)
    outermost = data[marks[0]] == _ASSIGN and (not closed or data[marks[-1]] == _CUT)
    if not outermost or not words.take(pa.array(at[:-1] + 1)).equals(expected[:-1]):
        return None
    return _Alike(tuple(name.decode() for name in names), words.take(pa.array(at)))


def _words(data: Bytes, borders: tuple[Ints, ...]) -> pa.Array:
    """Return what is between each border and the next one, borders[0][0] first, then borders[1][0] …, as strings."""
    width = len(borders)
    edges = np.empty(width * len(borders[0]) + 1, np.int32)
    for position, border in enumerate(borders):
        edges[position:-1:width] = border
    edges[-1] = len(data)
    return pa.StringArray.from_buffers(len(edges) - 1, pa.py_buffer(edges), pa.py_buffer(data))


def _pieces(edges: Ints, data: Bytes) -> tuple[Ints, Ints, Ints, Ints]:
    """Return (row, start, end) of each piece between bytes 02 that is not empty, and where the bytes 01 are."""
    marks = np.flatnonzero(data <= _CUT)
    found = data[marks]
    assigns, cuts = marks[found == _ASSIGN], marks[found == _CUT]
    rows = len(edges) - 1
    before = np.searchsorted(cuts, edges)
    begins_row = np.zeros(rows + len(cuts) + 1, np.bool_)
    begins_row[np.arange(rows + 1) + before] = True  # and one after the last
    starts = np.empty(len(begins_row), np.int64)
    starts[begins_row], starts[~begins_row] = edges, cuts + 1
    ends = starts[1:] - ~begins_row[1:]
    row, starts = np.repeat(np.arange(rows), np.diff(before) + 1), starts[:-1]
    filled = starts < ends
    return (row, starts, ends, assigns) if filled.all() else (row[filled], starts[filled], ends[filled], assigns)


def _first_assigns(assigns: Ints, starts: Ints, ends: Ints, size: int) -> Ints:
    """Return where the first byte 01 at or after each start is, `size` if there is none."""
    if len(assigns) == len(starts) and bool(((assigns >= starts) & (assigns < ends)).all()):
        return assigns  # one in each piece, as clients write them
    after: Ints = np.append(assigns, size)[np.searchsorted(assigns, starts)]
    return after


def _with_nulls(edges: npt.NDArray[np.int32], validity: pa.Array) -> pa.Array:
    missing = ~validity.to_numpy(zero_copy_only=False)
    return pa.array(edges, mask=np.append(missing, False))


def _string_buffers(values: pa.Array) -> tuple[npt.NDArray[np.int64], Bytes]:
    """Return (edges, bytes) of a string array, edges counted from the first byte."""
    _, edges, data = values.buffers()
    positions = np.frombuffer(edges, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    if data is None or not len(values):
        return np.zeros(len(values) + 1, np.int64), np.empty(0, np.uint8)
    return positions - positions[0], np.frombuffer(data, np.uint8)[positions[0] : positions[-1]]


def split_keys(values: pa.Array) -> pa.Array:
    """Return the words of each value as a list; blanks separate, empty words do not count."""
    if not (_string_buffers(values)[1] == _BLANK).any() and not pc.any(pc.equal(values, "")).as_py():
        return _lists_of_one(values)
    words = pc.split_pattern(pc.utf8_trim(values, " "), " ")
    if pc.any(pc.equal(words.flatten(), "")).as_py():
        return pa.array([row and [word for word in row if word] for row in words.to_pylist()], LIST)
    return words.cast(LIST)


def _lists_of_one(values: pa.Array) -> pa.Array:
    edges = np.zeros(len(values) + 1, np.int32)
    if not values.null_count:
        return pa.ListArray.from_arrays(pa.array(np.arange(len(values) + 1, dtype=np.int32)), values).cast(LIST)
    np.cumsum(values.is_valid().to_numpy(zero_copy_only=False), out=edges[1:])
    return pa.ListArray.from_arrays(_with_nulls(edges, values.is_valid()), values.drop_null()).cast(LIST)


TRACERS = {  # property → where the trace id stands in it
    "traceparent": r"^[0-9a-f]{2}-(?P<id>[0-9a-f]{32})-",  # W3C Trace Context
    "uber-trace-id": r"^(?P<id>[0-9a-fA-F]{1,32})(?::|%3[aA])",  # OpenTracing with Jaeger, which drops leading zeros
    "b3": r"^(?P<id>[0-9a-fA-F]{16,32})-",  # OpenTracing with Zipkin, in one header
    "X-B3-TraceId": r"^(?P<id>[0-9a-fA-F]{16,32})$",
}


def trace_ids(properties: Properties) -> pa.Array:
    """Return the trace each row belongs to, 32 lower-case hex digits, whichever tracer wrote it; null without one."""
    ids = pa.nulls(len(properties.stored), pa.string())
    for name, form in TRACERS.items():
        values = properties.value_of(name)
        if values.null_count < len(values):
            found = pc.struct_field(pc.extract_regex(values, form), "id")
            ids = pc.coalesce(ids, pc.utf8_lpad(pc.ascii_lower(found), 32, "0"))
    return ids
