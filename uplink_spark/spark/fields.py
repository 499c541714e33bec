"""Text columns of stored records, built for many rows at once: topics, hosts, message ids, kinds, times."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from uplink_spark.zone.record_layout import Bytes, Ints, gather

KEPT_BYTES = 2 << 20  # of one array of repeated words; what a worker keeps is bounded by 16 of them
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999
_HEX = np.array([ord(digit) for number in range(256) for digit in f"{number:02X}"], np.uint8).reshape(256, 2)
TIMESTAMP = pa.timestamp("us", tz="UTC")
MAP = pa.map_(pa.string(), pa.field("value", pa.string(), nullable=True))
LIST = pa.list_(pa.field("element", pa.string(), nullable=True))

_SYSTEM = frozenset(("TBW102", "SELF_TEST_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT", "TRANS_CHECK_MAX_TIME_TOPIC"))
_NAMED = {
    "RMQ_SYS_TRANS_HALF_TOPIC": "half",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": "op",
    "SCHEDULE_TOPIC_XXXX": "delayed",
    "rmq_sys_wheel_timer": "delayed",
    "RMQ_SYS_TRACE_TOPIC": "trace",
    "RBX_PROBE": "system",
    "RBX_RAFT": "system",
    "RBX_STATE": "system",
}
KINDS = ("message", "half", "op", "delayed", "retry", "dlq", "reply", "trace", "system", "filler")


def topic_kind(topic: str | None, system_topics: frozenset[str] = frozenset()) -> str:
    """Return what a topic's records are to a reader; `system_topics` adds the fleet's cluster and broker names."""
    if topic is None:
        return "message"
    if topic in _NAMED:
        return _NAMED[topic]
    if topic.startswith("%RETRY%"):
        return "retry"
    if topic.startswith("%DLQ%"):
        return "dlq"
    if topic.endswith("_REPLY_TOPIC"):
        return "reply"
    return "system" if topic in _SYSTEM or topic in system_topics or topic.startswith("rmq_sys_") else "message"


def kind_codes(
    topics: pa.DictionaryArray, sys_flags: npt.NDArray[np.int32], system_topics: frozenset[str]
) -> npt.NDArray[np.int32]:
    """Return each row's kind as its place in KINDS: of its topic, but `half` and `filler` by the transaction bits."""
    known = [topic_kind(topic, system_topics) for topic in topics.dictionary.to_pylist()] + ["message"]
    numbers = np.array([KINDS.index(kind) for kind in known], np.int32)
    number: npt.NDArray[np.int32] = numbers[topics.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)]
    state = sys_flags & 0xC
    if state.any():
        number = np.where(state == 0x4, KINDS.index("half"), number)
        number = np.where(state == 0xC, KINDS.index("filler"), number)
    return number


def spread(words: Sequence[str], codes: npt.NDArray[np.integer[Any]]) -> pa.Array:
    """Return words[code] of each row; where all rows have the same word, as is usual, it is written out at once."""
    if not len(codes) or (codes != codes[0]).any():
        return pa.array(words, pa.string()).take(pa.array(codes))
    return repeated((words[int(codes[0])],), len(codes))


def repeated(words: Sequence[str], times: int) -> pa.Array:
    """Return the words in their order, again and again; batch after batch asks for the same ones."""
    stored = tuple(word.encode() for word in words)
    size = 1 << (times - 1).bit_length() if times else 0
    if size * (4 * len(stored) + sum(map(len, stored))) > KEPT_BYTES:
        return _written_out(stored, times)
    return _kept(stored, size).slice(0, len(stored) * times)


@lru_cache(maxsize=16)
def _kept(words: tuple[bytes, ...], times: int) -> pa.Array:
    return _written_out(words, times)


def _written_out(words: tuple[bytes, ...], times: int) -> pa.Array:
    begins = np.cumsum([0, *map(len, words)], dtype=np.int32)
    edges = np.empty(len(words) * times + 1, np.int32)
    edges[:-1] = (np.arange(times, dtype=np.int32)[:, None] * begins[-1] + begins[:-1]).reshape(-1)
    edges[-1] = begins[-1] * times
    return pa.StringArray.from_buffers(len(edges) - 1, pa.py_buffer(edges), pa.py_buffer(b"".join(words) * times))


def encoded(words: pa.Array) -> pa.DictionaryArray:
    """Return strings as codes of a dictionary; that all are the same, as is usual, is seen without looking each up."""
    if len(words) and words[0].is_valid and words.equals(repeated((words[0].as_py(),), len(words))):
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(words), np.int32)), words[:1])
    return words.dictionary_encode()


def text(values: pa.Array) -> pa.Array:
    """Return a binary array as strings; what is not UTF-8 becomes null."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text_or_none(value) for value in values.to_pylist()], pa.string())


def _text_or_none(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def times(ms: Ints) -> pa.Array:
    """Return milliseconds since 1970 as timestamps; null outside the years 1 to 9999."""
    if not len(ms) or (ms.min() >= _FIRST_MS and ms.max() <= _LAST_MS):
        return pa.array(ms * 1000, pa.int64()).cast(TIMESTAMP)
    bad = (ms < _FIRST_MS) | (ms > _LAST_MS)
    return pa.array(np.where(bad, 0, ms) * 1000, pa.int64(), mask=bad).cast(TIMESTAMP)


def hosts(data: Bytes, at: Ints, wide: npt.NDArray[np.bool_]) -> pa.Array:
    """Return `1.2.3.4:5` or `[2001:db8::1]:5` for the host that begins at each position."""
    if not wide.any():
        return _unique_hosts(gather(data, at, 8))
    out = np.empty(len(at), object)
    for flag, width in ((False, 8), (True, 20)):
        rows = np.flatnonzero(wide == flag)
        out[rows] = _unique_hosts(gather(data, at[rows], width)).to_pylist()
    return pa.array(out, pa.string())


def _unique_hosts(raw: Bytes) -> pa.Array:
    """Format each different host once: a fleet has few hosts and many rows."""
    count, width = raw.shape
    if width == 8:
        return ipv4_hosts(raw.reshape(-1).view(np.uint64))
    values = pa.Array.from_buffers(pa.binary(width), count, [None, pa.py_buffer(raw.reshape(-1))])
    encoded = values.dictionary_encode()
    return pa.array([_host(value) for value in encoded.dictionary.to_pylist()], pa.string()).take(encoded.indices)


def ipv4_hosts(numbers: npt.NDArray[np.uint64]) -> pa.Array:
    """Return the text of addresses and ports given as their eight bytes, whatever number these are here."""
    if len(numbers) and (numbers == numbers[0]).all():
        return pa.repeat(_host(numbers[0].tobytes()), len(numbers))
    encoded = pa.array(numbers).dictionary_encode()
    hosts = [_host(value.to_bytes(8, sys.byteorder)) for value in encoded.dictionary.to_pylist()]
    return pa.array(hosts, pa.string()).take(encoded.indices)


def _host(raw: bytes) -> str:
    address, port = ipaddress.ip_address(raw[:-4]), int.from_bytes(raw[-4:], signed=True)
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"


def offset_ids(data: Bytes, store_at: Ints, wide: npt.NDArray[np.bool_] | None, log_offsets: Ints) -> pa.Array:
    """Return the offset message id of each row: upper-case hex of store host and log offset."""
    if wide is None or not wide.any():
        return _hex_ids(gather(data, store_at, 8), log_offsets)
    out = np.empty(len(store_at), object)
    for flag, width in ((False, 8), (True, 20)):
        rows = np.flatnonzero(wide == flag)
        out[rows] = _hex_ids(gather(data, store_at[rows], width), log_offsets[rows]).to_pylist()
    return pa.array(out, pa.string())


def _hex_ids(host: Bytes, log_offsets: Ints) -> pa.Array:
    raw = np.concatenate([host, log_offsets.astype(">i8").view(np.uint8).reshape(-1, 8)], axis=1)
    count, width = raw.shape
    digits = _HEX[raw].reshape(-1)
    edges = np.arange(count + 1, dtype=np.int32) * (2 * width)
    return pa.StringArray.from_buffers(count, pa.py_buffer(edges), pa.py_buffer(digits))
