"""Frames of the link between members: lengths, type, a CBOR head, raw bytes of the log behind it. Sans I/O.

    0  u32  length of all that follows     4  u8  type     5  u16  size of the head     7  the head, then raw bytes

Lengths are judged before a byte of the body is kept. The head is deterministic CBOR, as in the uplink.
"""

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final, TypeVar

from storage_driver.named_tuple import NamedTuple
from uplink_spark.errors import PieceDamaged, ProtocolError
from uplink_spark.wire.cbor import Fields, decode_map, encode_map

ALPN: Final = "rocketbox-replica/1"
VERSION: Final = 1
HEAD: Final = Struct(">IBH")
BEHIND_LENGTH: Final = HEAD.size - 4
MOST_HEAD: Final = (1 << 16) - 1
MOST_BYTES: Final = 1 << 20  # of the log in one frame; one record more when it is larger
MOST_PARTS: Final = 256  # in which the raw bytes of one frame may come
MOST_ROWS: Final = 1024  # of a lineage
MOST_RUNS: Final = 256  # the newest ones are sent: a head has its limit
MOST_TEXT: Final = 500

HELLO, WELCOME, REFUSED, PING, PONG = 0x01, 0x02, 0x03, 0x04, 0x05
SEGMENT, SEGMENT_SEEN = 0x06, 0x07  # what is left of a segment goes as a whole
HAND_OVER, WISH_REFUSED, LEAVE = 0x08, 0x09, 0x0A  # a follower asks to lead, or to leave, and why not
MISSING: Final = 0x0B  # a leader says what a follower has not
COMMON_POINT: Final = 0x0C  # and what it has below the point from where a follower has to cut
ACCOUNTS: Final = 0x0D  # the leader's file of access keys
CUTS: Final = 0x0E  # a follower says what was taken back from its log
COPY_REFUSES: Final = 0x0F  # a follower says why it takes no more of the log
MESSAGES: Final = 0x10  # and above: messages of the consensus core
FETCH: Final = 0x40  # begins a connection over which a segment comes
APPEND_FETCHED: Final = 0x41  # an Append whose bytes came so
RELAY: Final = 0x42  # begins a connection over which that of a gRPC client is carried
Rows = tuple[tuple[int, int], ...]
Value = TypeVar("Value")


class LinkFrame(NamedTuple):
    """One frame as it came."""

    kind: int
    head: bytes
    data: bytes = b""

    def fields(self, what: str) -> Fields:
        """Return the fields of the head. Raises ProtocolError."""
        return typed(what, lambda: Fields(decode_map(self.head), what))


def typed(what: str, decode: Callable[[], Value]) -> Value:
    """Return what `decode` does. Raises ProtocolError where it finds damage."""
    try:
        return decode()
    except PieceDamaged as error:
        raise ProtocolError(f"{what}: {error}") from error


def encode_frame(kind: int, head: Mapping[str, object], data: bytes = b"") -> bytes:
    """Return a whole frame."""
    packed = encode_map(dict(head))
    if len(packed) > MOST_HEAD:
        raise ValueError(f"a head of {len(packed)} bytes, at most {MOST_HEAD} are allowed")
    return HEAD.pack(BEHIND_LENGTH + len(packed) + len(data), kind, len(packed)) + packed + data


class LinkFrameDecoder:
    """The bytes of one member in, its frames out. `with_bytes`: the types that may have raw bytes."""

    def __init__(self, *, most_record_bytes: int, with_bytes: frozenset[int]) -> None:
        self._most, self._with_bytes = MOST_BYTES + most_record_bytes, with_bytes
        self._buffer = b""  # less than the beginning of a frame up to its raw bytes
        self._begun: LinkFrame | None = None  # a frame of which raw bytes are missing
        self._parts: list[memoryview] = []  # of those that are there
        self._left = 0  # how many are not

    def feed(self, data: bytes | bytearray) -> list[LinkFrame]:
        """Return the frames that are whole now. Raises ProtocolError for what no member sends."""
        found = list[LinkFrame]()
        if self._begun is not None:
            data = self._go_on(self._begun, bytes(data), found)
        buffer, at = self._buffer + data, 0
        while len(buffer) - at >= HEAD.size:
            length, kind, head = HEAD.unpack_from(buffer, at)
            self._check(length, kind, head)
            start, end = at + HEAD.size, at + 4 + length
            if len(buffer) < start + head:
                break
            frame = LinkFrame(kind, buffer[start : start + head], buffer[start + head : end])
            at = end
            if len(buffer) < end:
                self._begin(frame, end - len(buffer))
            else:
                found.append(frame)
        self._buffer = buffer[at:]
        return found

    def _begin(self, frame: LinkFrame, left: int) -> None:
        """Keep what there is of a frame: its raw bytes are put together once, when all have come."""
        self._begun, self._parts, self._left = frame, [memoryview(frame.data)], left

    def _go_on(self, begun: LinkFrame, data: bytes, found: list[LinkFrame]) -> bytes:
        """Take raw bytes of the frame that has begun; return what is behind them."""
        self._parts.append(memoryview(data)[: self._left])
        behind = data[self._left :]
        self._left -= len(self._parts[-1])
        if len(self._parts) > MOST_PARTS:  # each takes memory beside its bytes
            self._parts = [memoryview(b"".join(self._parts))]
        if not self._left:
            found.append(begun._replace(data=b"".join(self._parts)))
            self._begun, self._parts = None, []
        return behind

    def _check(self, length: int, kind: int, head: int) -> None:
        beside = length - BEHIND_LENGTH - head
        if not 0 <= beside <= (self._most if kind in self._with_bytes else 0):
            text = f"a frame of type {kind:#04x} with {length} bytes, {head} of them its head"
            raise ProtocolError(f"{text}: this is not a member's")


class MemberHello(NamedTuple):
    """Who a member is and what log it has: HELLO from who connects, WELCOME from who was connected to."""

    group: str
    member: str
    session: bytes  # drawn at each start of the process
    segment_bytes: int
    epochs: Rows
    runs: Rows
    terms: Rows
    first: int
    synced: int
    layout: int = 1
    version: int = VERSION
    fetches: bool = True  # it takes whole segments
    relays: bool = False  # as leader it serves gRPC clients that others bring

    def encode(self, kind: int) -> bytes:
        """Return the frame."""
        head = {
            "v": self.version,
            "group": self.group,
            "member": self.member,
            "session": self.session,
            "layout": self.layout,
            "segment": self.segment_bytes,
            "epochs": [list(row) for row in self.epochs[-MOST_RUNS:]],
            "runs": [list(row) for row in self.runs[-MOST_RUNS:]],
            "terms": [list(row) for row in self.terms[-MOST_ROWS:]],
            "first": self.first,
            "synced": self.synced,
            "fetches": int(self.fetches),
            **({"relays": 1} if self.relays else {}),
        }
        return encode_frame(kind, head)


def decode_hello(frame: LinkFrame) -> MemberHello:
    """Return HELLO or WELCOME. Raises ProtocolError."""
    fields = frame.fields("HELLO")

    def decode() -> MemberHello:
        return MemberHello(
            fields.text("group"),
            fields.text("member"),
            fields.octets("session", 8),
            fields.uint("segment"),
            _rows(fields, "epochs"),
            _rows(fields, "runs"),
            _rows(fields, "terms"),
            fields.uint("first"),
            fields.uint("synced"),
            fields.uint("layout"),
            fields.uint("v"),
            bool(fields.uint("fetches", 0, most=1)),
            bool(fields.uint("relays", 0, most=1)),
        )

    hello = typed("HELLO", decode)
    if hello.first > hello.synced:
        raise ProtocolError(f"HELLO: a log from {hello.first} to {hello.synced}")
    return hello


def _rows(fields: Fields, key: str) -> Rows:
    rows = tuple(fields.pairs(key))
    starts = [start for _, start in rows]
    if len(rows) > MOST_ROWS or starts != sorted(starts):
        raise PieceDamaged(f"{key}: {len(rows)} rows, at most {MOST_ROWS} in the log's order are allowed")
    return rows


class LinkRefused(NamedTuple):
    """Why a member closes a link: a code for programs, a text for people, when to come again."""

    code: str
    text: str
    retry_ms: int = 1000

    def encode(self) -> bytes:
        """Return the frame."""
        head = {"code": self.code, "text": self.text[:MOST_TEXT], "retry_ms": self.retry_ms}
        return encode_frame(REFUSED, head)


def decode_refused(frame: LinkFrame) -> LinkRefused:
    """Return REFUSED. Raises ProtocolError."""
    fields = frame.fields("REFUSED")
    return typed(
        "REFUSED",
        lambda: LinkRefused(
            fields.text("code")[:64], fields.text("text")[:MOST_TEXT], fields.uint("retry_ms", most=600_000)
        ),
    )


class LinkPing(NamedTuple):
    """PING: the sender's clocks. PONG gives the first back, and its own wall clock."""

    sent_us: int
    wall_ms: int

    def encode(self, kind: int) -> bytes:
        """Return the frame."""
        return encode_frame(kind, {"t": self.sent_us, "wall": self.wall_ms})


def decode_ping(frame: LinkFrame) -> LinkPing:
    """Return PING or PONG. Raises ProtocolError."""
    fields = frame.fields("PING")
    return typed("PING", lambda: LinkPing(fields.uint("t"), fields.uint("wall")))
