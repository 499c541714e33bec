"""How fast raw log bytes leave a box and arrive at the centre, over loopback with and without TLS, and what that costs.

Two figures: a box with a backlog against a gateway (both processes on this machine), and a gateway alone, fed with
pieces that were cut before. MB are raw megabytes (10^6). The rate is that between a tenth and nine tenths of the bytes:
the gateway's last commit waits its linger_ms, whatever the speed. CPU seconds are those of the whole process, the
store's own work after its start (rebuilding the key index) waited for before.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from storage_driver.log.clock import wall_ms
from storage_driver.record import Message, encode_host
from storage_driver.store import StoreConfig, open_store
from tests.bench.harness import processor_s
from uplink_spark.box.cutting.cutter import CutOrder, cut_piece
from uplink_spark.box.link.connect import GatewayConnection, greet, open_stream
from uplink_spark.box.shipper import make_uplink
from uplink_spark.config import UplinkConfig
from uplink_spark.wire.batch import PieceSource
from uplink_spark.wire.frames import FrameType, Hello, decode_receipt

TOP = Path(__file__).parents[2]
HOST = encode_host("127.0.0.1", 10911)
MB, MIB = 1_000_000, 1 << 20
BODIES = 20_011  # more than a compressor looks back
PIECE_BYTES = 4 * MIB


def body(number: int, size: int) -> bytes:
    """Telemetry: texts that repeat, figures that do not; with its record it compresses about fivefold."""
    dice = random.Random(number)
    out = ""
    while len(out) < size:
        key, value = dice.getrandbits(64), dice.random()
        out += f'{{"n":{number},"id":"{key:016x}","sensor":"line-{key % 40}","value":{value:.5f},"state":"ok"}}'
    return out[:size].encode()


async def fill(root: Path, megabytes: int, size: int) -> None:
    """Write a log of that many megabytes, 20,000 messages a second of its own time."""
    bodies = [body(n, size) for n in range(BODIES)]
    async with open_store(StoreConfig(root=root, store_host=HOST), now_ms=wall_ms) as store:
        number, began = 0, wall_ms()
        while store.end < megabytes * MB:
            for _ in range(500):  # a slow disk refuses what would wait longer than a second
                text, born_ms = bodies[number % BODIES], began + number // 20
                store.put(
                    Message("bench", number % 4, text, f"UNIQ_KEY\x01{number:032X}".encode(), 0, 0, born_ms, HOST)
                )
                number += 1
            await store.wait_committed(store.end)


def cpu() -> float:
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


async def settled() -> None:
    """Wait until this process has nothing left to do of its own."""
    for _ in range(60):
        before = cpu()
        await trio.sleep(0.5)
        if cpu() - before < 0.02:
            return


class Meter:
    """The rate between a tenth and nine tenths of the bytes."""

    def __init__(self, total: int) -> None:
        self._total, self._marks = total, list[tuple[float, int]]()

    def note(self, done: int) -> None:
        if self._total // 10 <= done <= self._total * 9 // 10:
            self._marks.append((time.perf_counter(), done))

    def rate(self) -> float:
        (first, low), (last, high) = self._marks[0], self._marks[-1]
        return (high - low) / MB / max(1e-9, last - first)


@dataclass(frozen=True, slots=True)
class Shipped:
    """What a run measured."""

    rate: float
    raw: int
    box_cpu: float


async def drain(root: Path, port: int, certs: Path | None, codec: str) -> Shipped:
    """Ship the whole log."""
    async with open_store(StoreConfig(root=root, store_host=HOST), now_ms=wall_ms) as store:
        await settled()
        uplink = make_uplink(
            store, UplinkConfig(f"localhost:{port}", "bench", certs=certs, codec=codec), root, clock_ok=lambda: True
        )
        held, meter, before = uplink.shipper.state.ledger.receipted, Meter(store.committed), cpu()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(uplink.run)
            while not held.log.covers(0, store.committed):
                await trio.sleep(0.02)
                held = uplink.shipper.state.ledger.receipted
                meter.note(held.log.end)
            used = cpu() - before
            nursery.cancel_scope.cancel()
        return Shipped(meter.rate(), store.committed, used)


@contextmanager
def gateway(folder: Path, certs: Path | None, *, nice: int = 0) -> Iterator[tuple[int, int]]:
    """A gateway process: port and pid."""
    extra = ["--certs", str(certs)] if certs is not None else []
    where = ["--landing", str(folder / "landing"), "--listen", "127.0.0.1:0", *extra]
    process = subprocess.Popen(
        [sys.executable, "-m", "uplink_spark", "gateway", *where],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=TOP,
    )  # fmt: skip
    try:
        os.setpriority(os.PRIO_PROCESS, process.pid, nice)
        assert process.stdout is not None
        yield int(process.stdout.readline().split()[1].rpartition(":")[2]), process.pid
    finally:
        process.terminate()
        process.wait()


def make_certs(folder: Path) -> Path:
    made = ["-m", "uplink_spark", "certs", "--dir", str(folder / "certs"), "--box", "bench", "--gateway", "localhost"]
    subprocess.run([sys.executable, *made], check=True, cwd=TOP, capture_output=True)
    return folder / "certs"


def label(tls: bool) -> str:
    return "TLS  " if tls else "plain"


def ship(megabytes: int, size: int, *, tls: bool, codec: str = "auto") -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trio.run(fill, folder / "store", megabytes, size)
        certs = make_certs(folder) if tls else None
        with gateway(folder, certs) as (port, pid):
            before = processor_s(pid)
            done = trio.run(drain, folder / "store", port, certs, codec)
            centre = processor_s(pid) - before
        wire = sum(path.stat().st_size for path in (folder / "landing").rglob("*.pack"))
    box_s, centre_s = (used / done.raw * 100 * MB for used in (done.box_cpu, centre))
    print(
        f"ship {label(tls)} {codec:4} {size:5} B bodies: {done.rate:6.1f} MB/s, {done.raw / wire:.2f}x; "
        f"CPU s per 100 MB: box {box_s:.2f}, gateway {centre_s:.2f}"
    )


async def cut(root: Path, hello_out: list[Hello]) -> list[bytes]:
    """All pieces of the log as frames."""
    async with open_store(StoreConfig(root=root, store_host=HOST), now_ms=wall_ms) as store:
        (epoch, _), (run, _) = store.lineage.epochs[-1], store.lineage.runs[0]
        runs = ((run, 0),)
        hello_out.append(Hello("bench", ((epoch, 0),), runs, 0, store.committed, wall_ms(), 1, "bench"))
        frames, at, file_end = [], 0, store.segments()[0].base + store.segments()[0].size
        while at < store.committed:
            source = PieceSource("bench", epoch, run, 0, wall_ms(), 1)
            piece = cut_piece(store.read_log, CutOrder(source, at, store.committed, file_end, PIECE_BYTES, "zstd"))
            frames.append(piece.frame)
            at = piece.header.end
        return frames


async def feed(port: int, certs: Path | None, hello: Hello, frames: list[bytes]) -> Meter:
    """Send all pieces as fast as the gateway's window lets them."""
    config = UplinkConfig(f"localhost:{port}", "bench", certs=certs)
    meter, free = Meter(hello.durable), trio.Semaphore(7)  # of 4 MiB in a window of 32

    async def receipts(connection: GatewayConnection) -> None:
        done = 0
        while done < hello.durable:
            kind, data = await connection.reader.next_frame(pieces=False)
            if kind == FrameType.RECEIPT:
                for row in decode_receipt(data).rows:
                    done = max(done, row.end)
                    free.release()
                meter.note(done)

    async with open_stream(config, config.gateway, clock_ok=True) as (stream, _):
        connection = await greet(stream, hello, None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receipts, connection)
            for frame in frames:
                await free.acquire()
                await connection.outbox.send(frame)
    return meter


def land(megabytes: int, size: int, *, tls: bool) -> None:
    """The gateway alone: the sender only moves bytes that are ready."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        hellos: list[Hello] = []
        trio.run(fill, folder / "store", megabytes, size)
        frames = trio.run(cut, folder / "store", hellos)
        certs = make_certs(folder) if tls else None
        with gateway(folder, certs) as (port, pid):
            before = processor_s(pid)
            meter = trio.run(feed, port, certs, hellos[0], frames)
            centre = (processor_s(pid) - before) / hellos[0].durable * 100 * MB
    print(f"land {label(tls)} {size:10} B bodies: {meter.rate():6.1f} MB/s; CPU s per 100 MB: gateway {centre:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, {options.megabytes} MB, load {os.getloadavg()[0]:.1f}")
    for _ in range(options.rounds):
        for tls in (False, True):
            for size in (200, 1024):
                ship(options.megabytes, size, tls=tls)
        ship(options.megabytes, 200, tls=True, codec="zlib")
        for size in (200, 1024):
            land(options.megabytes, size, tls=True)


if __name__ == "__main__":
    main()
