"""Stored message ⇄ bytes, in RocketMQ's layout; properties, hosts, message ids, the Java string hash.

Pure functions on plain values. A record is encoded once, at append, and those bytes are what is pulled and shipped.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from struct import Struct
from struct import error as StructError
from typing import Final

from storage_driver.crc import crc32
from storage_driver.errors import MessageIllegal, PropertiesTooLong, RecordDamaged
from storage_driver.named_tuple import NamedTuple

MAGIC_V1: Final = -626843481  # DAA320A7
MAGIC_V2: Final = -626843477  # DAA320AB, 2-byte topic length, only read
MAGIC_BLANK: Final = -875286124  # CBD43194, the rest of this file is unused
BLANK: Final = Struct(">ii")
BLANK_BYTES: Final = BLANK.size
SMALLEST_RECORD: Final = 91
FIXED_BYTES: Final = 74  # of a record, without hosts and length-prefixed topic
MAX_TOPIC_BYTES: Final = 127
MAX_PROPERTIES_BYTES: Final = 32767
LONGEST_KNOWN_TAG: Final = 128  # hashes of longer ones are not remembered: strangers choose them
BORN_V6, STORE_V6 = 0x10, 0x20
TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK = 0xC, 0x4, 0x8, 0xC
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
DELAY_LEVELS_MS: Final = tuple(
    1000 * s for s in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)

# size magic crc queue_id flag queue_offset log_offset sys_flag born_ms born_host stored_ms store_host times prepared n
_HEADS: Final = {(born, store): Struct(f">iiiiiqqiq{born}sq{store}siqi") for born in (8, 20) for store in (8, 20)}
_HEAD_V4 = _HEADS[8, 8]
# size, magic, crc, queue_id, flag, queue_offset, log_offset, what is the same for a batch, n; by the length of all
_BATCH_HEADS: Final = {head.size: Struct(f">i4si4siqq{head.size - 40}si") for head in _HEADS.values()}
_HEAD_BY_FLAG: Final = {
    0: _HEADS[8, 8],
    BORN_V6: _HEADS[20, 8],
    STORE_V6: _HEADS[8, 20],
    BORN_V6 | STORE_V6: _HEADS[20, 20],
}
_FIXED: Final = Struct(">iiiiiqqi")
_LENGTH: Final = Struct(">H")
_PORT: Final = Struct(">i")
_PHYS: Final = Struct(">q")


class MessageQueue(NamedTuple):
    """One queue of one topic: the key everywhere."""

    topic: str
    queue_id: int


Part = tuple[int, bytes, bytes]
"""Flag, body and properties of one message of a batch."""


class Parts(NamedTuple):
    """What the messages of a batch differ in, column by column."""

    flags: Sequence[int]
    bodies: Sequence[bytes]
    properties: Sequence[bytes]

    @classmethod
    def of(cls, rows: Sequence[Part]) -> "Parts":
        """Return the columns of one or more messages."""
        return cls(*zip(*rows, strict=True))


class Message(NamedTuple):
    """A message to be stored; hosts are address bytes and an i32 port, properties are in stored form.

    A tuple, because a frozen dataclass of ten fields takes 1.7 µs to make, a tuple 0.4, once for every message sent.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    reconsume_times: int = 0
    prepared_offset: int = 0


class StoredMessage(NamedTuple):
    """A decoded record; `body_crc` is as stored, `size` the whole record."""

    topic: str
    queue_id: int
    flag: int
    queue_offset: int
    log_offset: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    stored_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
    body: bytes
    properties: bytes
    body_crc: int
    size: int

    @property
    def property_map(self) -> dict[str, str]:
        """The properties as a new dict."""
        return decode_properties(self.properties)

    @property
    def message_id(self) -> str:
        """The offset message id that clients see."""
        return message_id(self.store_host, self.log_offset)


class DispatchEntry(NamedTuple):
    """What dispatch needs of one record."""

    log_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    stored_ms: int
    properties: bytes


def encode_record(
    message: Message,
    topic: bytes,
    queue_offset: int,
    log_offset: int,
    *,
    stored_ms: int,
    store_host: bytes,
    crc: int | None = None,
) -> bytes:
    """Return the record's bytes; `topic` is the length byte and the UTF-8 topic, as `encode_topic` makes it.

    The caller has checked the lengths (`check_message`), and may know the CRC of the body.
    Source: RocketMQ 4.9.8 CommitLog.MessageExtEncoder.
    """
    _, queue_id, body, properties, flag, sys_flag, born_ms, born_host, times, prepared = message
    sys_flag &= ~0x30
    head = _HEAD_V4
    if len(born_host) != 8 or len(store_host) != 8:
        head = _HEADS[len(born_host), len(store_host)]
        sys_flag |= (BORN_V6 if len(born_host) == 20 else 0) | (STORE_V6 if len(store_host) == 20 else 0)
    fixed = head.pack(
        head.size + len(body) + len(topic) + 2 + len(properties),
        MAGIC_V1,
        (crc32(body) if crc is None else crc) & 0x7FFFFFFF,
        queue_id,
        flag,
        queue_offset,
        log_offset,
        sys_flag,
        born_ms,
        born_host,
        stored_ms,
        store_host,
        times,
        prepared,
        len(body),
    )
    return b"".join((fixed, body, topic, _LENGTH.pack(len(properties)), properties))


def encode_batch(
    shared: Message,
    parts: Parts,
    numbers: tuple[Sequence[int], Iterable[int], Sequence[int]],
    topic: bytes,
    *,
    stored_ms: int,
    store_host: bytes,
    crcs: Sequence[int] | None = None,
) -> bytes:
    """Return the records of messages that differ in flag, body and properties alone, one after the other.

    `numbers` are the sizes, queue offsets and log offsets, `crcs` those of the bodies. As `encode_record`, in a fourth
    of the time per message: one column after the other, and what is the same for all is packed once.
    """
    sys_flag = shared.sys_flag & ~0x30
    sys_flag |= (BORN_V6 if len(shared.born_host) == 20 else 0) | (STORE_V6 if len(store_host) == 20 else 0)
    alike = _HEADS[len(shared.born_host), len(store_host)].pack(
        *(0, MAGIC_V1, 0, shared.queue_id, 0, 0, 0, sys_flag, shared.born_ms, shared.born_host, stored_ms, store_host),
        *(shared.reconsume_times, 0, 0),
    )
    magic, queue_id, middle = repeat(alike[4:8]), repeat(alike[12:16]), repeat(alike[36:-4])
    flags, bodies, properties = parts
    sizes, queue_offsets, log_offsets = numbers
    checks = [crc & 0x7FFFFFFF for crc in crcs or map(crc32, bodies)]
    pack = _BATCH_HEADS[len(alike)].pack
    places = (queue_offsets, log_offsets, middle, map(len, bodies))
    pieces: list[bytes] = [b""] * (4 * len(flags))
    pieces[0::4] = map(pack, sizes, magic, checks, queue_id, flags, *places)
    pieces[1::4] = bodies
    lengths = list(map(len, properties))
    behind = {length: topic + _LENGTH.pack(length) for length in set(lengths)}
    pieces[2::4] = [behind[length] for length in lengths]
    pieces[3::4] = properties
    return b"".join(pieces)


def encode_topic(topic: str) -> bytes:
    """Return the length byte and the topic. Raises MessageIllegal."""
    raw = topic.encode("utf-8", "surrogatepass")
    if not 0 < len(raw) <= MAX_TOPIC_BYTES:
        raise MessageIllegal(f"topic of {len(raw)} bytes, allowed 1..{MAX_TOPIC_BYTES}")
    return bytes((len(raw),)) + raw


def check_queue(queue: MessageQueue) -> None:
    """Raise MessageIllegal for a queue that no folder can have."""
    topic, queue_id = queue
    halves = not topic.isascii() and any(0xD800 <= ord(letter) <= 0xDFFF for letter in topic)  # of surrogate pairs
    if queue_id < 0 or "/" in topic or "\0" in topic or topic in (".", "..") or halves:
        raise MessageIllegal(f"topic {topic!r}, queue {queue_id}: no folder can have this name")
    encode_topic(topic)


def check_message(message: Message, max_message_bytes: int) -> None:
    """Raise MessageIllegal where a field is too long for a record."""
    if len(message.body) > max_message_bytes:
        raise MessageIllegal(f"body of {len(message.body)} bytes, allowed {max_message_bytes}")
    if len(message.properties) > MAX_PROPERTIES_BYTES:
        raise PropertiesTooLong(len(message.properties))
    if len(message.born_host) not in (8, 20):
        raise MessageIllegal(f"born host of {len(message.born_host)} bytes, allowed 8 or 20")


def parse_record(data: bytes | memoryview, at: int, log_offset: int, *, check_crc: bool = True) -> DispatchEntry:
    """Check the record at data[at] that should be at log_offset and return what dispatch needs of it.

    Good is: known magic, all lengths add up within data, position as stored, CRC right. Raises RecordDamaged.
    """
    try:
        size, magic, crc, queue_id, _, queue_offset, phys, sys_flag = _FIXED.unpack_from(data, at)
        if magic not in (MAGIC_V1, MAGIC_V2):
            raise RecordDamaged(log_offset, f"magic {magic & 0xFFFFFFFF:08x}")
        if not SMALLEST_RECORD <= size <= len(data) - at:
            raise RecordDamaged(log_offset, f"size {size}, {len(data) - at} bytes left")
        if phys != log_offset:
            raise RecordDamaged(log_offset, f"its offset field says {phys}")
        body_at = at + _HEAD_BY_FLAG[sys_flag & 0x30].size
        (body_length,) = _PORT.unpack_from(data, body_at - 4)
        topic_at, properties_at = _lengths(data, magic, body_at, body_length, at + size)
        if check_crc and body_length and crc32(data[body_at : body_at + body_length]) & 0x7FFFFFFF != crc:
            raise ValueError("body CRC differs")
        topic = _topic_text(bytes(data[topic_at : properties_at - 2]))
        (stored_ms,) = _PHYS.unpack_from(data, at + (68 if sys_flag & BORN_V6 else 56))
    except (StructError, IndexError) as exc:
        raise RecordDamaged(log_offset, "cut off") from exc
    except ValueError as exc:  # also a topic that is not UTF-8
        raise RecordDamaged(log_offset, str(exc)) from exc
    properties = bytes(data[properties_at : at + size])
    return DispatchEntry(log_offset, size, topic, queue_id, queue_offset, sys_flag, stored_ms, properties)


def _lengths(data: bytes | memoryview, magic: int, body_at: int, body_length: int, end: int) -> tuple[int, int]:
    """Return where topic and properties begin. Raises ValueError unless the lengths add up to end."""
    topic_at = body_at + body_length
    if body_length < 0 or topic_at + 1 > end:
        raise ValueError(f"body length {body_length}")
    if magic == MAGIC_V1:
        topic_length, topic_at = data[topic_at], topic_at + 1
    else:
        topic_length, topic_at = _LENGTH.unpack_from(data, topic_at)[0], topic_at + 2
    properties_at = topic_at + topic_length + 2
    if properties_at > end or topic_length == 0:
        raise ValueError(f"topic length {topic_length}")
    (length,) = _LENGTH.unpack_from(data, properties_at - 2)
    if length > MAX_PROPERTIES_BYTES or properties_at + length != end:
        raise ValueError(f"properties length {length} does not end with the record")
    return topic_at, properties_at


@lru_cache(4096)
def _topic_text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def decode_record(data: bytes | memoryview, at: int = 0, *, check_crc: bool = True) -> StoredMessage:
    """Decode the stored message that begins at data[at].

        0  i32  size in bytes, itself included     12  i32  queue_id         28  i64  log_offset, bytes
        4  i32  magic 0xDAA320A7 or 0xDAA320AB     16  i32  flag             36  i32  sys_flag
        8  i32  CRC32 of the body, low 31 bits     20  i64  queue_offset     40  i64  born_ms, then born host,
    i64 stored_ms, store host, i32 reconsume times, i64 prepared offset, i32 body length, body, topic, properties.

    Raises RecordDamaged(at, reason); never reads outside data. Source: RocketMQ 4.9.8 MessageDecoder.decode.
    """
    if len(data) - at < SMALLEST_RECORD:
        raise RecordDamaged(at, f"{len(data) - at} bytes left")
    (log_offset,) = _PHYS.unpack_from(data, at + 28)
    try:
        entry = parse_record(data, at, log_offset, check_crc=check_crc)
    except RecordDamaged as exc:
        raise RecordDamaged(at, exc.reason) from exc
    head = _HEAD_BY_FLAG[entry.sys_flag & 0x30]
    (
        _,
        _,
        crc,
        queue_id,
        flag,
        queue_offset,
        _,
        sys_flag,
        born_ms,
        born_host,
        stored_ms,
        store_host,
        times,
        prepared,
        n,
    ) = head.unpack_from(data, at)
    body = bytes(data[at + head.size : at + head.size + n])
    places = (queue_offset, log_offset, sys_flag, born_ms, born_host, stored_ms, store_host, times, prepared)
    return StoredMessage(entry.topic, queue_id, flag, *places, body, entry.properties, crc, entry.size)


def stored_ms_of(record: bytes | memoryview) -> int:
    """Return the store time of a whole record."""
    born_v6 = record[39] & BORN_V6  # low byte of sys_flag
    return int(_PHYS.unpack_from(record, 68 if born_v6 else 56)[0])


def decode_properties(raw: bytes | str) -> dict[str, str]:
    """Return the pairs of a properties string; a piece without name or value is ignored, a later duplicate wins."""
    text = raw if isinstance(raw, str) else str(raw, "utf-8", "replace")
    pairs = {}
    for piece in text.split("\x02"):
        name, mark, value = piece.partition("\x01")
        if mark and name and value:
            pairs[name] = value
    return pairs


def encode_properties(pairs: Mapping[str, str]) -> bytes:
    """Return the stored form, without a last separator as 4.9 writes it. Raises MessageIllegal."""
    for name, value in pairs.items():
        if "\x01" in name or "\x02" in name or "\x02" in value:
            raise MessageIllegal(f"property {name!r} contains byte 01 or 02")
    text = "\x02".join([f"{name}\x01{value}" for name, value in pairs.items() if name and value])
    return text.encode("utf-8", "replace")


def find_property(properties: bytes, name: bytes) -> bytes | None:
    """Return one property's value without building a dict, None when it is absent or empty."""
    mark, at = b"\x02" + name + b"\x01", len(properties)
    while at >= 0:  # thousands of empty ones fit into a message
        at = properties.rfind(mark, 0, at)
        if at < 0 and not properties.startswith(mark[1:]):
            return None
        start = at + len(mark) if at >= 0 else len(mark) - 1
        end = properties.find(b"\x02", start)
        if value := properties[start:] if end < 0 else properties[start:end]:
            return value
    return None


def tags_code(topic: str, properties: bytes, stored_ms: int, delays_ms: tuple[int, ...] = DELAY_LEVELS_MS) -> int:
    """Return the last field of a queue entry: hash of TAGS, or the delivery time of a delayed message at rest."""
    if topic == SCHEDULE_TOPIC and (level := find_property(properties, b"DELAY")):
        try:
            number = int(level)
        except ValueError:
            number = 0
        if number > 0:
            return stored_ms + delays_ms[min(number, len(delays_ms)) - 1]
    at = properties.rfind(b"TAGS\x01")
    if at < 0:
        return 0
    end = properties.find(b"\x02", at)
    tags: bytes | None = properties[at + 5 :] if end < 0 else properties[at + 5 : end]
    if not tags or (at > 0 and properties[at - 1] != 2):  # an empty one, or the end of another name
        tags = find_property(properties, b"TAGS")
        if not tags:
            return 0
    return _hash_of(tags) if len(tags) <= LONGEST_KNOWN_TAG else java_hash(tags.decode("utf-8", "replace"))


def tags_codes(
    topic: str, properties: Sequence[bytes], stored_ms: int, delays_ms: tuple[int, ...] = DELAY_LEVELS_MS
) -> list[int]:
    """Return the `tags_code` of each message of a batch: one look when none has tags."""
    if topic != SCHEDULE_TOPIC and b"".join(properties).find(b"TAGS\x01") < 0:
        return [0] * len(properties)
    return [tags_code(topic, one, stored_ms, delays_ms) for one in properties]


def index_keys(topic: str, properties: bytes) -> list[str]:
    """Return what the index files of a record hold, `topic#key`: first UNIQ_KEY, then each part of KEYS."""
    keys = []
    if properties.startswith(b"UNIQ_KEY\x01") and properties.find(b"\x02UNIQ_KEY\x01") < 0:  # as clients write it
        end = properties.find(b"\x02")
        unique: bytes | None = properties[9:] if end < 0 else properties[9:end]
    else:
        unique = find_property(properties, b"UNIQ_KEY")
    if unique:
        keys.append(f"{topic}#{str(unique, 'utf-8', 'replace')}")
    if properties.find(b"KEYS\x01") >= 0 and (named := find_property(properties, b"KEYS")):
        keys += [f"{topic}#{part}" for part in str(named, "utf-8", "replace").split(" ") if part]
    return keys


@lru_cache(4096)
def _hash_of(tags: bytes) -> int:
    return java_hash(tags.decode("utf-8", "replace"))


_DIGITS: Final = b"0123456789abcdefghijklmnopqrstu"
_HIGH, _LOW = (bytes(_DIGITS[d] for d in column) for column in zip(*(divmod(c, 31) for c in range(256)), strict=True))


def java_hash(text: str) -> int:
    """Return Java's String.hashCode, a signed 32-bit number.

    A byte is 31·high + low, so the hash is 31·H + L where H and L are numbers in base 31: int() does the polynomial
    in C (0.4 µs against 2.4 µs for 43 characters). Beyond Latin-1 or int()'s 4300 digits it loops over UTF-16 units.
    """
    try:
        raw = text.encode("latin-1")
    except UnicodeEncodeError:
        raw = b""
    if raw and len(raw) <= 4000:
        value = 31 * int(raw.translate(_HIGH), 31) + int(raw.translate(_LOW), 31)
    else:
        units, value = text.encode("utf-16-be", "surrogatepass"), 0
        for i in range(0, len(units), 2):
            value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


@lru_cache(1024)
def _address(host: str) -> bytes:
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped.packed
    return address.packed


def encode_host(host: str, port: int) -> bytes:
    """Return 4 or 16 address bytes and the port as i32; an IPv4-mapped address becomes IPv4. Raises ValueError."""
    return _address(host) + _PORT.pack(port)


def decode_host(raw: bytes) -> tuple[str, int]:
    """Return address text and port. Raises ValueError unless raw is 8 or 20 bytes."""
    if len(raw) not in (8, 20):
        raise ValueError(f"host of {len(raw)} bytes, allowed 8 or 20")
    return str(ipaddress.ip_address(raw[:-4])), _PORT.unpack_from(raw, len(raw) - 4)[0]


def message_id(store_host: bytes, log_offset: int) -> str:
    """Return the offset message id: upper-case hex of the store host and the log offset."""
    return (store_host + _PHYS.pack(log_offset)).hex().upper()


def parse_message_id(text: str) -> tuple[bytes, int]:
    """Return store host bytes and log offset of an offset message id. Raises ValueError."""
    raw = bytes.fromhex(text) if text.isalnum() else b""
    if len(raw) not in (16, 28):
        raise ValueError(f"message id {text[:80]!r}: 32 or 56 hex digits are needed")
    return raw[:-8], _PHYS.unpack_from(raw, len(raw) - 8)[0]
