"""Every parser that takes a peer's bytes: the largest input, the worst inputs we know, what they may cost.

`test_costs` holds each parser to its row, docs/threat-model.md prints the rows, `run` looks for worse inputs.
A step is one call, C functions included: some 50 to 100 ns.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import zstandard

from appliance.broker.admin.clients import STATUS
from appliance.broker.consume.heartbeat import MOST_BYTES, read_check, read_heartbeat, read_lock
from appliance.broker.filter import sql92
from appliance.broker.filter.sql92_tokens import ExpressionError
from appliance.broker.filter.subscriptions import SubscriptionError, parse_subscription
from appliance.broker.pop_requests.acknowledging import read_acks
from appliance.broker.pop_requests.receipts import read_receipt
from appliance.broker.publish.send_batch import MOST_MESSAGES, check_growth, parse_batch, shared_properties, with_shared
from appliance.group.copies.cut_news import MOST_TOLD, decode_cuts
from appliance.group.links.frames import CUTS, HEAD, LinkFrameDecoder, encode_frame
from appliance.group.links.message_frames import APPEND, KINDS, decode_message, encode_message
from appliance.grpc.send_shape import check_send
from appliance.namesrv.registration import MAX_TABLE_BYTES, read_registration
from netstack.errors import ProtocolError, Refused
from netstack.grpc.frame_gate import PREFACE
from netstack.grpc.header_block import HeaderDecoder
from netstack.grpc.http2 import Http2Server
from netstack.grpc.limits import GrpcLimits
from netstack.grpc.status import CallFailed
from netstack.grpc.uploads import Uploads
from netstack.wire import fastjson
from netstack.wire.bodies import ConsumerStatus, HeartbeatData, QueryAssignment
from netstack.wire.bodies_pop import ACKS_FROM_PEER
from netstack.wire.command import HEADER, decode_command, encode_command
from netstack.wire.frame import BINARY, JSON, MAX_FRAME, MAX_HEADER, Frame, FrameDecoder
from netstack.wire.replication import REPORT, ReportDecoder
from provisioning.frame import SerialFrameDecoder as LineDecoder
from storage_driver.consensus.members import Members, MembersAt
from storage_driver.consensus.messages import CampaignNow, Match
from storage_driver.consensus.terms import Row
from storage_driver.record import decode_properties
from uplink_spark.errors import ManifestDamaged, PieceDamaged
from uplink_spark.errors import ProtocolError as UplinkProtocolError
from uplink_spark.wire.cbor import decode_map
from uplink_spark.wire.frames import MAX_FRAME as MAX_UPLINK_FRAME
from uplink_spark.zone.entry_table import encode_table, table_of
from uplink_spark.zone.manifest import ManifestEntry, encode_items
from uplink_spark.zone.rollup import HEAD as ROLLED_HEAD
from uplink_spark.zone.rollup import MAGIC as ROLLED_MAGIC
from uplink_spark.zone.rollup import ROLLED_ENTRIES, decode_rolled, encode_rolled

KIB, MIB = 1024, 1 << 20
FILTERS = tuple(sql92.compile_expression(f"a > {number}") for number in ("1", "3000000000", "1.5"))
COLLIDING = (1 << 61) - 1  # whole numbers that differ by this have one hash
REFUSALS = (ProtocolError, Refused, SubscriptionError, PieceDamaged, CallFailed, UplinkProtocolError, ManifestDamaged)


class Parser(NamedTuple):
    """One parser. It raises one of REFUSALS or returns; `most_steps` and `most_bytes` hold for every input."""

    name: str
    where: str  # who calls it
    largest: int  # bytes of the largest input that is looked into
    most_steps: int
    most_bytes: int  # of memory beyond the input
    parse: Callable[[bytes], object]
    worst: Callable[[], Iterator[bytes]]


def _full(of: bytes, size: int, before: bytes = b"[", behind: bytes = b"1]") -> bytes:
    return before + of * ((size - len(before) - len(behind)) // len(of)) + behind


def _json_values() -> Iterator[bytes]:
    for of in (b"[],", b"{},", b"1,", b'"",', b"1.5,"):
        yield _full(of, min(MAX_FRAME, len(of) * (fastjson.FROM_PEER.values // 2 - 10)))
        yield _full(of, fastjson.FROM_PEER.bytes)
    yield b"{" + b",".join(b'"%d":{}' % number for number in range(45_000)) + b"}"
    yield b"[" * 10_000
    yield b'"' + b"x" * (fastjson.FROM_PEER.bytes - 2) + b'"'
    yield b'"' + b"x" * (MAX_FRAME - 2) + b'"'


def _lenient(size: int) -> Iterator[bytes]:
    for of in (b"1,", b"[],", b"{},", b"'',", b" ", b"{1:2},", b'"\\u0041",', b"{{a:1}:1},"):
        yield _full(of, size, b"{a:[", b"1]}")
    yield _full(b"1,", fastjson.FROM_PEER.bytes, b"{a:[", b"1]}")
    yield b"{a:'" + b"\\x41" * ((size - 10) // 4) + b"'}"
    yield b"{" + b"{" * (size - 1)
    yield b"'" + b"\\'" * (size // 2 - 1)
    for key in (b"'\\\\'", b"'\"\\''", b"\xe2\x80\x8b"):
        yield b"{" * 60 + key + b":1" + b"}:1" * 59 + b"}"
    yield b"{%b}" % b",".join(b"{q:%d}:1" % (COLLIDING * number) for number in range(1, size // 31))


def _references() -> Iterator[bytes]:
    for of in (2, 10, 60):
        rows = [b'"a0":["xxxxxxxxxx"]']
        for level in range(1, 12):
            rows.append(b'"a%d":[%b]' % (level, b",".join([b'{"$ref":"$.a%d"}' % (level - 1)] * of)))
        yield b"{" + b",".join(rows) + b"}"
    yield b"[" + b",".join([b'{"$ref":"$[0]"}'] * 3000) + b"]"
    yield b'[{"a":"%b"},%b]' % (b"x" * 300_000, b",".join([b'{"$ref":"$[0]"}'] * 3000))
    yield b"[" + b",".join([b'{"$ref":"$%b"}' % (b"[0]" * 341)] * 3000) + b"]"
    yield b'[%b,{"$ref":"$"}]' % b",".join([b'{"$ref":"$[0"}'] * 2600)
    yield b'{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"},"c":[%b]}' % b",".join([b'{"$ref":"$.a"}'] * 2000)
    for path, count in ((b".a" * 500, 3000), (b".a" * 500, 64), (b".\\\\a" * 200, 64), (b"['" * 500, 18)):
        yield b'{"a":{"$ref":"$"},"b":[%b]}' % b",".join([b'{"$ref":"$%b"}' % path] * count)


def _bodies() -> Iterator[bytes]:
    yield from _json_values()
    yield from _lenient(fastjson.FROM_PEER.lenient)
    yield from _references()


def _headers() -> Iterator[bytes]:
    ext = b",".join(b'"k%d":"%b"' % (number, b"v" * 900) for number in range(256))
    yield b'{"code":310,"extFields":{%b},"flag":0,"language":"JAVA","opaque":1,"version":409}' % ext
    yield b'{"code":310,"extFields":{"a":[%b]},"flag":0,"language":"JAVA","opaque":1,"version":409}' % (
        b",".join([b"[]"] * 19_000)
    )
    yield from (text for text in _references() if len(text) < MAX_HEADER)
    yield from (text for text in _lenient(HEADER.lenient) if len(text) < MAX_HEADER)


def _binary_headers() -> Iterator[bytes]:
    fixed = struct.pack(">hBhiii", 310, 0, 409, 1, 0, 0)
    for entry in (b"\0\1k\0\0\0\0", b"\0\0\0\0\0\0", b"\0\1k\0\0\0\x01v"):
        entries = entry * ((MAX_HEADER - 30) // len(entry))
        yield fixed + struct.pack(">i", len(entries)) + entries
    entries = b"".join(struct.pack(">h4sii", 4, b"%04d" % n, 900, 0)[:10] + b"v" * 900 for n in range(256))
    yield fixed + struct.pack(">i", len(entries)) + entries


def _heartbeats() -> Iterator[bytes]:
    codes = b",".join(b"%d" % n for n in range(90_000))
    one = b'{"topic":"T%d","subString":"*","codeSet":[],"tagsSet":[]}'
    many = b",".join(one % n for n in range(1000))
    yield (
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"T","codeSet":[%b]}]}]}'
        % (codes)
    )
    yield b'{"clientID":"c","consumerDataSet":[%b]}' % b",".join(
        [b'{"groupName":"g%d","subscriptionDataSet":[%b]}' % (n, many) for n in range(8)]
    )
    tags = b"||".join(b"t%d" % n for n in range(5000))
    given = b'{"groupName":"g","subscriptionDataSet":[%b]}' % b",".join(
        [b'{"topic":"T%d","subString":"%b"}' % (n, tags) for n in range(100)]
    )
    yield b'{"clientID":"c","consumerDataSet":[%b]}' % given
    yield b'{"clientID":"c","producerDataSet":[%b]}' % b",".join([b"{}"] * 45_000)
    codes = b",".join(b'"%d"' % (COLLIDING * number) for number in range(1, 90_000))
    yield b'{"clientID":"c","consumerDataSet":[{"subscriptionDataSet":[{"topic":"T","codeSet":[%b]}]}]}' % codes
    yield from (text for text in _bodies() if len(text) <= MOST_BYTES)


def _locks() -> Iterator[bytes]:
    queues = b",".join(b'{"topic":"T","brokerName":"b","queueId":%d}' % n for n in range(24_000))
    yield b'{"clientId":"c","consumerGroup":"g","mqSet":[%b]}' % queues
    yield from (text for text in _bodies() if len(text) <= MOST_BYTES)


def _registrations() -> Iterator[bytes]:
    topics = b",".join(b'"T%d":{}' % n for n in range(45_000))
    wrapper = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{%b}}}'
    yield wrapper % topics
    yield wrapper % b",".join(b'"T%d":{"readQueueNums":8,"perm":6}' % n for n in range(19_000))
    yield from _bodies()


def _packed(count: int, entries: bytes) -> bytes:
    return zlib.compress(struct.pack(">i", 2) + b"{}" + struct.pack(">i", count) + entries + struct.pack(">i", 0), 9)


def _compressed() -> Iterator[bytes]:
    entry = struct.pack(">i", 9) + b"T 1 1 6 0"
    for count in (20_000, 1_000_000):
        yield _packed(count, entry * count)
    yield zlib.compress(bytes(MAX_TABLE_BYTES + 1), 9)
    yield _packed(20_000, b"".join(struct.pack(">i", 700) + b"%06d 1 1 6 0" % n + b" " * 688 for n in range(20_000)))


def _batches() -> Iterator[bytes]:
    def item(properties: bytes, body: bytes = b"") -> bytes:
        size = 22 + len(body) + len(properties)
        head = struct.pack(">iiiii", size, 0, 0, 0, len(body))
        return head + body + struct.pack(">H", len(properties)) + properties

    for one in (item(b""), item(b"a\x01b\x02"), item(b"UNIQ_KEY\x01" + b"A" * 32 + b"\x02", b"x")):
        yield one * ((4 << 20) // len(one))
        yield one * min(MOST_MESSAGES, (4 << 20) // len(one))
        yield (one + item(b"", b"z")) * (min(MOST_MESSAGES, (4 << 20) // (len(one) + 23)) // 2)


def _batch(raw: bytes) -> object:
    """Parse a batch whose own properties are as long as they may be, and give them to each message."""
    own = "k\x01" + "v" * 400 + "\x02"
    flags, bodies, owns = parse_batch(raw, 4 << 20)
    check_growth(raw, len(flags), own, 4 << 20)
    shared = shared_properties(own)
    return [with_shared(each, shared) for each in owns], bodies


def _expressions() -> Iterator[bytes]:
    for of in (
        "a=1 OR ",
        "a=1 AND ",
        "(",
        "NOT ",
        "a IS NULL OR ",
        "-",
        "a IN ('x','y') OR ",
        "'x'=",
        "a BETWEEN 1 AND 2 OR ",
        "a=--1 OR ",
        "a=1/*x*/OR ",
    ):
        yield (of * (32_768 // len(of))).encode()
        yield (of * (32_700 // len(of)) + "a=1").encode()
        yield (of * (1 << 16)).encode()
    yield ("a IN (" + ",".join(f"'{n}'" for n in range(4000)) + ")").encode()


def _tags() -> Iterator[bytes]:
    for of in (b"a||", b"||", b"\xc3\xa9\xe4\xbd\xa0||", b" "):
        yield of * (32_768 // len(of.decode()))
        yield of * (64 << 10)
    yield "\u4f60".encode() * 32_768


def _properties() -> Iterator[bytes]:
    for of in (b"\x01\x02", b"a\x01b\x02", b"\x02", b"\x01", b"a\x01\x02"):
        yield of * (32_767 // len(of))


def _cbor() -> Iterator[bytes]:
    size = MAX_UPLINK_FRAME - 8
    for of in (b"\x80", b"\xa0", b"\x00", b"\x60", b"\x40"):
        yield b"\xa1\x61a\x9a" + struct.pack(">I", size) + of * size
        yield b"\xa1\x61a\x99" + struct.pack(">H", size // 2) + of * (size // 2)
    for first, again in ((b"", b"\xd8\x19\x00"), (b"\xd8\x1c", b"\xd8\x1d\x00")):
        text = first + b"\x79" + struct.pack(">H", 30_000) + b"x" * 30_000
        yield b"\xa1\x61a\xd9\x01\x00\x99" + struct.pack(">H", 10_001) + text + again * 10_000
    longs = b"".join(b"\xc2\x4a" + (COLLIDING << 13 | number).to_bytes(10, "big") + b"\0" for number in range(4000))
    yield b"\xa1\x61a\xb9" + struct.pack(">H", 4000) + longs
    yield b"\xa1\x61a\xd8\x23\x79" + struct.pack(">H", 60_004) + b"(a|b)*?" * 8572
    yield b"\x81" * size
    yield b"\xbb" + b"\xff" * 8
    yield b"\x5b" + b"\x7f" * 8 + bytes(size)
    yield b"\xc2\x59" + struct.pack(">H", size // 2) + b"\xff" * (size // 2)


def _line() -> Iterator[bytes]:
    for of in (b"\xc0", b"\xdb", b"\xc0\x80", b"x", b"\xc0\x81\xdb\xdc"):
        yield of * (16 * KIB // len(of))
    repeated = b"\xd9\x01\x00\x99\x05\x15\x59\x0f\xa0" + b"x" * 4000 + b"\xd8\x19\x00" * 1300
    item = b"\x84\x01\x01\x61x\xa1\x61a" + repeated
    yield b"\xc0" + item + zlib.crc32(item).to_bytes(4, "big") + b"\xc0"


def _compared() -> Iterator[bytes]:
    for of, behind in ((b"1", b"x"), (b"1", b"e"), (b"1", b"."), (b" ", b"1"), (b"1", b"d"), (b".", b"1"), (b"9", b"")):
        yield of * 32_000 + behind


def _compare(text: bytes) -> object:
    """Compare a property with each kind of number, as a filter does with each message."""
    properties = {"a": text.decode("utf-8", "replace")}
    return [matches(properties) for matches in FILTERS]


def _frames() -> Iterator[bytes]:
    frame = encode_command(
        decode_command(Frame(JSON, b'{"code":1,"flag":0,"language":"JAVA","opaque":1,"version":1}', b""))
    )
    yield frame * (64 * KIB // len(frame))
    yield b"\0\0\0\4" * (16 * KIB)
    yield b"\0\xff\xff\xff" + bytes(64 * KIB)


def _cut(data: bytes) -> object:
    decoder, found = FrameDecoder(), 0
    decoder.feed(data)
    while decoder.next_frame() is not None:
        found += 1
    return found


def _compile(text: bytes) -> object:
    """Compile without the memory of what was compiled before."""
    found = sql92._compiled(text.decode("utf-8", "replace"))
    if isinstance(found, ExpressionError):
        raise SubscriptionError(str(found))
    return found


def _reports() -> Iterator[bytes]:
    yield REPORT.pack(1 << 40) * (4 * KIB // REPORT.size)
    yield REPORT.pack(0) * (4 * KIB // REPORT.size - 1) + bytes(7)
    yield REPORT.pack(-1) * (4 * KIB // REPORT.size)


def _member(data: bytes) -> object:
    decoder = LinkFrameDecoder(most_record_bytes=5 * MIB, with_bytes=frozenset({APPEND}))
    return [decode_cuts(frame) if frame.kind == CUTS else decode_message(frame) for frame in decoder.feed(data)]


def _members() -> Iterator[bytes]:
    small = encode_message(CampaignNow(1))
    yield small * (256 * KIB // len(small))
    rows = tuple(Row(term, term) for term in range(1, 1025))
    large = encode_message(Match(1, 1, 1, 1, rows, (MembersAt(0, Members(("a",) * 16)),) * 64, 1))
    yield large * (256 * KIB // len(large))
    for head in _cbor():
        for kind in (KINDS[Match], CUTS):
            yield HEAD.pack(3 + len(head), kind, len(head)) + head if len(head) < 65_536 else b""
    cuts = encode_frame(CUTS, {"cuts": [[1, 2, 3, 4]] * MOST_TOLD})
    yield cuts * (256 * KIB // len(cuts))
    yield HEAD.pack(3 + 200 * KIB, APPEND, 0) + bytes(200 * KIB)


def _acks() -> Iterator[bytes]:
    ack = b'{"c":"G","t":"T","r":"0","so":0,"q":0,"pt":1,"b":"%s"}' % (b"/" * 680)
    yield b'{"brokerName":"b","acks":[' + b",".join([ack] * (ACKS_FROM_PEER.bytes // len(ack) - 1)) + b"]}"
    yield b'{"acks":[' + b",".join([b"{}"] * 40_000) + b"]}"
    yield from _bodies()


def _handle(raw: bytes) -> object:
    try:
        return read_receipt(raw.decode("utf-8", "replace"))
    except ValueError as exc:
        raise ProtocolError(str(exc)) from exc


def _handles() -> Iterator[bytes]:
    yield b"0 1 2 0 0 b 0 7"
    yield b"9" * 4300 + b" 1 2 0 0 b 0 7"
    yield b" " * MAX_HEADER
    yield b"1 " * (MAX_HEADER // 2)


def _link(data: bytes) -> None:
    Http2Server(GrpcLimits(), Uploads(32 * MIB), lambda: 0.0).feed(data)


def _read_block(data: bytes) -> None:
    HeaderDecoder(GrpcLimits().header_bytes).decode(data)


def _blocks() -> Iterator[bytes]:
    most = GrpcLimits().header_bytes
    for of in (b"\x82", b"\x40\x00\x00", b"\x3f\xe1\x1f", b"\x00\x81\xff\x00", b"\xff\x80\x80\x80\x01"):
        yield of * (most // len(of))
    yield b"\x00\xff\x80\x7f" + b"\x07" * (most - 4)


def _http2() -> Iterator[bytes]:
    for kind, flags in ((0, 1), (1, 4), (3, 0), (6, 0), (9, 0)):
        head = bytes((0, 0, 0, kind, flags, 0, 0, 0, 1))
        yield PREFACE + head * ((64 * KIB - len(PREFACE)) // len(head))
    call = b"\x83\x04\x04/s/M\x0f\x10\x10application/grpc"
    for flags in (4, 5):
        calls = (bytes((0, 0, len(call), 1, flags, 0, 0, n >> 8, n & 255)) + call for n in range(1, 4096, 2))
        yield PREFACE + b"".join(calls)[: 64 * KIB - len(PREFACE)]


def _rolled() -> Iterator[bytes]:
    topics = [{f"{number}-{topic}": (0, 1) for topic in range(8)} for number in range(ROLLED_ENTRIES)]
    made = [
        ManifestEntry(number, "log", f"box-{number}", 1, 1, f"pack-{number}", 0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, found)
        for number, found in enumerate(topics)
    ]
    yield encode_rolled(0, encode_items(made))
    squeeze = zstandard.ZstdCompressor().compress
    few = encode_table(table_of(0, [entry.encode() for entry in made[:2]]))
    lists = b"\x9a\0\x3f\0\0" + b"\x80" * (4 * MIB - 5)
    for plain in (bytes(4 * MIB), bytes(4 * MIB + 1), lists, b"\xbb" + b"\xff" * 8, b"\x81" * MIB, few[:-9], few):
        body = squeeze(plain) * 2
        yield ROLLED_HEAD.pack(ROLLED_MAGIC, zlib.crc32(body), len(body) // 2) + body


def _sends() -> Iterator[bytes]:
    size = 4 * MIB
    for of in (b"\x0a\x00", b"\x08\x01", b"\x08" + b"\x80" * 9 + b"\x01", b"\x0a\x02\x12\x00", b"\x0a\x02\x22\x00"):
        yield of * (size // len(of))


PARSERS = (
    Parser("frame cutter", "every remoting port, before access", 64 * KIB, 6_000, MIB, _cut, _frames),
    Parser(
        "JSON header",
        "every remoting port, before access",
        MAX_HEADER,
        45_000,
        10 * MIB,
        lambda header: decode_command(Frame(JSON, header, b"")),
        _headers,
    ),
    Parser(
        "binary header",
        "every remoting port, before access",
        MAX_HEADER,
        4_000,
        MIB,
        lambda header: decode_command(Frame(BINARY, header, b"")),
        _binary_headers,
    ),
    Parser(
        "JSON body",
        "every request with a JSON body",
        fastjson.FROM_PEER.bytes,
        80_000,
        56 * MIB,
        fastjson.loads,
        _bodies,
    ),
    Parser("heartbeat", "34", MOST_BYTES, 250_000, 56 * MIB, read_heartbeat, _heartbeats),
    Parser(
        "what a heartbeat needs",
        "34, mode keys",
        fastjson.FROM_PEER.bytes,
        350_000,
        56 * MIB,
        HeartbeatData.from_bytes,
        _heartbeats,
    ),
    Parser("client configuration", "46", MOST_BYTES, 100_000, 56 * MIB, read_check, _locks),
    Parser("queue locks", "41, 42", MOST_BYTES, 300_000, 56 * MIB, read_lock, _locks),
    Parser("assignment", "400", fastjson.FROM_PEER.bytes, 80_000, 56 * MIB, QueryAssignment.from_bytes, _bodies),
    Parser("batch acknowledgement", "200151", ACKS_FROM_PEER.bytes, 1_000_000, 16 * MIB, read_acks, _acks),
    Parser("POP handle", "200051, 200053", MAX_HEADER, 50, MIB, _handle, _handles),
    Parser(
        "registration",
        "103",
        fastjson.FROM_PEER.bytes,
        600_000,
        56 * MIB,
        lambda body: read_registration(body, "b", version=409, compressed=False),
        _registrations,
    ),
    Parser(
        "compressed registration",
        "103",
        MAX_TABLE_BYTES,
        600_000,
        48 * MIB,
        lambda body: read_registration(body, "b", version=409, compressed=True),
        _compressed,
    ),
    Parser(
        "consumer's answer",
        "223, in a thread of its own",
        256 * KIB,
        2_500_000,
        64 * MIB,
        lambda body: ConsumerStatus.from_bytes(body, STATUS),
        lambda: islice(_lenient(256 * KIB), 4, 7),
    ),
    Parser("batch", "320, and 10 or 310 with `batch`", 4 * MIB, 500_000, 48 * MIB, _batch, _batches),
    Parser(
        "tags",
        "11, 34, 46",
        32_768,
        60_000,
        4 * MIB,
        lambda text: parse_subscription("T", text.decode("utf-8", "replace")),
        _tags,
    ),
    Parser(
        "SQL92 expression",
        "11, 34, 46",
        32_768,
        200_000,
        2 * MIB,
        _compile,
        _expressions,
    ),
    Parser("SQL92 comparison", "each message of a filtered pull", 32_767, 60, MIB, _compare, _compared),
    Parser(
        "properties",
        "10, 310, 320",
        32_767,
        60_000,
        2 * MIB,
        lambda text: decode_properties(text.decode("utf-8", "replace")),
        _properties,
    ),
    Parser("uplink message", "gateway and box", MAX_UPLINK_FRAME, 80_000, 8 * MIB, decode_map, _cbor),
    Parser(
        "report of a slave", "replication port", 4 * KIB, 30, MIB, lambda data: ReportDecoder().feed(data), _reports
    ),
    Parser(
        "frame of a member",
        "replication port, after TLS with both certificates",
        256 * KIB,
        2_000_000,
        16 * MIB,
        _member,
        _members,
    ),
    Parser(
        "rolled-up entries",
        "readers of a landing zone",
        MIB,
        200_000,
        320 * MIB,
        lambda data: decode_rolled(data, 0, ROLLED_ENTRIES),
        _rolled,
    ),
    Parser("HTTP2 frames", "gRPC port, before access", 64 * KIB, 200_000, 2 * MIB, _link, _http2),
    Parser("HTTP2 headers", "gRPC port, before access", 16 * KIB, 40_000, MIB, _read_block, _blocks),
    Parser("SendMessage of gRPC", "gRPC port, before it is read", 4 * MIB + 64 * KIB, 400_000, MIB, check_send, _sends),
    Parser("serial line", "technician's cable", 16 * KIB, 120_000, MIB, lambda data: LineDecoder().feed(data), _line),
)


def corpus_of(parser: Parser) -> Path:
    """Return where inputs are kept that are worth trying: what a peer sends, what was found."""
    return Path(__file__).parent / "corpus" / parser.name.replace(" ", "-").replace("'", "")


def outcome(parser: Parser, data: bytes) -> str:
    """Return "read" or the reason of the refusal; whatever else a parser raises is a finding."""
    try:
        parser.parse(data)
    except REFUSALS as exc:
        return str(exc)
    return "read"


def table() -> str:
    """Return the rows as docs/threat-model.md prints them."""
    lines = [
        "| parser | read by | largest input | steps at most | memory at most |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for row in PARSERS:
        lines.append(
            f"| {row.name} | {row.where} | {_bytes(row.largest)} | {row.most_steps:,} | {_bytes(row.most_bytes)} |"
        )
    return "\n".join(lines) + "\n"


def _bytes(count: int) -> str:
    if count >= MIB:
        return f"{count / MIB:g} MiB"
    return f"{count / KIB:.3g} KiB"
