"""Many boxes at one gateway: 1,000 connections that each ship small pieces, and the memory the gateway needs.

    python tests/bench/bench_boxes.py [--boxes 1000] [--pieces 5] [--every 0] [--reconnect 0] [--plain]

A long run is `--pieces 60 --every 10 --reconnect 12`: ten minutes in which each box sends a piece every ten seconds and
connects anew every two minutes. Over mutual TLS, every box with a certificate of its own (two calls of openssl each);
--plain leaves that out.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import resource
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from uplink_spark.centre.certs import make_box, make_ca, make_gateway
from uplink_spark.testing import MadeRecord, encode_log, raw_piece
from uplink_spark.wire import frames
from uplink_spark.wire.batch import PieceSource
from uplink_spark.wire.frames import FrameType, Hello, encode_frame
from uplink_spark.wire.identity import ALPN
from uplink_spark.wire.link import FrameQueue, FrameReader, LinkClosed, Stream

TOP = Path(__file__).parents[2]
NOW = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Load:
    """What boxes send: so many, so many pieces each, seconds from one to the next (0: as soon as it is receipted)."""

    boxes: int
    pieces: int
    every_s: float
    reconnect: int  # pieces after which a box connects anew, 0: never

    def connections(self, number: int) -> list[int]:
        """Return how many pieces a box sends on each of its connections: the boxes take turns at connecting anew."""
        if not self.reconnect:
            return [self.pieces]
        ends = [*range(1 + number % self.reconnect, self.pieces, self.reconnect), self.pieces]
        return [end - start for start, end in zip([0, *ends], ends, strict=False)]


class Log:
    """What of a box is receipted: so many pieces, up to an offset."""

    receipted = end = 0


class Crowd:
    """What all boxes share: the load, its start, how often they were greeted, how many pieces are receipted."""

    greeted = receipted = broken = 0

    def __init__(self, load: Load) -> None:
        self.load, self.start = load, trio.Event()


def make_certs(folder: Path, boxes: int) -> None:
    """A CA, a gateway and that many boxes, which share one key: making keys is not what is measured."""
    make_ca(folder)
    make_gateway(folder, "localhost")
    make_box(folder, "box-0", name="box-0")
    for number in range(1, boxes):
        shutil.copy(folder / "box-0.key", folder / f"box-{number}.key")
        make_box(folder, f"box-{number}", name=f"box-{number}")


async def connect(port: int, name: str, certs: Path | None) -> trio.abc.Stream:
    tcp = await trio.open_tcp_stream("127.0.0.1", port)
    if certs is None:
        return tcp
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_cert_chain(certs / f"{name}.crt", certs / f"{name}.key")
    context.load_verify_locations(certs / "ca.crt")
    context.set_alpn_protocols([ALPN])
    secured = trio.SSLStream(tcp, context, server_hostname="localhost", https_compatible=True)
    await secured.do_handshake()
    return secured


async def one_box(port: int, number: int, crowd: Crowd, *, certs: Path | None) -> None:
    """Send all pieces of a box; a connection that ends early is made anew, as a box does it."""
    source, log = PieceSource(f"box-{number}", number + 1, 7, 0, NOW, 1), Log()
    for pieces in crowd.load.connections(number):
        upto = log.receipted + pieces
        while log.receipted < upto:
            try:
                async with await connect(port, source.box, certs) as stream:
                    await send_pieces(stream, source, log, upto, crowd)
            except* (OSError, trio.BrokenResourceError, LinkClosed):
                crowd.broken += 1
                await trio.sleep(random.uniform(1, 5))


async def send_pieces(stream: Stream, source: PieceSource, log: Log, upto: int, crowd: Crowd) -> None:
    """Greet and send pieces, each once the one before is receipted, until so many are."""
    reader, outbox, receipt = FrameReader(stream), FrameQueue(stream), trio.Semaphore(0)
    outbox.put(Hello(source.box, ((source.epoch, 0),), ((7, 0),), 0, 1 << 40, NOW, 1, "bench").encode())
    await outbox.flush()
    kind, body = await reader.next_frame(pieces=False)
    assert kind == FrameType.WELCOME, body
    crowd.greeted += 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer, reader, outbox, receipt, crowd)
        nursery.start_soon(outbox.run)
        if not crowd.start.is_set():
            await crowd.start.wait()
            await trio.sleep(crowd.load.every_s * source.epoch / crowd.load.boxes)  # not all at once
        records = [MadeRecord(body=os.urandom(40) + b"x" * 160)] * 50
        while log.receipted < upto:
            next_at = trio.current_time() + crowd.load.every_s
            raw = encode_log(records, log.end)
            outbox.put(encode_frame(FrameType.PIECE, raw_piece(raw, log.end, source=source)[1]))
            await receipt.acquire()
            log.end += len(raw)
            log.receipted += 1
            await trio.sleep_until(next_at)
        nursery.cancel_scope.cancel()


async def answer(reader: FrameReader, outbox: FrameQueue, receipt: trio.Semaphore, crowd: Crowd) -> None:
    """Take what the gateway sends; a box that waits for the others of a slow machine is asked whether it is there."""
    while True:
        kind, body = await reader.next_frame(pieces=False)
        if kind == FrameType.RECEIPT:
            crowd.receipted += len(frames.decode_receipt(body).rows)
            receipt.release()
        elif kind == FrameType.PING:
            outbox.put(frames.encode_ping(FrameType.PONG, frames.decode_ping(body)))


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


async def run(port: int, pid: int, load: Load, *, certs: Path | None) -> None:
    crowd, total = Crowd(load), load.boxes * load.pieces
    async with trio.open_nursery() as nursery:
        for number in range(load.boxes):
            nursery.start_soon(partial(one_box, port, number, crowd, certs=certs))
            if number % 10 == 9:  # no more at once than a busy machine greets in the gateway's 10 s, nor 100 a second
                await trio.sleep(0.11)
                while crowd.greeted < number:  # noqa: ASYNC110 - a count has no event
                    await trio.sleep(0.02)
        idle = resident_mb(pid)
        began, tenths = time.perf_counter(), [0.0] * 10
        crowd.start.set()
        while crowd.receipted < total:
            await trio.sleep(0.1)
            tenth = min(9, crowd.receipted * 10 // total)
            tenths[tenth] = max(tenths[tenth], resident_mb(pid))
        spent = time.perf_counter() - began
    how = "plain" if certs is None else "TLS"
    print(
        f"{load.boxes} boxes, {how}, {crowd.greeted} connections, {crowd.broken} broken: "
        f"gateway {idle:.0f} MB connected, {max(tenths):.0f} MB at most, "
        f"{crowd.receipted / spent:.0f} pieces/s receipted in {spent:.0f} s"
    )
    grown = max(tenths[5:]) - max(tenths[:5])
    print(
        "MB at most in each tenth of the pieces:", *(f"{tenth:.0f}" for tenth in tenths), f"; second half {grown:+.1f}"
    )


def allow_files(wanted: int) -> None:
    """Let this process and the gateway, which inherits it, have that many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), max(hard, wanted)))
    except (ValueError, PermissionError):
        sys.exit(f"{wanted} open files are needed, {hard} are allowed: ulimit -Hn, or fewer --boxes")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--boxes", type=int, default=1000)
    parser.add_argument("--pieces", type=int, default=5)
    parser.add_argument("--every", type=float, default=0, help="seconds from one piece of a box to its next")
    parser.add_argument("--reconnect", type=int, default=0, help="pieces after which a box connects anew; 0: never")
    parser.add_argument("--plain", action="store_true", help="without TLS")
    options = parser.parse_args()
    load = Load(options.boxes, options.pieces, options.every, options.reconnect)
    allow_files(load.boxes + 256)
    print(f"{platform.machine()}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        certs = None if options.plain else Path(folder, "certs")
        if certs is not None:
            make_certs(certs, load.boxes)
        secured = [] if certs is None else ["--certs", str(certs)]
        where = ["--landing", str(Path(folder, "landing")), "--listen", "127.0.0.1:0", *secured]
        gateway = subprocess.Popen(
            [sys.executable, "-m", "uplink_spark", "gateway", *where],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=TOP,
        )  # fmt: skip
        try:
            assert gateway.stdout is not None
            port = int(gateway.stdout.readline().split()[1].rpartition(":")[2])
            trio.run(partial(run, port, gateway.pid, load, certs=certs))
        finally:
            gateway.terminate()
            gateway.wait()


if __name__ == "__main__":
    main()
