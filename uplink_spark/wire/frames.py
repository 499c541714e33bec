"""The frames of the uplink: u32 length, u8 type, a deterministic CBOR map (or a piece), both directions.

Lengths are judged before a byte of the body is allocated. Golden bytes stand in the tests.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from uplink_spark.errors import PieceDamaged, ProtocolError
from uplink_spark.wire.batch import MAX_CONTAINER_BYTES
from uplink_spark.wire.cbor import Fields, decode_map, encode_map

VERSION = 1
LATER = 0x40  # up to 0x7F: types that a later version may have; who does not know them leaves them out
MAX_FRAME = 64 * 1024
MAX_PIECE_FRAME = MAX_CONTAINER_BYTES + 1
MAX_LINEAGE, MAX_RUNS = 16, 1024
MAX_HOLES = 64
MOST_WORD = 256
MOST_REASON, DAY_MS = 500, 86_400_000  # characters of why, and how long a box may be told to wait
MOST_CONDITIONS, MOST_TEXT = 20, 400  # of a STATUS: sentences, characters of one
FRAME_HEAD = struct.Struct(">IB")
Frame = TypeVar("Frame")


class FrameType(IntEnum):
    HELLO = 1
    WELCOME = 2
    PIECE = 3
    RECEIPT = 4
    REFUSED = 5
    WINDOW = 6
    STATUS = 7
    PING = 8
    PONG = 9
    BYE = 10
    ERROR = 11


def frame_limit(kind: int, *, pieces: bool) -> int:
    """Return the greatest length of a frame of this type; pieces: PIECE is allowed now. Raises ProtocolError."""
    if kind == FrameType.PIECE and pieces:
        return MAX_PIECE_FRAME
    if 1 <= kind <= FrameType.ERROR or LATER <= kind <= 0x7F:
        return MAX_FRAME
    raise ProtocolError(f"frame type {kind:#04x} is not known")


def read_frame_head(head: bytes, *, pieces: bool) -> tuple[int, int]:
    """Return type and body length from the first five bytes of a frame. Raises ProtocolError."""
    length, kind = FRAME_HEAD.unpack(head)
    limit = frame_limit(kind, pieces=pieces)
    if not 1 <= length <= limit:
        raise ProtocolError(f"frame of type {kind:#04x} with length {length}, allowed 1..{limit}")
    return kind, length - 1


def encode_frame(kind: FrameType, body: bytes) -> bytes:
    return FRAME_HEAD.pack(len(body) + 1, kind) + body


def decode_body(body: bytes, what: str) -> Fields:
    """Return the fields of a frame's CBOR body. Raises ProtocolError."""
    try:
        return Fields(decode_map(body), what)
    except PieceDamaged as error:
        raise ProtocolError(f"{what}: {error}") from error


@dataclass(frozen=True, slots=True)
class Hello:
    box: str
    lineage: tuple[tuple[int, int], ...]  # epoch, origin; the last 16
    runs: tuple[tuple[int, int], ...]  # run, start; the last 1,024
    first: int
    durable: int
    now_ms: int
    clock_ok: int
    software: str
    express: tuple[str, ...] = ()
    versions: tuple[int, int] = (VERSION, VERSION)
    landing: bytes | None = None  # the zone that welcomed the box last
    receipt: tuple[int, int] | None = None  # shard and seq of its newest receipt there

    @property
    def epoch(self) -> int:
        return self.lineage[-1][0]

    def encode(self) -> bytes:
        body = {
            "v": list(self.versions),
            "box": self.box,
            "lineage": [list(pair) for pair in self.lineage[-MAX_LINEAGE:]],
            "runs": [list(pair) for pair in self.runs[-MAX_RUNS:]],
            "first": self.first,
            "durable": self.durable,
            "express": list(self.express) or None,
            "now": self.now_ms,
            "clk": self.clock_ok,
            "sw": self.software,
            "landing": self.landing,
            "receipt": None if self.receipt is None else [list(self.receipt)],
        }
        return encode_frame(FrameType.HELLO, encode_map(body))


def decode_hello(body: bytes) -> Hello:
    """Return HELLO. Raises ProtocolError."""
    fields = decode_body(body, "HELLO")
    return _typed("HELLO", lambda: _hello_of(fields))


def _typed(what: str, decode: Callable[[], Frame]) -> Frame:
    try:
        return decode()
    except PieceDamaged as error:
        raise ProtocolError(f"{what}: {error}") from error


def _hello_of(fields: Fields) -> Hello:
    lineage, runs = fields.pairs("lineage"), fields.pairs("runs")
    versions = fields.values.get("v")
    if type(versions) is not list or len(versions) != 2 or not all(type(v) is int for v in versions):
        raise ProtocolError("HELLO: v is not [min, max]")
    if not 1 <= len(lineage) <= MAX_LINEAGE or not 1 <= len(runs) <= MAX_RUNS:
        raise ProtocolError(f"HELLO: {len(lineage)} epochs and {len(runs)} runs, allowed 1..16 and 1..1024")
    for name, rows in (("lineage", lineage), ("runs", runs)):
        starts = [start for _, start in rows]
        if starts != sorted(starts) or len({key for key, _ in rows}) != len(rows) or not all(key for key, _ in rows):
            raise ProtocolError(f"HELLO: {name} out of order, doubled or 0")
    first, durable = fields.uint("first"), fields.uint("durable")
    if first > durable:
        raise ProtocolError(f"HELLO: first {first} above durable {durable}")
    return Hello(
        fields.text("box"),
        tuple(lineage),
        tuple(runs),
        first,
        durable,
        fields.uint("now"),
        fields.uint("clk", most=1),
        fields.text("sw"),
        fields.texts("express"),
        (versions[0], versions[1]),
        fields.octets("landing", 16) if "landing" in fields.values else None,
        next(iter(fields.pairs("receipt")), None),
    )


Have = tuple[tuple[int, int, int], ...]  # epoch, from, to


@dataclass(frozen=True, slots=True)
class Welcome:
    landing: bytes
    have: Have
    pick: Have
    last: tuple[int, int, int, bytes] | None  # epoch, start, end, sha
    window: int
    pieces: int
    codecs: tuple[str, ...]
    rate: int
    now_ms: int
    version: int = VERSION

    def encode(self) -> bytes:
        body = {
            "v": self.version,
            "landing": self.landing,
            "have": [list(row) for row in self.have],
            "pick": [list(row) for row in self.pick],
            "last": None if self.last is None else list(self.last),
            "window": self.window,
            "pieces": self.pieces,
            "codecs": list(self.codecs),
            "rate": self.rate,
            "now": self.now_ms,
        }
        return encode_frame(FrameType.WELCOME, encode_map(body))


def decode_welcome(body: bytes) -> Welcome:
    """Return WELCOME; `have` and `pick` are in order and do not overlap. Raises ProtocolError."""
    fields = decode_body(body, "WELCOME")
    return _typed("WELCOME", lambda: _welcome_of(fields))


def _welcome_of(fields: Fields) -> Welcome:
    last = fields.values.get("last")
    if last is not None:
        fields.values["last"] = [last]
        last = tuple(fields.rows("last", int, int, int, bytes)[0])
    return Welcome(
        fields.octets("landing", 16),
        _ranges(fields, "have"),
        _ranges(fields, "pick"),
        last,  # type: ignore[arg-type]
        fields.uint("window"),
        fields.uint("pieces", most=1 << 16),
        fields.texts("codecs"),
        fields.uint("rate"),
        fields.uint("now"),
        fields.uint("v"),
    )


def _ranges(fields: Fields, key: str) -> Have:
    rows = tuple((int(str(e)), int(str(a)), int(str(b))) for e, a, b in fields.rows(key, int, int, int))
    ends: dict[int, int] = {}
    for epoch, start, end in rows:
        if start >= end or start <= ends.get(epoch, -1):
            raise ProtocolError(f"WELCOME: {key} out of order at {start}..{end}")
        ends[epoch] = end
    return rows


@dataclass(frozen=True, slots=True)
class ReceiptRow:
    number: int
    start: int
    end: int
    sha: bytes
    seq: int
    dup: int


@dataclass(frozen=True, slots=True)
class Receipt:
    shard: int
    rows: tuple[ReceiptRow, ...]
    now_ms: int

    def encode(self) -> bytes:
        rows = [[r.number, r.start, r.end, r.sha, r.seq, r.dup] for r in self.rows]
        return encode_frame(FrameType.RECEIPT, encode_map({"shard": self.shard, "r": rows, "now": self.now_ms}))


def decode_receipt(body: bytes) -> Receipt:
    """Return RECEIPT. Raises ProtocolError."""
    fields = decode_body(body, "RECEIPT")

    def decode() -> Receipt:
        rows = fields.rows("r", int, int, int, bytes, int, int)
        return Receipt(fields.uint("shard"), tuple(ReceiptRow(*row) for row in rows), fields.uint("now"))  # type: ignore[arg-type]

    return _typed("RECEIPT", decode)


@dataclass(frozen=True, slots=True)
class Refusal:
    number: int
    code: str
    text: str
    retry_ms: int

    def encode(self) -> bytes:
        body = {"n": self.number, "code": self.code, "text": self.text[:MOST_REASON], "retry_ms": self.retry_ms}
        return encode_frame(FrameType.REFUSED, encode_map(body))


def decode_refused(body: bytes) -> Refusal:
    """Return REFUSED. Raises ProtocolError."""
    fields = decode_body(body, "REFUSED")
    return _typed(
        "REFUSED",
        lambda: Refusal(fields.uint("n"), *_reason_of(fields)),
    )


@dataclass(frozen=True, slots=True)
class Window:
    window: int
    rate: int
    pause_ms: int

    def encode(self) -> bytes:
        body: dict[str, object] = {"window": self.window, "rate": self.rate, "pause_ms": self.pause_ms}
        return encode_frame(FrameType.WINDOW, encode_map(body))


def decode_window(body: bytes) -> Window:
    """Return WINDOW. Raises ProtocolError."""
    fields = decode_body(body, "WINDOW")
    return _typed("WINDOW", lambda: Window(fields.uint("window"), fields.uint("rate", 0), fields.uint("pause_ms", 0)))


@dataclass(frozen=True, slots=True)
class Status:
    durable: int
    unshipped: int
    oldest_ms: int
    disk_free: int
    inflow: int
    gaps: int
    verdict: str
    software: str
    now_ms: int
    clock_ok: int
    state: str = ""  # of the whole box, as `rocketbox status` has it; empty: it does not say
    conditions: tuple[str, ...] = ()  # why it is not ok, the weightiest first

    def encode(self) -> bytes:
        body = {
            "durable": self.durable,
            "unshipped": self.unshipped,
            "oldest_ms": self.oldest_ms,
            "disk_free": self.disk_free,
            "inflow": self.inflow,
            "gaps": self.gaps,
            "verdict": self.verdict,
            "sw": self.software,
            "now": self.now_ms,
            "clk": self.clock_ok,
            "state": self.state,
            "conditions": list(self.conditions),
        }
        return encode_frame(FrameType.STATUS, encode_map(body))


def decode_status(body: bytes) -> Status:
    """Return STATUS. Raises ProtocolError."""
    fields = decode_body(body, "STATUS")
    return _typed(
        "STATUS",
        lambda: Status(
            fields.uint("durable"),
            fields.uint("unshipped"),
            fields.uint("oldest_ms"),
            fields.uint("disk_free"),
            fields.uint("inflow"),
            fields.uint("gaps"),
            _short(fields.text("verdict")),
            _short(fields.text("sw")),
            fields.uint("now"),
            fields.uint("clk", most=1),
            fields.text("state", "")[:MOST_TEXT],
            tuple(text[:MOST_TEXT] for text in fields.texts("conditions")[:MOST_CONDITIONS]),
        ),
    )


def _short(text: str) -> str:
    """Return a text that goes into a line of status. Raises PieceDamaged."""
    if len(text) > MOST_WORD:
        raise PieceDamaged(f"a text of {len(text)} characters, at most {MOST_WORD}")
    return text


def encode_ping(kind: FrameType, stamp: int) -> bytes:
    return encode_frame(kind, encode_map({"t": stamp}))


def decode_ping(body: bytes) -> int:
    """Return the stamp of PING or PONG. Raises ProtocolError."""
    fields = decode_body(body, "PING")
    return _typed("PING", lambda: fields.uint("t"))


def encode_bye(text: str) -> bytes:
    return encode_frame(FrameType.BYE, encode_map({"text": text}))


@dataclass(frozen=True, slots=True)
class ErrorFrame:
    """ERROR: why the sender closes; `fork` and `to` belong to the codes diverged and moved."""

    code: str
    text: str
    retry_ms: int = 0
    fork: int | None = None
    to: str | None = None
    versions: tuple[int, int] | None = None

    def encode(self) -> bytes:
        body = {
            "code": self.code,
            "text": self.text[:MOST_REASON],
            "retry_ms": self.retry_ms,
            "fork": self.fork,
            "to": self.to,
            "v": None if self.versions is None else list(self.versions),
        }
        return encode_frame(FrameType.ERROR, encode_map(body))


def decode_fault(body: bytes) -> ErrorFrame:
    """Return ERROR. Raises ProtocolError."""
    fields = decode_body(body, "ERROR")

    def decode() -> ErrorFrame:
        fork = fields.uint("fork") if "fork" in fields.values else None
        to = fields.text("to") if "to" in fields.values else None
        return ErrorFrame(*_reason_of(fields), fork, to)

    return _typed("ERROR", decode)


def _reason_of(fields: Fields) -> tuple[str, str, int]:
    """Return code, text and how long to wait. Raises PieceDamaged."""
    return _short(fields.text("code")), fields.text("text")[:MOST_REASON], fields.uint("retry_ms", 0, most=DAY_MS)
