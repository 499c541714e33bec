"""Where each field of each stored record is, found for all records at once.

Works on the raw bytes of one or more pieces laid end to end; the byte layout is that of `storage_driver.record`.
Only numpy: nothing here looks at one record after the other, except the scan for sizes when a piece has no index.
"""

import struct
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from uplink_spark.errors import RecordsBad

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]

MAGIC_V1, MAGIC_V2 = 0xDAA320A7, 0xDAA320AB
SMALLEST = 91  # an IPv4 record without body, topic and properties
BORN_V6, STORE_V6 = 0x10, 0x20

_HEAD = [
    ("size", ">i4"),
    ("magic", ">u4"),
    ("body_crc", ">i4"),
    ("queue_id", ">i4"),
    ("flag", ">i4"),
    ("queue_offset", ">i8"),
    ("log_offset", ">i8"),
    ("sys_flag", ">i4"),
    ("born_ms", ">i8"),
]
_TAIL = [("reconsume_times", ">i4"), ("prepared_offset", ">i8"), ("body_length", ">i4")]
HEAD = np.dtype(_HEAD)  # 48 bytes, before the born host
TAIL = np.dtype(_TAIL)  # 16 bytes, after the store host
IPV4 = np.dtype([*_HEAD, ("born_host", "=u8"), ("stored_ms", ">i8"), ("store_host", "=u8"), *_TAIL])  # 88 bytes


def scan_sizes(data: bytes | memoryview, at: int, end: int) -> Ints:
    """Return the record sizes of data[at:end] by hopping from size field to size field. Raises RecordsBad."""
    unpack, sizes, first = struct.Struct(">i").unpack_from, [], at
    while at + 4 <= end:
        (size,) = unpack(data, at)
        if size < SMALLEST:
            raise RecordsBad(at - first, f"record size {size}, the smallest is {SMALLEST}")
        sizes.append(size)
        at += size
    if at != end:
        raise RecordsBad(at - first, f"the last record ends {at - end} bytes after its piece")
    return np.array(sizes, np.int64)


def gather(data: Bytes, at: Ints, width: int) -> Bytes:
    """Return a contiguous (len(at), width) copy of the bytes at each position."""
    if not len(at):
        return np.empty((0, width), np.uint8)
    return np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(data, width)[at])


@dataclass(frozen=True)
class Layout:
    """The records of a buffer: fixed fields as arrays, variable fields as positions.

    `edges` begins at each record's body and then runs topic length, topic, properties length, properties, next body:
    what is between two edges of a record is one field.
    """

    data: Bytes
    at: Ints
    sizes: Ints
    head: npt.NDArray[np.void]
    tail: npt.NDArray[np.void]
    wide_born: Flags | None  # None: no record of the buffer has an IPv6 host
    wide_store: Flags | None

    @cached_property
    def stored_ms(self) -> Ints:
        if self.wide_born is None:
            return self.head["stored_ms"].astype(np.int64)
        return gather(self.data, self.store_at - 8, 8).view(">i8").reshape(-1).astype(np.int64)

    @cached_property
    def store_at(self) -> Ints:
        """Where each store host begins."""
        return self.at + 64 if self.wide_born is None else self.at + 64 + 12 * self.wide_born

    @cached_property
    def body_at(self) -> Ints:
        extra = 0 if self.wide_store is None else 12 * self.wide_store
        return self.store_at + 24 + extra

    @cached_property
    def edges(self) -> npt.NDArray[np.int32]:
        """The 6n + 1 borders: body, topic length, topic, properties length, properties, rest … Raises RecordsBad."""
        end, length = self.at + self.sizes, self.tail["body_length"].astype(np.int64)
        body_end = self.body_at + length
        wide = self.head["magic"] == MAGIC_V2
        extra: Flags | int = wide if wide.any() else 0  # of the length of a topic: one byte more
        self._fail((length < 0) | (body_end + (3 + extra) > end), "body longer than its record")
        topic_length = self.data[body_end].astype(np.int64)
        if wide.any():
            topic_length = np.where(wide, topic_length << 8 | self.data[body_end + 1], topic_length)
        topic_at = body_end + (1 + extra)
        topic_end = topic_at + topic_length
        properties_at = topic_end + 2
        self._fail(properties_at > end, "topic longer than its record")
        properties_length = self.data[topic_end].astype(np.int64) << 8 | self.data[topic_end + 1]
        self._fail(properties_at + properties_length != end, "properties do not end where the record ends")
        edges = np.empty(6 * len(self.at) + 1, np.int32)
        borders = (self.at, self.body_at, body_end, topic_at, topic_end, properties_at)
        for position, border in enumerate(borders):
            edges[position:-1:6] = border
        edges[-1] = end[-1] if len(end) else 0
        return edges

    def _fail(self, bad: Flags, reason: str) -> None:
        if bad.any():
            raise RecordsBad(int(self.at[np.argmax(bad)]), reason)


def lay_out(data: bytes, sizes: Ints) -> Layout:
    """Return the layout of the records that fill data exactly, sizes[i] bytes each. Raises RecordsBad."""
    view = np.frombuffer(data, np.uint8)
    ends = np.cumsum(sizes, dtype=np.int64)
    if (len(ends) and int(sizes.min()) < SMALLEST) or (int(ends[-1]) if len(ends) else 0) != len(data):
        raise RecordsBad(0, f"{len(sizes)} record sizes do not add up to {len(data)} bytes")
    at = ends - sizes
    whole = gather(view, at, IPV4.itemsize).view(IPV4).reshape(-1)
    bad = (whole["size"] != sizes) | ((whole["magic"] != MAGIC_V1) & (whole["magic"] != MAGIC_V2))
    if bad.any():
        where = int(np.argmax(bad))
        raise RecordsBad(int(at[where]), f"size {whole['size'][where]}, magic {int(whole['magic'][where]):08x}")
    wide = whole["sys_flag"].astype(np.int32)
    if not (wide & (BORN_V6 | STORE_V6)).any():
        return Layout(view, at, sizes, whole, whole, None, None)
    born, store = (wide & BORN_V6) != 0, (wide & STORE_V6) != 0
    if (sizes < SMALLEST + 12 * born + 12 * store).any():
        raise RecordsBad(0, "a record is shorter than its IPv6 hosts")
    tail_at = at + 72 + 12 * born + 12 * store
    tail = gather(view, tail_at, TAIL.itemsize).view(TAIL).reshape(-1)
    return Layout(view, at, sizes, whole, tail, born, store)
