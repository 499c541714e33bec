"""Record bytes to Arrow columns: the raw bytes of landed pieces in, one RecordBatch out.

The raw buffer is, without a copy, the value buffer of a BinaryArray whose offsets run header, body, topic length,
topic, properties length, properties of every record; taking every sixth element copies all bodies at once. Pieces
that are neighbours in a pack are decoded in one pass, since a pass has a fixed cost of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from uplink_spark.errors import RecordsBad
from uplink_spark.spark import fields, properties
from uplink_spark.spark.bodies import Bodies, read_bodies
from uplink_spark.spark.fields import LIST, MAP, TIMESTAMP
from uplink_spark.spark.properties import Properties
from uplink_spark.zone.record_layout import Flags, Ints, Layout, lay_out, scan_sizes

SCHEMA = pa.schema(
    [
        ("box", pa.string()),
        ("epoch", pa.int64()),
        ("log_offset", pa.int64()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("kind", pa.string()),
        ("msg_id", pa.string()),
        ("tags", pa.string()),
        ("keys", LIST),
        ("body", pa.binary()),
        ("body_state", pa.string()),
        ("properties", MAP),
        ("flag", pa.int32()),
        ("sys_flag", pa.int32()),
        ("reconsume_times", pa.int32()),
        ("body_crc", pa.int32()),
        ("size", pa.int32()),
        ("prepared_offset", pa.int64()),
        ("born_time", TIMESTAMP),
        ("store_time", TIMESTAMP),
        ("landed_time", TIMESTAMP),
        ("born_host", pa.string()),
        ("store_host", pa.string()),
        ("clock_ok", pa.bool_()),
        ("shard", pa.int32()),
        ("seq", pa.int64()),
        ("traceparent", pa.string()),  # columns are added at the end alone: tables of bronze grow by them
        ("trace_id", pa.string()),
    ]
)
EXTRA = {"body_len": pa.int32()}  # columns one may ask for that are not in the default list
COLUMNS = tuple(SCHEMA.names)
MESSAGES = frozenset(("message",))


@dataclass(frozen=True, slots=True)
class Origin:
    """What all rows of one manifest entry share; only log offsets in [from_offset, to_offset) are its rows."""

    box: str
    epoch: int
    shard: int
    seq: int
    from_offset: int
    to_offset: int
    landed_ms: int
    clock_ok: bool
    skip: tuple[str, ...] = ()  # topics whose rows come from `pick` pieces


@dataclass(frozen=True, slots=True)
class RawPiece:
    """The raw bytes of one piece; sizes are its index (little-endian u32 each) or None."""

    origin: Origin
    raw: bytes
    sizes: bytes | None = None


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Which rows and columns a reader wants; None means all."""

    columns: tuple[str, ...] = COLUMNS
    include: frozenset[str] | None = MESSAGES
    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    tags: frozenset[str] | None = None
    store_since_ms: int | None = None
    store_until_ms: int | None = None
    raw: bool = False  # all records, stored bodies, `skip` ignored
    inflate: bool = True
    check_body_crc: bool = False
    properties_as_map: bool = True
    system_topics: frozenset[str] = field(default=frozenset())  # cluster and broker names of the fleet


EVERYTHING = RowSelection(include=None)


def schema_of(view: RowSelection) -> pa.Schema:
    """Return the Arrow schema of the batches that `decode` gives for this view."""
    return pa.schema([(name, _type_of(name, view)) for name in view.columns])


def _type_of(name: str, view: RowSelection) -> pa.DataType:
    if name == "properties" and not view.properties_as_map:
        return pa.string()
    return EXTRA[name] if name in EXTRA else SCHEMA.field(name).type


def decode(pieces: Sequence[RawPiece], view: RowSelection) -> pa.RecordBatch:
    """Return the rows of the pieces, in order. Raises RecordsBad where bytes are no records.

    All raw bytes together stay below 2 GiB, the reach of Arrow's 32-bit offsets.
    """
    schema = schema_of(view)
    filled = [piece for piece in pieces if len(piece.raw)]
    if not filled:
        return pa.RecordBatch.from_pylist([], schema)
    sizes = [_sizes_of(piece) for piece in filled]
    data = bytes(filled[0].raw) if len(filled) == 1 else b"".join(piece.raw for piece in filled)
    counts = np.array([len(part) for part in sizes])
    rows = Rows(lay_out(data, np.concatenate(sizes)), [piece.origin for piece in filled], counts, view)
    batch = pa.RecordBatch.from_arrays([BUILD[name](rows) for name in view.columns], schema=schema)
    if not batch.schema.equals(schema):
        raise AssertionError(f"batch schema {batch.schema} is not {schema}")
    return batch


def _sizes_of(piece: RawPiece) -> Ints:
    if piece.sizes is None:
        return scan_sizes(piece.raw, 0, len(piece.raw))
    sizes = np.frombuffer(piece.sizes, "<u4").astype(np.int64)
    if int(sizes.sum()) != len(piece.raw):
        raise RecordsBad(0, f"the size index adds up to {int(sizes.sum())} bytes, the piece has {len(piece.raw)}")
    return sizes


class Rows:
    """The selected records of a buffer and what several columns share."""

    def __init__(self, layout: Layout, origins: Sequence[Origin], counts: Ints, view: RowSelection) -> None:
        self._layout, self._origins, self._counts, self.view = layout, origins, counts, view

    @cached_property
    def _fields(self) -> pa.Array:
        edges = self._layout.edges
        data = pa.py_buffer(self._layout.data)
        return pa.BinaryArray.from_buffers(pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), data])

    @cached_property
    def _all_topics(self) -> pa.DictionaryArray:
        at = np.arange(len(self._layout.at)) * 6 + 3
        return fields.encoded(fields.text(self._fields.take(pa.array(at))))

    @cached_property
    def _all_kinds(self) -> npt.NDArray[np.int32]:
        return fields.kind_codes(self._all_topics, self._flags("sys_flag"), self.view.system_topics)

    def _flags(self, name: str) -> npt.NDArray[np.int32]:
        return self._layout.head[name].astype(np.int32)

    @cached_property
    def part(self) -> Ints:
        """Which piece each selected row is from."""
        return self.pick(np.repeat(np.arange(len(self._origins)), self._counts))

    @cached_property
    def count(self) -> int:
        """How many rows there are."""
        return len(self._layout.at) if self.selected is None else len(self.selected)

    @cached_property
    def selected(self) -> Ints | None:
        """The positions of the wanted records, None where all are wanted."""
        wanted = self._in_range()
        view = self.view
        if not view.raw:
            wanted &= self._not_skipped()
            if view.include is not None:
                wanted &= np.array([kind in view.include for kind in fields.KINDS])[self._all_kinds]
        if view.topics is not None or view.topic_pattern is not None:
            wanted &= self._topics_wanted()
        if view.store_since_ms is not None:
            wanted &= self._layout.stored_ms >= view.store_since_ms
        if view.store_until_ms is not None:
            wanted &= self._layout.stored_ms < view.store_until_ms
        if view.tags is not None:
            wanted &= self._tags_wanted()
        return None if wanted.all() else np.flatnonzero(wanted)

    def _in_range(self) -> Flags:
        low = np.repeat(np.array([origin.from_offset for origin in self._origins]), self._counts)
        high = np.repeat(np.array([origin.to_offset for origin in self._origins]), self._counts)
        at = self._layout.head["log_offset"]
        wanted: Flags = (at >= low) & (at < high)
        return wanted

    def _topic_table(self, accepts: Callable[[str | None], bool]) -> Flags:
        """Ask once per different topic, answer per record."""
        encoded = self._all_topics
        table = np.array([*map(accepts, encoded.dictionary.to_pylist()), accepts(None)], np.bool_)
        answer: Flags = table[encoded.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)]
        return answer

    def _not_skipped(self) -> Flags:
        wanted = np.ones(len(self._layout.at), np.bool_)
        edges = np.concatenate([[0], np.cumsum(self._counts)])
        for part, origin in enumerate(self._origins):
            if origin.skip:
                skipped = self._topic_table(frozenset(origin.skip).__contains__)
                wanted[edges[part] : edges[part + 1]] &= ~skipped[edges[part] : edges[part + 1]]
        return wanted

    def _topics_wanted(self) -> Flags:
        names, pattern = self.view.topics, re.compile(self.view.topic_pattern or "")

        def accepts(topic: str | None) -> bool:
            return topic is not None and (names is None or topic in names) and pattern.search(topic) is not None

        return self._topic_table(accepts)

    def _tags_wanted(self) -> Flags:
        at = np.arange(len(self._layout.at)) * 6 + 5
        tags = Properties(fields.text(self._fields.take(pa.array(at)))).value_of("TAGS")
        accepted: Flags = np.isin(tags.fill_null("").to_numpy(zero_copy_only=False), sorted(self.view.tags or ()))
        return accepted

    def pick(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the selected ones of values that are given per record."""
        return values if self.selected is None else values[self.selected]

    def number(self, name: str) -> Ints:
        """Return a fixed field of each row in native byte order."""
        source = self._layout.tail if name in TAIL_FIELDS else self._layout.head
        values = self.pick(source[name])
        return np.asarray(values, values.dtype.newbyteorder("="))

    def variable(self, position: int) -> pa.Array:
        """Return a variable field of each row: 1 body, 3 topic, 5 properties."""
        return self._fields.take(pa.array(self.pick(np.arange(len(self._layout.at))) * 6 + position))

    def of_topics(self, values: pa.Array) -> pa.Array:
        return values if self.selected is None else values.take(pa.array(self.selected))

    @cached_property
    def topics(self) -> pa.Array:
        return self.of_topics(self._all_topics).cast(pa.string())

    def kinds(self) -> pa.Array:
        return fields.spread(fields.KINDS, self.pick(self._all_kinds))

    @cached_property
    def properties(self) -> Properties:
        return Properties(fields.text(self.variable(5)))

    @cached_property
    def bodies(self) -> Bodies:
        inflate, check = self.view.inflate and not self.view.raw, self.view.check_body_crc
        sys_flags, crcs = self.number("sys_flag").astype(np.int32), self.number("body_crc").astype(np.int32)
        return read_bodies(self.variable(1), sys_flags, crcs, inflate=inflate, check_crc=check)

    def message_ids(self) -> pa.Array:
        ids = self.properties.value_of("UNIQ_KEY")
        if not ids.null_count:
            return ids
        missing = np.flatnonzero(ids.is_null().to_numpy(zero_copy_only=False))
        layout = self._layout
        wide = None if layout.wide_store is None else self.pick(layout.wide_store)[missing].astype(np.bool_)
        store_at, offsets = self.pick(layout.store_at)[missing], self.number("log_offset")[missing]
        computed = fields.offset_ids(layout.data, store_at, wide, offsets)
        source = np.arange(len(ids))
        source[missing] = len(ids) + np.arange(len(missing))
        return pa.concat_arrays([ids, computed]).take(pa.array(source))

    def hosts(self, *, born: bool) -> pa.Array:
        layout = self._layout
        wide = layout.wide_born if born else layout.wide_store
        if wide is None:
            name = "born_host" if born else "store_host"
            return fields.ipv4_hosts(np.ascontiguousarray(self.pick(layout.head[name])))
        at = self.pick(layout.at + 48 if born else layout.store_at)
        return fields.hosts(layout.data, at, self.pick(wide).astype(np.bool_))

    def stored_ms(self) -> Ints:
        return self.pick(self._layout.stored_ms)

    def shared(self, name: str, kind: pa.DataType) -> pa.Array:
        """Return a value that all rows of a piece share."""
        values = [getattr(origin, name) for origin in self._origins]
        if len(set(values)) == 1:
            return fields.repeated(values[:1], self.count) if kind == pa.string() else self.filled(values[0], kind)
        return fields.spread(values, self.part) if kind == pa.string() else pa.array(np.array(values)[self.part], kind)

    def filled(self, value: int | bool, kind: pa.DataType) -> pa.Array:
        """Return one value for all rows."""
        return pa.array(np.full(self.count, value), kind)

    def landed(self) -> pa.Array:
        found = {origin.landed_ms for origin in self._origins}
        if len(found) == 1:
            return fields.times(np.full(self.count, found.pop()))
        return fields.times(np.array([origin.landed_ms for origin in self._origins])).take(pa.array(self.part))


TAIL_FIELDS = frozenset(("reconsume_times", "prepared_offset", "body_length"))


def _number(name: str) -> Callable[[Rows], pa.Array]:
    return lambda rows: pa.array(rows.number(name))


def _shared(name: str, kind: pa.DataType) -> Callable[[Rows], pa.Array]:
    return lambda rows: rows.shared(name, kind)


def _properties(rows: Rows) -> pa.Array:
    return rows.properties.maps if rows.view.properties_as_map else rows.properties.stored


BUILD: dict[str, Callable[[Rows], pa.Array]] = {
    **{name: _shared(name, SCHEMA.field(name).type) for name in ("box", "epoch", "clock_ok", "shard", "seq")},
    **{
        name: _number(name)
        for name in ("log_offset", "queue_id", "queue_offset", "flag", "sys_flag", "reconsume_times", "body_crc")
    },
    "size": _number("size"),
    "prepared_offset": _number("prepared_offset"),
    "body_len": _number("body_length"),
    "topic": lambda rows: rows.topics,
    "kind": Rows.kinds,
    "msg_id": Rows.message_ids,
    "tags": lambda rows: rows.properties.value_of("TAGS"),
    "traceparent": lambda rows: rows.properties.value_of("traceparent"),
    "trace_id": lambda rows: properties.trace_ids(rows.properties),
    "keys": lambda rows: properties.split_keys(rows.properties.value_of("KEYS")),
    "body": lambda rows: rows.bodies.values,
    "body_state": lambda rows: rows.bodies.states,
    "properties": _properties,
    "born_time": lambda rows: fields.times(rows.number("born_ms")),
    "store_time": lambda rows: fields.times(rows.stored_ms()),
    "landed_time": Rows.landed,
    "born_host": lambda rows: rows.hosts(born=True),
    "store_host": lambda rows: rows.hosts(born=False),
}
