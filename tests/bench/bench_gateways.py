"""Boxes by the thousand at several gateways of one zone behind one address: who is let in, what it costs, what breaks.

    python tests/bench/bench_gateways.py [--boxes 2000] [--gateways 3] [--seconds 120] [--every 60] [--stay 60]
        [--arrive 0] [--kill 0] [--one-source] [--max-boxes 5000] [--shards 16] [--certs DIR]

Needs root: everything runs in a network namespace of its own, in which each box has an address of its own and nftables
gives each new connection to the common address to the next gateway (`dnat to numgen`). Over mutual TLS; certificates
are made by `cryptography` and kept in --certs. A box connects, sends a piece of five records --every s and connects
anew by the common address after --stay s; it keeps the protocol and waits between attempts as a real box does.
--arrive: boxes that come a second, 0: all at once. --kill: the last gateway is killed (SIGKILL) so many seconds after
all are connected. --one-source: all come from one address, as through a balancer that hides theirs. In the end the
manifest is read: each piece with a receipt once, no byte twice.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import psutil
import trio

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.bench_boxes import NOW, allow_files, resident_mb
from tests.bench.harness import processor_s
from uplink_spark.box.link.connect import Backoff
from uplink_spark.centre.certs import make_box, make_ca, make_gateway
from uplink_spark.errors import ProtocolError
from uplink_spark.testing import MadeRecord, encode_log, raw_piece
from uplink_spark.wire import frames
from uplink_spark.wire.batch import PieceSource
from uplink_spark.wire.frames import FrameType, Hello, encode_frame
from uplink_spark.wire.identity import ALPN
from uplink_spark.wire.link import FrameReader, LinkClosed
from uplink_spark.wire.tls import BOX_URI, TlsStream
from uplink_spark.zone.reader import ZoneReader

TOP = Path(__file__).parents[2]
COMMON, PORT, METRICS = "10.78.0.100", 10940, 10941
BREAKS = (OSError, trio.TooSlowError, trio.BrokenResourceError, trio.ClosedResourceError, LinkClosed, ProtocolError)
RECORDS = [MadeRecord(body=b"%02d" % number + b"x" * 198) for number in range(5)]
DIALING = 64  # boxes at once: more and this process, which is all boxes, is too slow for the deadlines of one


class TurnedAway(Exception):
    """The gateway said no: code, the gateway to go to, how long to wait."""

    def __init__(self, fault: frames.ErrorFrame) -> None:
        super().__init__(fault.text)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Plan:
    """What boxes do: how many, a piece each so many seconds, a new connection after so many, for how long."""

    boxes: int
    every_s: float
    stay_s: float
    seconds: float
    arrive: float
    one_source: bool
    certs: Path


@dataclass(slots=True)
class Seen:
    """What all boxes saw."""

    answers: Counter[str] = field(default_factory=Counter)  # how connections began, or what ended them
    connected: set[int] = field(default_factory=set)  # boxes that are welcomed now
    first: set[int] = field(default_factory=set)  # boxes that were welcomed at least once
    pieces: int = 0  # with a receipt
    again: int = 0  # sent a second time on purpose
    dup: int = 0  # of them, as receipts say
    slowest_s: list[float] = field(default_factory=list)  # from a piece to its receipt, of each
    dialing: trio.CapacityLimiter = field(default_factory=partial(trio.CapacityLimiter, DIALING))


class SimBox:
    """A box that keeps the protocol; its log is made as it goes."""

    def __init__(self, number: int, plan: Plan, seen: Seen, context: ssl.SSLContext) -> None:
        self.number, self._plan, self._seen, self._context = number, plan, seen, context
        self.source, self.end, self.receipted = PieceSource(f"box-{number}", number + 1, 7, 0, NOW, 1), 0, 0
        self._target, self._backoff = COMMON, Backoff()
        self._begun_of_last = 0  # log offset of the newest piece with a receipt

    async def run(self, until: float) -> None:
        if self._plan.arrive:
            await trio.sleep(self.number / self._plan.arrive)
        while trio.current_time() < until:
            wait_s = await self._once(until)
            await trio.sleep(min(wait_s, max(0.0, until - trio.current_time())))

    async def _once(self, until: float) -> float:
        """One connection to its end; return how long to wait before the next."""
        told = COMMON
        try:
            await self._connection(until)
            wait_s = self._backoff.next_s(refused=False)
        except TurnedAway as no:
            self._seen.answers[no.fault.code] += 1
            if no.fault.code == "moved" and no.fault.to and self._target == COMMON:
                told, wait_s = no.fault.to.rpartition(":")[0], 0.0
            else:
                wait_s = max(no.fault.retry_ms / 1000, self._backoff.next_s())
        except BREAKS as error:
            self._seen.answers[type(error).__name__] += 1
            wait_s = self._backoff.next_s(refused=False)
        finally:
            self._seen.connected.discard(self.number)
        self._target = told
        return wait_s

    async def _connection(self, until: float) -> None:
        async with self._seen.dialing:
            if trio.current_time() >= until:  # its turn came too late
                return
            tcp, link, reader = await self._dial()
        async with tcp:
            self._seen.answers["welcome"] += 1
            self._seen.connected.add(self.number)
            self._seen.first.add(self.number)
            await self._converse(link, reader, min(until, trio.current_time() + self._plan.stay_s))

    async def _dial(self) -> tuple[trio.SocketStream, TlsStream, FrameReader]:
        """Return a connection that is welcomed."""
        own = "10.77.255.1" if self._plan.one_source else f"10.77.{self.number // 250}.{self.number % 250 + 1}"
        with trio.fail_after(20):
            tcp = await trio.open_tcp_stream(self._target, PORT, local_address=own)
            try:
                self._context.load_cert_chain(self._plan.certs / f"{self.source.box}.crt", self._plan.certs / "box.key")
                link = TlsStream(tcp, self._context, server_side=False)  # which has a copy of what was loaded
                await link.do_handshake()
                return tcp, link, await self._greet(link)
            except BaseException:
                await trio.aclose_forcefully(tcp)
                raise

    async def _greet(self, link: TlsStream) -> FrameReader:
        source, reader = self.source, FrameReader(link)
        await link.send_all(Hello(source.box, ((source.epoch, 0),), ((7, 0),), 0, 1 << 40, NOW, 1, "bench").encode())
        kind, body = await reader.next_frame(pieces=False)
        if kind != FrameType.WELCOME:
            raise TurnedAway(frames.decode_fault(body))
        held = max((end for _, _, end in frames.decode_welcome(body).have), default=0)
        if held < self.receipted:
            raise AssertionError(f"{source.box}: receipt up to {self.receipted}, the gateway has {held}")
        return reader

    async def _converse(self, link: TlsStream, reader: FrameReader, until: float) -> None:
        if self.receipted and random.random() < 0.2:
            self._seen.again += 1
            await self._ship(link, reader, self._begun_of_last)
        next_at = trio.current_time() + random.uniform(0, self._plan.every_s)
        while next_at < until:
            await self._idle(link, reader, next_at)
            await self._ship(link, reader, self.receipted)
            next_at += self._plan.every_s
        await self._idle(link, reader, until)

    async def _idle(self, link: TlsStream, reader: FrameReader, until: float) -> None:
        with trio.move_on_at(until):
            while True:
                await self._frame(link, reader)

    async def _ship(self, link: TlsStream, reader: FrameReader, start: int) -> None:
        raw, began = encode_log(RECORDS, start), trio.current_time()
        await link.send_all(encode_frame(FrameType.PIECE, raw_piece(raw, start, source=self.source)[1]))
        rows: tuple[frames.ReceiptRow, ...] = ()
        while not rows:
            rows = await self._frame(link, reader)
        self._seen.slowest_s.append(trio.current_time() - began)
        self._backoff.reset()
        self._seen.dup += sum(row.dup for row in rows)
        if start == self.receipted:
            self._seen.pieces += 1
            self._begun_of_last, self.receipted = start, start + len(raw)

    async def _frame(self, link: TlsStream, reader: FrameReader) -> tuple[frames.ReceiptRow, ...]:
        """Take a frame; return the rows of a receipt."""
        kind, body = await reader.next_frame(pieces=False)
        if kind == FrameType.RECEIPT:
            return frames.decode_receipt(body).rows
        if kind == FrameType.PING:
            await link.send_all(frames.encode_ping(FrameType.PONG, frames.decode_ping(body)))
        elif kind == FrameType.ERROR:
            raise TurnedAway(frames.decode_fault(body))
        elif kind == FrameType.BYE:
            raise LinkClosed("BYE")
        return ()


def make_certs(folder: Path, boxes: int) -> None:
    """A CA, a gateway and boxes that share one key; those that are there stay."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    make_ca(folder)
    make_gateway(folder, "localhost")
    make_box(folder, "box")
    ca, now = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes()), datetime.now(UTC)
    signer = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    key = serialization.load_pem_private_key((folder / "box.key").read_bytes(), None).public_key()
    for number in range(boxes):
        path = folder / f"box-{number}.crt"
        if path.exists():
            continue
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"{BOX_URI}box-{number}")])
        made = x509.CertificateBuilder(ca.subject, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, path.stem)]))
        made = made.public_key(key).serial_number(x509.random_serial_number())  # type: ignore[arg-type]
        made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=30))
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        made = made.add_extension(names, critical=False).add_extension(uses, critical=False)
        whole = made.sign(signer, hashes.SHA256())  # type: ignore[arg-type]
        path.write_bytes(whole.public_bytes(serialization.Encoding.PEM))


def client_context(certs: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the gateways' certificate is for one name, the chain is checked
    context.load_verify_locations(certs / "ca.crt")
    context.set_alpn_protocols([ALPN])
    return context


def lay_network(gateways: int) -> None:
    """Addresses of boxes and gateways on the loopback device of this namespace, and one address for all gateways."""
    turns = ", ".join(f"{number} : 10.78.0.{number + 1}" for number in range(gateways))
    rule = f"ip daddr {COMMON} tcp dport {PORT} dnat to numgen inc mod {gateways} map {{ {turns} }}"
    chain = f"chain common {{ type nat hook output priority -100; {rule}; }}"
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for network in ("10.77.0.0/16", "10.78.0.0/16"):
        subprocess.run(["ip", "route", "add", "local", network, "dev", "lo"], check=True)
    subprocess.run(["nft", "-f", "-"], input=f"table ip uplink {{\n{chain}\n}}\n", text=True, check=True)


class GatewayProcess:
    """One gateway of the zone, what it used and what its metrics say."""

    def __init__(self, number: int, landing: Path, certs: Path, log: Path, more: list[str]) -> None:
        self.host = f"10.78.0.{number + 1}"
        at = f"{self.host}:{PORT}"
        where = ["--landing", str(landing), "--listen", at, "--advertise", at, "--certs", str(certs)]
        command = [sys.executable, "-m", "uplink_spark", "gateway", *where, "--metrics", f"{self.host}:{METRICS}"]
        self.process = subprocess.Popen(
            [*command, *more], stdout=subprocess.PIPE, stderr=log.open("w"), text=True, cwd=TOP
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("ready"), log.read_text()
        self.most_mb, self.used_s = 0.0, 0.0

    def look(self) -> None:
        with suppress(OSError, StopIteration, psutil.Error):
            self.most_mb = max(self.most_mb, resident_mb(self.process.pid))
            self.used_s = processor_s(self.process.pid)

    def told(self) -> dict[str, int]:
        """Return boxes, shards and how connections began, from its metrics."""
        with suppress(OSError), urllib.request.urlopen(f"http://{self.host}:{METRICS}/metrics", timeout=20) as page:
            text = page.read().decode()
            found = re.findall(r'^rocketbox_gateway_handshakes_total\{result="(\w+)"\} ([\d.]+)', text, re.M)
            found += re.findall(r"^rocketbox_gateway_(boxes_connected|shards_held) ([\d.]+)", text, re.M)
            return {name: int(float(value)) for name, value in found}
        return {}


async def watch(gateways: list[GatewayProcess], seen: Seen) -> None:
    began, told = trio.current_time(), 0.0
    while True:
        for gateway in gateways:
            gateway.look()
        now = trio.current_time() - began
        if now >= told:
            told = now + 10
            facts = f"{len(seen.connected)} connected, {len(seen.first)} welcomed once, {seen.pieces} receipts"
            print(f"{now:5.0f} s: {facts}; {dict(seen.answers)}", flush=True)
        await trio.sleep(0.5)


async def reached(seen: Seen, boxes: int, within_s: float) -> float | None:
    """Return after how many seconds every box was welcomed, None where it was not in time."""
    began = trio.current_time()
    with trio.move_on_after(within_s):
        while len(seen.first) < boxes:  # noqa: ASYNC110 - a count has no event
            await trio.sleep(0.1)
        return trio.current_time() - began
    return None


async def load(plan: Plan, gateways: list[GatewayProcess], kill_s: float) -> list[SimBox]:
    seen, context = Seen(), client_context(plan.certs)
    boxes = [SimBox(number, plan, seen, context) for number in range(plan.boxes)]
    until = trio.current_time() + plan.seconds
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, gateways, seen)
        async with trio.open_nursery() as fleet:
            for box in boxes:
                fleet.start_soon(box.run, until)
            print("all welcomed after", await reached(seen, plan.boxes, plan.seconds), "s", flush=True)
            if kill_s and trio.current_time() + kill_s < until:
                await trio.sleep(kill_s)
                gateways[-1].process.kill()
                seen.first.clear()
                seen.first.update(seen.connected)
                print("one killed", flush=True)
            await trio.sleep_until(until - 5)
            for gateway in gateways:
                print(gateway.host, await trio.to_thread.run_sync(gateway.told), flush=True)
            print(len(seen.connected), "connected at the end", flush=True)
        nursery.cancel_scope.cancel()
    waits = sorted(seen.slowest_s) or [0.0]
    print(f"{plan.boxes} boxes, {len(gateways)} gateways: {dict(seen.answers)}")
    print(f"{seen.pieces} pieces receipted, {seen.again} sent again, {seen.dup} receipts say so")
    print(f"receipt after {waits[len(waits) // 2]:.2f} s (median), {waits[len(waits) * 99 // 100]:.2f} s (p99)")
    return boxes


def check(landing: Path, boxes: list[SimBox]) -> None:
    """Read the manifest: of each box a run from 0 without hole or overlap, no shorter than its receipts."""
    zone, size = ZoneReader(str(landing)), len(encode_log(RECORDS, 0))
    places: dict[str, list[tuple[int, int]]] = defaultdict(list)
    rows = 0
    for table in zone.tables(zone.begins(), zone.ends()):
        numbers, name = table.numbers, table.words["box"]
        for row in range(len(table)):
            places[str(name[row])].append((int(numbers["start"][row]), int(numbers["end"][row])))
            rows += int(numbers["records"][row])
    lost = double = 0
    for box in boxes:
        found = sorted(places[box.source.box])
        double += sum(a[1] > b[0] for a, b in itertools.pairwise(found))
        whole = sum(end - start for start, end in found)
        lost += whole < box.receipted
    landed = sum(map(len, places.values()))
    wanted = sum(box.receipted // size for box in boxes)
    print(f"zone: {landed} pieces, {rows} rows, of {wanted} with a receipt; boxes with loss {lost}, doubles {double}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--boxes", type=int, default=2000)
    parser.add_argument("--gateways", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--every", type=float, default=60, help="seconds from one piece of a box to its next")
    parser.add_argument("--stay", type=float, default=60, help="seconds after which a box connects anew")
    parser.add_argument("--arrive", type=float, default=0, help="boxes that come a second; 0: all at once")
    parser.add_argument("--kill", type=float, default=0, help="seconds after which a gateway is killed; 0: never")
    parser.add_argument("--one-source", action="store_true", help="all boxes have one address")
    parser.add_argument("--max-boxes", type=int, default=5000, help="as of the gateway")
    parser.add_argument("--shards", type=int, default=16, help="as of the gateway")
    parser.add_argument("--certs", type=Path, help="folder of certificates, kept")
    options = parser.parse_args()
    if os.environ.get("BENCH_GATEWAYS_IN") != "1":
        os.environ["BENCH_GATEWAYS_IN"] = "1"
        os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])
    assert [name for _, name in socket.if_nameindex()] == ["lo"], "not in a network namespace of its own"
    allow_files(options.boxes + 512)
    lay_network(options.gateways)
    with tempfile.TemporaryDirectory() as folder:
        certs = options.certs or Path(folder, "certs")
        make_certs(certs, options.boxes)
        more = ["--shards", str(options.shards), "--max-boxes", str(options.max_boxes)]
        logs = [Path(folder, f"{number}.log") for number in range(options.gateways)]
        gateways = [GatewayProcess(n, Path(folder, "landing"), certs, log, more) for n, log in enumerate(logs)]
        try:
            time.sleep(10)  # until the shards are shared
            plan = Plan(
                options.boxes, options.every, options.stay, options.seconds, options.arrive, options.one_source, certs
            )
            boxes = trio.run(load, plan, gateways, options.kill)
            for gateway in gateways:
                print(f"{gateway.host}: {gateway.most_mb:.0f} MB at most, {gateway.used_s:.1f} s of processor time")
        finally:
            for gateway in gateways:
                gateway.process.terminate()
            for gateway in gateways:
                gateway.process.wait()
        check(Path(folder, "landing"), boxes)


if __name__ == "__main__":
    main()
