"""What a connection costs one gateway: to open it, to keep it idle, to ship slowly over it, by its process alone.

    python tests/bench/bench_connections.py [--boxes 2000] [--seconds 120] [--every 60] [--certs DIR]

Boxes are one process beside the gateway's, over mutual TLS on the loopback device. Idle, a box says what a real one
does: STATUS once a minute, PING after 30 s of silence. Then each sends a piece of five records --every s as well.
Processor time is that of the gateway's process, threads included (/proc/PID/stat), so boxes and other work beside do
not count but for the caches that they share.
"""

from __future__ import annotations

import argparse
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.bench_boxes import NOW, allow_files, resident_mb
from tests.bench.bench_gateways import RECORDS, TOP, client_context, make_certs
from tests.bench.harness import processor_s
from uplink_spark.testing import encode_log, raw_piece
from uplink_spark.wire import frames
from uplink_spark.wire.batch import PieceSource
from uplink_spark.wire.frames import FrameType, Hello, Status, encode_frame
from uplink_spark.wire.link import IDLE_PING_S, FrameQueue, FrameReader
from uplink_spark.wire.tls import TlsStream

STATUS_S = 60
AT_ONCE = 16  # boxes that connect beside one another


@dataclass(slots=True)
class Crowd:
    """What all boxes share."""

    certs: Path
    port: int
    context: ssl.SSLContext
    every_s: float
    welcomed: int = 0
    receipted: int = 0
    ship: trio.Event = field(default_factory=trio.Event)
    turns: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(AT_ONCE))


class IdleBox:
    """A box that connects once, says what an idle box says, and ships a piece now and then once it is told."""

    def __init__(self, number: int, crowd: Crowd) -> None:
        self._crowd, self._part = crowd, (number * 0.618034) % 1  # boxes are not in step
        self._source = PieceSource(f"box-{number}", number + 1, 7, 0, NOW, 1)
        self._outbox: FrameQueue
        self._end = 0  # of its log

    async def run(self) -> None:
        crowd, source = self._crowd, self._source
        async with crowd.turns:
            tcp = await trio.open_tcp_stream("127.0.0.1", crowd.port)
            crowd.context.load_cert_chain(crowd.certs / f"{source.box}.crt", crowd.certs / "box.key")
            link = TlsStream(tcp, crowd.context, server_side=False, receive_bytes=16 << 10)
            await link.do_handshake()
            self._outbox, reader = FrameQueue(link), FrameReader(link)
            hello = Hello(source.box, ((source.epoch, 0),), ((7, 0),), 0, 1 << 40, NOW, 1, "bench")
            await link.send_all(hello.encode())
            kind, body = await reader.next_frame(pieces=False)
            assert kind == FrameType.WELCOME, body
        crowd.welcomed += 1
        async with tcp, trio.open_nursery() as nursery:
            nursery.start_soon(self._outbox.run)
            nursery.start_soon(self._say, STATUS_S, self._status)
            nursery.start_soon(self._say, IDLE_PING_S, lambda: frames.encode_ping(FrameType.PING, 1))
            nursery.start_soon(self._ship)
            while True:
                kind, body = await reader.next_frame(pieces=False)
                if kind == FrameType.PING:
                    self._outbox.put(frames.encode_ping(FrameType.PONG, frames.decode_ping(body)))
                elif kind == FrameType.RECEIPT:
                    crowd.receipted += len(frames.decode_receipt(body).rows)
                assert kind not in (FrameType.ERROR, FrameType.BYE), body

    async def _say(self, every_s: float, frame: Callable[[], bytes]) -> None:
        await trio.sleep(every_s * self._part)
        while True:
            self._outbox.put(frame())
            await trio.sleep(every_s)

    def _status(self) -> bytes:
        return Status(self._end, 0, 0, 1 << 40, 0, 0, "clean", "rocketbox bench", NOW, 1, "ok").encode()

    async def _ship(self) -> None:
        await self._crowd.ship.wait()
        await trio.sleep(self._crowd.every_s * self._part)
        while True:
            raw = encode_log(RECORDS, self._end)
            self._outbox.put(encode_frame(FrameType.PIECE, raw_piece(raw, self._end, source=self._source)[1]))
            self._end += len(raw)
            await trio.sleep(self._crowd.every_s)


async def measure(crowd: Crowd, pid: int, boxes: int, seconds: float) -> None:
    async with trio.open_nursery() as nursery:
        mb, used, began = resident_mb(pid), processor_s(pid), time.perf_counter()
        for number in range(boxes):
            nursery.start_soon(IdleBox(number, crowd).run)
            await trio.sleep(0.0105)  # the gateway begins 100 handshakes a second
        while crowd.welcomed < boxes:  # noqa: ASYNC110 - a count has no event
            await trio.sleep(0.1)
        spent, kib = processor_s(pid) - used, (resident_mb(pid) - mb) * 1024
        took, now_mb = time.perf_counter() - began, resident_mb(pid)
        each = f"{spent / boxes * 1000:.2f} ms of processor time and {kib / boxes:.0f} KiB a connection"
        print(f"{boxes} boxes welcomed in {took:.0f} s: {each}, {mb:.0f} MB before, {now_mb:.0f} MB now", flush=True)
        for name in ("idle", "shipping"):
            if name == "shipping":
                crowd.ship.set()
                await trio.sleep(crowd.every_s)
            used, began, pieces = processor_s(pid), time.perf_counter(), crowd.receipted
            await trio.sleep(seconds)
            minutes = boxes * (time.perf_counter() - began) / 60
            cost = (processor_s(pid) - used) / minutes
            print(
                f"{name}: {cost * 1000:.2f} ms of processor time a box and minute, {60 / cost:,.0f} boxes fill a core; "
                f"{crowd.receipted - pieces} pieces receipted, {resident_mb(pid):.0f} MB",
                flush=True,
            )
        nursery.cancel_scope.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--boxes", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=120, help="of each measurement")
    parser.add_argument("--every", type=float, default=60, help="seconds from one piece of a box to its next")
    parser.add_argument("--certs", type=Path, help="folder of certificates, kept")
    options = parser.parse_args()
    allow_files(options.boxes + 512)
    with tempfile.TemporaryDirectory() as folder:
        certs = options.certs or Path(folder, "certs")
        make_certs(certs, options.boxes)
        where = ["--landing", f"{folder}/landing", "--listen", "127.0.0.1:0", "--certs", str(certs)]
        gateway = subprocess.Popen(
            [sys.executable, "-m", "uplink_spark", "gateway", *where, "--max-boxes", str(options.boxes)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=TOP, env=os.environ,
        )  # fmt: skip
        try:
            assert gateway.stdout is not None
            port = int(gateway.stdout.readline().split()[1].rpartition(":")[2])
            crowd = Crowd(certs, port, client_context(certs), options.every)
            trio.run(measure, crowd, gateway.pid, options.boxes, options.seconds)
        finally:
            gateway.terminate()
            gateway.wait()


if __name__ == "__main__":
    main()
