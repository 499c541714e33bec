"""The store alone: `python tests/bench/bench_store.py [--seconds S] [--cold-gib G] [--recover-gib G] [--only PART]`.

Senders are callbacks, as a connection's requests are: each sends its next message when the last one is durable. An
injected sync sleeps instead of asking the disk, after the real write, without the 50 µs that Linux may add to a sleep
to wake processors together. Wear is what the kernel counts as sent to the
disk for this process (/proc/self/io), per byte of log; the file system's journal is not in it. The collector and the
threads' turns are set as in a serving box. No seed: nothing is random.
"""

import argparse
import ctypes
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import trio

from appliance.gc_tuning import settle
from storage_driver.config import StoreConfig
from storage_driver.files.disk import DiskFile, RealDisk
from storage_driver.reading import ReadRequest
from storage_driver.record import Message, MessageQueue, encode_host, encode_properties
from storage_driver.store import MessageStore, open_store

HOST = encode_host("127.0.0.1", 10911)
QUEUES = 8
PR_SET_TIMERSLACK = 29  # prctl(2)
_prctl = ctypes.CDLL(None).prctl


class SlowFile:
    """A file whose sync takes a given time and reaches no disk."""

    def __init__(self, file: DiskFile, sync_s: float) -> None:
        self._file, self._sync_s = file, sync_s
        self.size, self.read, self.read_hot, self.resize = file.size, file.read, file.read_hot, file.resize
        self.fill_hot, self.allocate, self.punch = file.fill_hot, file.allocate, file.punch
        self.next_data, self.advise = file.next_data, file.advise
        self.read_medium, self.device = file.read_medium, file.device

    def write(self, pieces: Sequence[bytes], at: int) -> None:
        self._file.write(pieces, at)

    def sync(self, *, in_place: bool = False) -> None:
        _prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)  # of this thread, in ns
        time.sleep(self._sync_s)


class SlowDisk(RealDisk):
    """A real file system with syncs of a given duration."""

    def __init__(self, sync_s: float) -> None:
        self._sync_s = sync_s

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> DiskFile:
        return SlowFile(super().open(path, create=create, read_only=read_only), self._sync_s)


class Figures(NamedTuple):
    """Of one run."""

    per_s: float
    p50_ms: float
    p99_ms: float
    per_sync: float
    wear: float
    cpu_us: float  # of processor for each message, all threads: means something on a busy machine too


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def written_bytes() -> int:
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("write_bytes"):
            return int(line.split()[1])
    return 0


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class Sender:
    """Sends its next message when the last one is durable; does little else, since that counts as the store's."""

    __slots__ = ("_all", "_began", "_queue_id")

    def __init__(self, senders: "Senders", queue_id: int) -> None:
        self._all, self._queue_id, self._began = senders, queue_id, 0.0

    def send(self) -> None:
        every = self._all
        properties = b""
        if every.keys:
            every.number += 1
            properties = b"UNIQ_KEY\x01C0A8010A1F9018B4AAC2%012X" % every.number
        self._began = time.perf_counter()
        placed = every.store.put(Message("Bench", self._queue_id, every.body, properties, 0, 0, 1, HOST))
        every.store.when_committed(placed.end, self._woken)

    def _woken(self, reason: str | None) -> None:
        assert reason is None, reason
        every = self._all
        every.latencies.append(time.perf_counter() - self._began)
        if not every.stopped:
            self.send()


class Senders:
    """A number of senders that always have one message under way."""

    def __init__(self, store: MessageStore, body: bytes, *, keys: bool) -> None:
        self.latencies: list[float] = []
        self.store, self.body, self.keys = store, body, keys
        self.stopped = False
        self.number = 0

    async def run(self, count: int, seconds: float) -> float:
        """Let them send, return the seconds it took."""
        began = time.perf_counter()
        for number in range(count):
            Sender(self, number % QUEUES).send()
        await trio.sleep(seconds)
        self.stopped = True
        took = time.perf_counter() - began
        await self.store.wait_committed(self.store.end)
        return took


async def measure(
    folder: Path, senders: int, size: int, *, seconds: float, sync_s: float | None, keys: bool
) -> Figures:
    """Run senders against a fresh store."""
    root = folder / "run" / "store"
    config = StoreConfig(root, HOST, segment_bytes=256 << 20)
    disk = SlowDisk(sync_s) if sync_s is not None else None
    async with open_store(config, now_ms=now_ms, disk=disk, watched=()) as store:
        bench = Senders(store, b"x" * size, keys=keys)
        before, cpu_began = written_bytes(), time.process_time()
        took = await bench.run(senders, seconds)
        cpu_s = time.process_time() - cpu_began
        await store.prove()
        wear = (written_bytes() - before) / max(1, store.committed)
        counts = store.statistics()
    shutil.rmtree(folder / "run")
    ordered = sorted(bench.latencies)
    per_sync = counts.messages / max(1, counts.syncs)
    p50, p99 = ordered[len(ordered) // 2] * 1e3, ordered[len(ordered) * 99 // 100] * 1e3
    return Figures(len(ordered) / took, p50, p99, per_sync, wear, cpu_s * 1e6 / len(ordered))


async def throughput(folder: Path, seconds: float) -> None:
    columns = f"{'p50 ms':>7} {'p99 ms':>7} {'msg/sync':>8} {'wear':>5} {'cpu us':>7}"
    print(f"{'senders, size, sync':44} {'msg/s':>9} {columns}")
    cases: list[tuple[str, int, int, float | None, bool]] = [
        ("64 senders, 1 KiB, injected 0.1 ms", 64, 1024, 0.0001, False),
        ("64 senders, 1 KiB, injected 0.1 ms, keys", 64, 1024, 0.0001, True),
        ("64 senders, 1 KiB, injected 1 ms", 64, 1024, 0.001, False),
        ("64 senders, 1 KiB, this disk", 64, 1024, None, False),
        ("64 senders, 1 KiB, this disk, keys", 64, 1024, None, True),
        ("64 senders, 100 B, this disk", 64, 100, None, False),
        ("1 sender, 1 KiB, this disk", 1, 1024, None, False),
        ("1 sender, 100 B, this disk", 1, 100, None, False),
        ("256 senders, 1 KiB, this disk", 256, 1024, None, False),
    ]
    for name, senders, size, sync_s, keys in cases:
        f = await measure(folder, senders, size, seconds=seconds, sync_s=sync_s, keys=keys)
        print(
            f"{name:44} {f.per_s:9.0f} {f.p50_ms:7.2f} {f.p99_ms:7.2f} {f.per_sync:8.1f} {f.wear:5.2f} {f.cpu_us:7.1f}",
            flush=True,
        )


async def many_queues(folder: Path) -> None:
    """Memory of 10,000 queues."""
    root = folder / "queues" / "store"
    async with open_store(StoreConfig(root, HOST, segment_bytes=64 << 20), now_ms=now_ms) as store:
        before = resident_mb()
        for i in range(10_000):
            placed = store.put(Message(f"Topic{i // 8}", i % 8, b"x", b"", 0, 0, 1, HOST))
            if i % 1000 == 999:
                await store.wait_committed(placed.end)
        await store.prove()
        print(f"10,000 queues: {resident_mb() - before:.1f} MB resident more than none (goal < 40)")
    began = time.perf_counter()
    async with open_store(StoreConfig(root, HOST, segment_bytes=64 << 20), now_ms=now_ms) as store:
        print(f"opened again with {len(store.topics())} topics in {(time.perf_counter() - began) * 1e3:.0f} ms")
    shutil.rmtree(folder / "queues")


async def fill(store: MessageStore, gib: float) -> None:
    properties, body = encode_properties({"TAGS": "a"}), b"x" * 16_000
    while store.end < gib * (1 << 30):
        placed = [store.put(Message("Cold", i % QUEUES, body, properties, 0, 0, 1, HOST)) for i in range(200)]
        await store.wait_committed(placed[-1].end)


def drop_cache(store: MessageStore) -> None:
    os.sync()
    for segment in store._log.segments:
        segment.file.advise(0, 0, os.POSIX_FADV_DONTNEED)


async def replay(store: MessageStore) -> int:
    count = 0
    for queue_id in range(QUEUES):
        queue, at = MessageQueue("Cold", queue_id), 0
        while at < store.max_offset(queue):
            found = store.read_hot(ReadRequest(queue, at, 32, 1 << 18))
            found = found or await store.read(queue, at, max_count=32, max_bytes=1 << 18)
            count, at = count + found.records, found.next_offset
            await trio.lowlevel.checkpoint()
    return count


async def cold(folder: Path, gib: float, seconds: float) -> None:
    """p99 of sends while a consumer replays cold data, against p99 without it."""
    root = folder / "cold" / "store"
    async with open_store(StoreConfig(root, HOST), now_ms=now_ms) as store:
        await fill(store, gib)
        await store.prove()
        alone = Senders(store, b"x" * 1024, keys=False)
        await alone.run(16, seconds)
        drop_cache(store)
        beside = Senders(store, b"x" * 1024, keys=False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(replay, store)
            await beside.run(16, seconds)
            nursery.cancel_scope.cancel()
    a, b = (sorted(s.latencies)[len(s.latencies) * 99 // 100] * 1e3 for s in (alone, beside))
    print(
        f"16 senders: p99 {a:.2f} ms alone, {b:.2f} ms while {gib:g} GiB are replayed cold: {b / a:.1f} x (goal <= 2)"
    )
    shutil.rmtree(folder / "cold")


async def under_load(root: Path, gib: float) -> None:
    """Fill a store, say so, and send until the process is killed."""
    async with open_store(StoreConfig(root, HOST), now_ms=now_ms) as store:
        await fill(store, gib)
        print("loaded", flush=True)
        await Senders(store, b"x" * 1024, keys=True).run(64, 3600)


async def recover(folder: Path, gib: float) -> None:
    """Time to open a store of some GiB whose process was killed under load."""
    root = folder / "recover" / "store"
    command = [sys.executable, __file__, "--load", str(root), str(gib)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as loaded:  # noqa: ASYNC220 - killed without a word
        assert loaded.stdout is not None
        await trio.to_thread.run_sync(loaded.stdout.readline)
        await trio.sleep(3)
        loaded.kill()
    began, cpu_began = time.perf_counter(), time.process_time()
    async with open_store(StoreConfig(root, HOST), now_ms=now_ms) as store:
        took, cpu, verdict = time.perf_counter() - began, time.process_time() - cpu_began, store.verdict
        scanned = verdict.scanned_bytes / (1 << 20)
        print(
            f"{gib:g} GiB stored, killed under load: open in {took * 1e3:.0f} ms ({cpu * 1e3:.0f} ms of processor), "
            f"{scanned:.0f} MiB scanned, {verdict.verdict} (goal 2 s at 10 GB)"
        )
    shutil.rmtree(folder / "recover")


async def bench(options: argparse.Namespace, folder: Path) -> None:
    began = time.perf_counter()
    async with open_store(StoreConfig(folder / "empty" / "store", HOST), now_ms=now_ms):
        print(f"empty store open in {(time.perf_counter() - began) * 1e3:.1f} ms")
    parts: dict[str, Callable[[], Awaitable[None]]] = {
        "queues": lambda: many_queues(folder),
        "throughput": lambda: throughput(folder, options.seconds),
        "recover": lambda: recover(folder, options.recover_gib),
        "cold": lambda: cold(folder, options.cold_gib, options.seconds),
    }
    for name, part in parts.items():
        if options.only in (None, name):
            await part()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--cold-gib", type=float, default=1.0, help="5 for the figure of the goal")
    parser.add_argument("--recover-gib", type=float, default=1.0, help="10 for the figure of the goal")
    parser.add_argument("--only", choices=["queues", "throughput", "recover", "cold"], help="one part alone")
    parser.add_argument("--load", nargs=2, metavar=("ROOT", "GIB"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load is not None:
        trio.run(under_load, Path(options.load[0]), float(options.load[1]))
        return 0
    print(
        f"store: {platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, {platform.release()}"
    )
    settle()
    folder = Path(tempfile.mkdtemp(prefix="bench-store-", dir="."))
    try:
        trio.run(bench, options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
