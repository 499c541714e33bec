"""Hostile clients, one function for each kind: raw bytes at ports of a box and a gateway until cancelled.

They come from this machine, which has no limits per address: the worst case for all other limits.
"""

import random
import socket
import struct
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

import trio

from netstack.wire.command import encode_command, request
from netstack.wire.frame import JSON, encode_frame
from tests.fuzz.parsers import PARSERS
from tests.netstack.wire.test_command import bomb
from tests.soak.grpc_attacks import GRPC_ATTACKS, GrpcAttack
from tests.soak.page_attacks import PAGE_ATTACKS, PageAttack
from tests.soak.patient_attacks import PATIENT_ATTACKS, PatientAttack
from tests.soak.slave_attacks import SLAVE_ATTACKS, SlaveAttack
from uplink_spark.wire.frames import FrameType, Hello, Status, encode_ping

MIB = 1 << 20
GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)


class Target(NamedTuple):
    """Where a box and a gateway answer, and a topic with messages."""

    broker_port: int
    namesrv_port: int
    page_port: int
    gateway_port: int
    topic: str
    grpc_port: int = 0
    metrics_port: int = 0
    slaves_port: int = 0


Attack = Callable[[Target, random.Random], Awaitable[None]]


async def _send_and_read(port: int, data: bytes, *, read: bool = True, stay_s: float = 1.0) -> None:
    with suppress(*GONE):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            with trio.move_on_after(stay_s):
                await stream.send_all(data)
                if read:
                    await stream.receive_some(65536)
                else:
                    await trio.sleep(stay_s)


def _worst(name: str) -> list[bytes]:
    return list(next(row for row in PARSERS if row.name == name).worst())


def _bodies(code: int, texts: list[bytes], ext: dict[str, str] | None = None) -> list[bytes]:
    return [encode_command(request(code, ext or {}, text)) for text in texts if len(text) < 15 * MIB]


async def references_in_headers(target: Target, rng: random.Random) -> None:
    """The frame of 2 KB that took 2.7 GB."""
    frame = encode_frame(JSON, bomb(), b"")
    while True:
        for port in (target.broker_port, target.namesrv_port):
            await _send_and_read(port, frame * rng.randrange(1, 20))


async def bodies_that_are_slow_to_read(target: Target, rng: random.Random) -> None:
    """Non-standard JSON, references, a hundred thousand values: in every request that takes JSON."""
    register = {"brokerName": "b", "brokerAddr": "10.9.9.9:1", "clusterName": "c", "haServerAddr": "", "brokerId": "0"}
    frames = [
        *((target.broker_port, frame) for code in (34, 400, 41, 46) for frame in _bodies(code, _worst("JSON body"))),
        *((target.namesrv_port, frame) for frame in _bodies(103, _worst("registration"), register)),
        *((target.namesrv_port, frame) for frame in _bodies(322, _worst("JSON body"), register)),
        *((target.broker_port, frame) for frame in _bodies(34, _worst("heartbeat"))),
    ]
    while True:
        port, frame = rng.choice(frames)
        await _send_and_read(port, frame)


async def bodies_that_inflate(target: Target, rng: random.Random) -> None:
    """Compressed registrations of 16 MiB and more."""
    header = {"brokerName": "b", "brokerAddr": "10.9.9.9:1", "clusterName": "c", "haServerAddr": "", "brokerId": "0"}
    frames = _bodies(103, _worst("compressed registration"), header | {"compressed": "true"})
    frames.append(encode_command(request(103, header | {"compressed": "true"}, zlib.compress(bytes(64 * MIB), 9))))
    while True:
        await _send_and_read(target.namesrv_port, rng.choice(frames))


def _pull(target: Target, wait_ms: int, offset: int = 0) -> bytes:
    ext = {
        "consumerGroup": "CG",
        "topic": target.topic,
        "queueId": "0",
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "6" if wait_ms else "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": str(wait_ms),
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return encode_command(request(11, ext))


async def pulls_that_nobody_reads(target: Target, rng: random.Random) -> None:
    frame = _pull(target, 0)
    while True:
        await _send_and_read(target.broker_port, frame * 400, read=False, stay_s=5.0)


async def tables_that_nobody_reads(target: Target, rng: random.Random) -> None:
    frames = [encode_command(request(code)) for code in (21, 201, 43, 206, 106)]
    while True:
        port = rng.choice((target.broker_port, target.namesrv_port))
        await _send_and_read(port, rng.choice(frames) * 8760, read=False, stay_s=5.0)


async def pulls_that_wait_for_one_message(target: Target, rng: random.Random) -> None:
    """Many wait on one connection; then a message of 3 MiB comes for all of them."""
    waiting = _pull(target._replace(topic="Parked"), 20_000) * 2000
    while True:
        with suppress(*GONE):
            stream = await trio.open_tcp_stream("127.0.0.1", target.broker_port)
            async with stream:
                await stream.send_all(waiting)
                await trio.sleep(0.5)
                ext = {
                    "a": "PG",
                    "b": "Parked",
                    "c": "TBW102",
                    "d": "1",
                    "e": "0",
                    "f": "0",
                    "g": "1",
                    "h": "0",
                    "i": "",
                }
                await _send_and_read(target.broker_port, encode_command(request(310, ext, bytes(3 * MIB))))
                await trio.sleep(3)


async def connections_that_say_nothing(target: Target, rng: random.Random) -> None:
    """Half-open ones at each port, greetings of TLS among them, frames that never end."""
    starts = (
        b"",
        b"\x16",
        b"\x00\xf0\x00\x00\x00\x00\x00\x10",
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        b"\x16\x03\x01\x02\x00\x01",
    )
    while True:
        streams: list[trio.SocketStream] = []
        for _ in range(600):
            with suppress(*GONE):
                port = rng.choice(target[:4])
                stream = await trio.open_tcp_stream("127.0.0.1", port)
                streams.append(stream)
                await stream.send_all(rng.choice(starts) + b" ")
        await trio.sleep(2)
        for stream in streams:
            await trio.aclose_forcefully(stream)


async def greetings_that_are_reset(target: Target, rng: random.Random) -> None:
    """A greeting of TLS or a part of a frame, and a reset before anybody has looked at it."""
    while True:
        for _ in range(100):
            with suppress(*GONE):
                stream = await trio.open_tcp_stream("127.0.0.1", rng.choice(target[:4]))
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                await stream.send_all(rng.choice((b"\x16\x03\x01", b"\x00\x00", b"GET /")))
                await trio.aclose_forcefully(stream)
        await trio.sleep(0.5)


async def frames_that_never_end(target: Target, rng: random.Random) -> None:
    """Twelve megabytes of a frame of sixteen, then silence."""
    data = struct.pack(">II", 16 * MIB - 8, 100) + bytes(12 * MIB)
    while True:
        await _send_and_read(target.broker_port, data, read=False, stay_s=5.0)


async def names_without_end(target: Target, rng: random.Random) -> None:
    """A new topic with each send, a new group with each heartbeat."""
    while True:
        frames = []
        for _ in range(50):
            name = f"junk{rng.getrandbits(60):x}"
            ext = {"a": "PG", "b": name, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1", "h": "0", "i": ""}
            frames.append(encode_command(request(310, ext, b"x")))
            beat = b'{"clientID":"%b","consumerDataSet":[{"groupName":"%b"}]}' % (name.encode(), name.encode())
            frames.append(encode_command(request(34, {}, beat)))
        await _send_and_read(target.broker_port, b"".join(frames))


async def expressions_without_end(target: Target, rng: random.Random) -> None:
    """Filters of the largest size, each another one."""
    while True:
        text = " OR ".join(f"a{rng.getrandbits(30)}='{number}'" for number in range(900))
        ext = {"consumerGroup": "CG", "topic": target.topic, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32"}
        ext |= {"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": text}
        frame = encode_command(request(11, ext | {"subVersion": "0", "expressionType": "SQL92"}))
        await _send_and_read(target.broker_port, frame)


async def batches_of_nothing(target: Target, rng: random.Random) -> None:
    ext = {
        "a": "PG",
        "b": "Batches",
        "c": "TBW102",
        "d": "1",
        "e": "0",
        "f": "0",
        "g": "1",
        "h": "0",
        "i": "",
        "m": "true",
    }
    frames = _bodies(320, _worst("batch"), ext)
    while True:
        await _send_and_read(target.broker_port, rng.choice(frames))


def hello(box: str) -> bytes:
    """Return what a box says first."""
    return Hello(box, ((1, 0),), ((7, 0),), 0, 1 << 40, 1_700_000_000_000, 1, "strange").encode()


async def status_without_end(target: Target, rng: random.Random) -> None:
    """Lines that differ, each as long as it may be, from a few boxes by turns."""
    texts = tuple("x" * 400 for _ in range(20))
    while True:
        lines = [
            Status(number, 2, 3, 4, 5, 6, "clean", "strange", rng.getrandbits(40), 1, "degraded", texts).encode()
            for number in range(200)
        ]
        first = hello(f"strange-{rng.randrange(4)}")
        await _send_and_read(target.gateway_port, first + b"".join(lines), read=False)


async def pings_that_nobody_reads(target: Target, rng: random.Random) -> None:
    """Questions to the gateway, ten thousand at once."""
    pings = encode_ping(FrameType.PING, 5) * 10_000
    while True:
        await _send_and_read(target.gateway_port, hello(f"strange-{rng.randrange(4)}") + pings, read=False)


async def handshakes_without_end(target: Target, rng: random.Random) -> None:
    """Connections to the gateway that say nothing useful, as fast as they are made."""
    while True:
        await _send_and_read(target.gateway_port, rng.randbytes(rng.randrange(1, 600)), stay_s=0.02)


def _at_grpc(attack: GrpcAttack) -> Attack:
    return lambda target, rng: attack(target.grpc_port, rng)


ATTACKS: dict[str, Attack] = {
    each.__name__.replace("_", " "): each
    for each in (
        references_in_headers,
        bodies_that_are_slow_to_read,
        bodies_that_inflate,
        pulls_that_nobody_reads,
        tables_that_nobody_reads,
        pulls_that_wait_for_one_message,
        connections_that_say_nothing,
        greetings_that_are_reset,
        frames_that_never_end,
        names_without_end,
        expressions_without_end,
        batches_of_nothing,
        status_without_end,
        pings_that_nobody_reads,
        handshakes_without_end,
    )
}


def _at_broker(attack: PatientAttack) -> Attack:
    return lambda target, rng: attack(target.broker_port, rng)


ATTACKS |= {name: _at_broker(each) for name, each in PATIENT_ATTACKS.items()}


def _at_page(attack: PageAttack) -> Attack:
    return lambda target, rng: attack(rng.choice((target.page_port, target.metrics_port)), rng)


def _at_slaves(attack: SlaveAttack) -> Attack:
    return lambda target, rng: attack(target.slaves_port, rng)


ATTACKS |= {name: _at_grpc(each) for name, each in GRPC_ATTACKS.items()}
ATTACKS |= {name: _at_page(each) for name, each in PAGE_ATTACKS.items()}
ATTACKS |= {name: _at_slaves(each) for name, each in SLAVE_ATTACKS.items()}
