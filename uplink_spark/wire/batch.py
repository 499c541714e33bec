"""The piece: a range of the CommitLog with a CBOR header, compressed records, size index, CRC-32 and SHA-256.

    0  "RBU1"   4  u32 H   8  header (CBOR map)   8+H  payload (clen)   ...  size index (ilen)

The same bytes travel on the wire, are in a pack and on a stick. Any other total length is damage.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from storage_driver.crc import crc32
from uplink_spark.errors import PieceDamaged
from uplink_spark.wire.cbor import Fields, decode_map, encode_map
from uplink_spark.wire.identity import BOX_NAME

try:
    import zstandard
except ImportError:  # a box without it ships zlib; readers have it
    zstandard: Any = None  # type: ignore[no-redef]

MAGIC = b"RBU1"
VERSION = 1
MIB = 1 << 20
PIECE_BYTES = 4 * MIB  # records are added while the sum stays below
MAX_RAW_BYTES = 8 * MIB
GAP_CLASSES = (
    "missing",
    "damaged",
    "elsewhere",
    "receipt_lost",
    "rejected",
    "cut",  # by a group of boxes whose leader has other bytes there; a gap of no bytes
    "alone",  # nothing is lost: one disk acknowledged it by order of a person; a gap of no bytes
)  # why bytes never come
ELSEWHERE = ("cut", "alone")  # these name epoch and range that they are about
MAX_HEADER_BYTES = 16384
MAX_CONTAINER_BYTES = MAX_RAW_BYTES + 64 * 1024
MAX_TOPICS = 64
MIN_RECORD_BYTES = 91
ZSTD_HASH_LOG = 12  # of level 1: its table stays in the first cache; telemetry 15 % faster and 3 % smaller than with 14
KINDS = ("log", "pick", "gap", "blob")
_START = struct.Struct(">4sI")
Buffer = bytes | bytearray | memoryview


def gap_range(gap: Mapping[str, Any], epoch: int, start: int, end: int) -> tuple[int, int, int]:
    """Return epoch and range that a gap of a piece is about: its own, or what it names."""
    return (gap["of"], gap["from"], gap["to"]) if gap.get("class") in ELSEWHERE else (epoch, start, end)


def codec_for(setting: str) -> str:
    """Return the codec that `auto`, `zstd`, `zlib` or `none` means on this machine. Raises ValueError."""
    if setting == "auto":
        return "zstd" if zstandard is not None else "zlib"
    if setting not in ("zstd", "zlib", "none"):
        raise ValueError(f"codec {setting!r}: use auto, zstd, zlib or none")
    if setting == "zstd" and zstandard is None:
        raise ValueError("codec zstd: the zstandard package is not installed; use auto or zlib")
    return setting


def codecs_here() -> tuple[str, ...]:
    """The codecs this machine can read, best first."""
    return ("zstd", "zlib", "none") if zstandard is not None else ("zlib", "none")


@dataclass(frozen=True, slots=True)
class PieceHeader:
    """The header of a piece; names are spelled out, the wire keys stand in `to_map`."""

    kind: str
    box: str
    epoch: int
    run: int
    run_start: int
    start: int
    end: int
    raw_bytes: int
    records: int
    codec: str
    stored_bytes: int
    index_bytes: int
    crc: int
    sha: bytes
    stored_ms_min: int
    stored_ms_max: int
    cut_ms: int
    clock_ok: int
    topics: dict[str, tuple[int, int]] | None = None
    skip: tuple[str, ...] = ()
    pick: tuple[str, ...] = ()

    def to_map(self) -> dict[str, object]:
        topics = None if self.topics is None else {name: list(pair) for name, pair in self.topics.items()}
        return {
            "v": VERSION,
            "kind": self.kind,
            "box": self.box,
            "epoch": self.epoch,
            "run": self.run,
            "rstart": self.run_start,
            "start": self.start,
            "end": self.end,
            "len": self.raw_bytes,
            "n": self.records,
            "codec": self.codec,
            "clen": self.stored_bytes,
            "ilen": self.index_bytes,
            "crc": self.crc,
            "sha": self.sha,
            "tmin": self.stored_ms_min,
            "tmax": self.stored_ms_max,
            "cut": self.cut_ms,
            "clk": self.clock_ok,
            "topics": topics,
            "skip": list(self.skip) or None,
            "pick": list(self.pick) or None,
        }


def encode_header(header: PieceHeader) -> bytes:
    """Return magic, length and CBOR header. Raises ValueError above 16 KiB."""
    body = encode_map(header.to_map())
    if len(body) > MAX_HEADER_BYTES:
        raise ValueError(f"piece header of {len(body)} bytes, at most {MAX_HEADER_BYTES}")
    return _START.pack(MAGIC, len(body)) + body


def decode_header(data: Buffer) -> tuple[PieceHeader, int]:
    """Return the header at the beginning of data and where the payload begins. Raises PieceDamaged."""
    if len(data) < _START.size:
        raise PieceDamaged(f"not a valid piece ({len(data)} bytes)")
    magic, length = _START.unpack_from(data)
    if magic != MAGIC:
        raise PieceDamaged(f"magic {magic.hex()}, expected {MAGIC.hex()}")
    if not 1 <= length <= MAX_HEADER_BYTES:
        raise PieceDamaged(f"header length {length}, allowed 1..{MAX_HEADER_BYTES}")
    payload_at = _START.size + length
    if len(data) < payload_at:
        raise PieceDamaged(f"header of {length} bytes in {len(data)} bytes")
    return _header_of(Fields(decode_map(bytes(data[_START.size : payload_at])), "piece header")), payload_at


def _header_of(fields: Fields) -> PieceHeader:
    if fields.uint("v") != VERSION:
        raise PieceDamaged(f"piece version {fields.uint('v')}, this program reads {VERSION}")
    header = PieceHeader(
        kind=fields.text("kind"),
        box=fields.text("box"),
        epoch=fields.uint("epoch"),
        run=fields.uint("run"),
        run_start=fields.uint("rstart"),
        start=fields.uint("start"),
        end=fields.uint("end"),
        raw_bytes=fields.uint("len"),
        records=fields.uint("n", most=MAX_RAW_BYTES // MIN_RECORD_BYTES),
        codec=fields.text("codec"),
        stored_bytes=fields.uint("clen", most=MAX_CONTAINER_BYTES),
        index_bytes=fields.uint("ilen", most=MAX_CONTAINER_BYTES),
        crc=fields.uint("crc", most=0xFFFFFFFF),
        sha=fields.octets("sha", 32),
        stored_ms_min=fields.uint("tmin"),
        stored_ms_max=fields.uint("tmax"),
        cut_ms=fields.uint("cut"),
        clock_ok=fields.uint("clk", most=1),
        topics=_topics_of(fields.values.get("topics")),
        skip=fields.texts("skip"),
        pick=fields.texts("pick"),
    )
    _check_header(header)
    return header


def _topics_of(value: object) -> dict[str, tuple[int, int]] | None:
    if value is None:
        return None
    if type(value) is not dict or len(value) > MAX_TOPICS:
        raise PieceDamaged(f"piece header: topics is not a map of at most {MAX_TOPICS}")
    topics: dict[str, tuple[int, int]] = {}
    for name, pair in value.items():
        if type(pair) is not list or len(pair) != 2 or not all(type(n) is int and n >= 0 for n in pair):
            raise PieceDamaged(f"piece header: topics[{name!r}] is not [records, body bytes]")
        topics[name] = (pair[0], pair[1])
    return topics


def _check_header(header: PieceHeader) -> None:
    span, length = header.end - header.start, header.raw_bytes
    rejected = header.kind == "gap" and span == 0
    faults = (
        (header.kind not in KINDS, f"kind {header.kind!r}"),
        (BOX_NAME.fullmatch(header.box) is None, f"box {header.box!r}"),
        (header.codec not in ("zstd", "zlib", "none"), f"codec {header.codec!r}"),
        (not header.epoch or not header.run, "epoch or run is 0"),
        (span < 1 and not rejected, f"range {header.start}..{header.end}"),
        (header.run_start > header.start, f"run start {header.run_start} after start {header.start}"),
        (header.kind in ("log", "pick") and length > span, f"{length} raw bytes in a range of {span}"),
        (header.kind == "blob" and length != span, f"{length} raw bytes in a blob of {span}"),
        (header.kind in ("gap", "blob") and (header.records or header.index_bytes), f"records in a {header.kind}"),
        (header.records * MIN_RECORD_BYTES > length, f"{header.records} records in {length} bytes"),
        (bool(length) != bool(header.stored_bytes), f"{length} raw bytes stored as {header.stored_bytes}"),
        (not header.records and bool(header.index_bytes), "an index of no records"),
        (header.codec == "none" and header.stored_bytes != length, "stored size of an uncompressed piece"),
    )
    for wrong, text in faults:
        if wrong:
            raise PieceDamaged(f"piece header: {text}")


@dataclass(frozen=True, slots=True)
class Piece:
    """A container whose sizes and CRC have been checked; nothing is decompressed yet."""

    header: PieceHeader
    payload: memoryview
    index: memoryview

    def raw(self) -> bytes:
        """The record bytes (or the gap's CBOR map, or a blob). Raises PieceDamaged; never more than `len` bytes."""
        return decompress(self.header.codec, self.payload, self.header.raw_bytes)

    def sizes(self) -> bytes | None:
        """The size index: n little-endian u32, or None where the piece has none. Raises PieceDamaged."""
        if not self.header.index_bytes:
            return None
        return decompress(self.header.codec, self.index, 4 * self.header.records)

    def check_sha(self, raw: bytes) -> None:
        if hashlib.sha256(raw).digest() != self.header.sha:
            raise PieceDamaged("the SHA-256 of the raw bytes differs from the header's")


def open_piece(data: Buffer) -> Piece:
    """Return the piece that fills data exactly, its CRC checked. Raises PieceDamaged."""
    header, at = decode_header(data)
    view = memoryview(data)
    if len(view) != at + header.stored_bytes + header.index_bytes:
        wanted = at + header.stored_bytes + header.index_bytes
        raise PieceDamaged(f"{len(view)} bytes, the header describes {wanted}")
    crc = crc32(view[at:])
    if crc != header.crc:
        raise PieceDamaged(f"CRC-32 {crc:08x}, the header says {header.crc:08x}")
    index_at = at + header.stored_bytes
    return Piece(header, view[at:index_at], view[index_at:])


def gap_map(piece: Piece) -> dict[str, object]:
    """The declared loss a piece of kind `gap` carries. Raises PieceDamaged."""
    raw = piece.raw()
    piece.check_sha(raw)
    return decode_map(raw)


def compress(codec: str, data: Buffer) -> bytes:
    """Return data as the codec stores it; empty stays empty."""
    if not len(data) or codec == "none":
        return bytes(data)
    if codec == "zstd":
        sized = zstandard.ZstdCompressionParameters.from_level(1, source_size=len(data), hash_log=ZSTD_HASH_LOG)
        return bytes(zstandard.ZstdCompressor(compression_params=sized).compress(data))
    return zlib.compress(data, 1)


def decompress(codec: str, data: Buffer, length: int) -> bytes:
    """Return exactly length bytes, never allocating more. Raises PieceDamaged."""
    if codec == "none" or not length:
        plain = bytes(data)
    elif codec == "zstd":
        plain = _unzstd(data, length)
    else:
        plain = _inflate(data, length)
    if len(plain) != length:
        raise PieceDamaged(f"decompresses to {len(plain)} bytes, the header says {length}")
    return plain


def _unzstd(data: Buffer, length: int) -> bytes:
    if zstandard is None:
        raise PieceDamaged("codec zstd: the zstandard package is not installed here; pip install zstandard")
    try:
        declared = zstandard.get_frame_parameters(data).content_size  # the library trusts it when it allocates
        if declared != length:
            raise PieceDamaged(f"zstd frame of {declared} bytes, the header says {length}")
        return bytes(zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False))
    except zstandard.ZstdError as error:
        raise PieceDamaged(f"zstd: {error}") from error


def _inflate(data: Buffer, length: int) -> bytes:
    stream: Any = zlib.decompressobj()
    try:
        plain: bytes = stream.decompress(data, length + 1)
    except zlib.error as error:
        raise PieceDamaged(f"zlib: {error}") from error
    if not stream.eof or stream.unused_data or stream.unconsumed_tail:
        raise PieceDamaged("zlib: the stream does not end where it should")
    return plain


@dataclass(frozen=True, slots=True)
class PieceSource:
    """Where a piece comes from and when it was cut."""

    box: str
    epoch: int
    run: int
    run_start: int
    cut_ms: int
    clock_ok: int


@dataclass(frozen=True, slots=True)
class PieceContents:
    """What a piece holds: the raw bytes of the range [start, end) and what a walk over them found."""

    kind: str
    start: int
    end: int
    raw: Buffer
    sizes: bytes = b""
    stored_ms_min: int = 0
    stored_ms_max: int = 0
    topics: dict[str, tuple[int, int]] | None = None
    skip: tuple[str, ...] = ()
    pick: tuple[str, ...] = ()


def encode_piece(source: PieceSource, contents: PieceContents, codec: str) -> tuple[PieceHeader, bytes]:
    """Return the header and the whole container; `none` is used where compression does not shrink."""
    raw, sizes = contents.raw, contents.sizes
    payload, index = compress(codec, raw), compress(codec, sizes)
    if len(payload) + len(index) >= len(raw) + len(sizes):
        codec, payload, index = "none", bytes(raw), sizes
    topics = contents.topics if contents.topics is None or len(contents.topics) <= MAX_TOPICS else None
    header = PieceHeader(
        kind=contents.kind,
        box=source.box,
        epoch=source.epoch,
        run=source.run,
        run_start=source.run_start,
        start=contents.start,
        end=contents.end,
        raw_bytes=len(raw),
        records=len(sizes) // 4,
        codec=codec,
        stored_bytes=len(payload),
        index_bytes=len(index),
        crc=crc32(index, crc32(payload)),
        sha=hashlib.sha256(raw).digest(),
        stored_ms_min=contents.stored_ms_min,
        stored_ms_max=contents.stored_ms_max,
        cut_ms=source.cut_ms,
        clock_ok=source.clock_ok,
        topics=topics,
        skip=contents.skip,
        pick=contents.pick,
    )
    return header, encode_header(header) + payload + index
