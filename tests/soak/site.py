"""The parts of a soak that are not load: a box and a gateway as processes, the link between them that breaks, looks."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil
import trio
from prometheus_client.parser import text_string_to_metric_families

from appliance.metrics.scrape import SOCKET_NAME, scrape
from storage_driver.errors import RecordDamaged
from storage_driver.record import decode_record
from tests.interop.box import Box, Child, Gateway
from tests.soak.samples import Sample
from uplink_spark.wire.batch import open_piece
from uplink_spark.zone.reader import ZoneReader

LOOK_S, ASK_S = 5.0, 30.0


@dataclass(slots=True)
class Link:
    """A TCP relay that somebody keeps cutting: `port` is where the box connects, `cuts` how often it was cut."""

    port: int
    cuts: int = 0
    down_s: float = 0.0
    _open: bool = True
    _streams: set[trio.SocketStream] = field(default_factory=set)

    async def relay(self, target: int, left: trio.SocketStream) -> None:
        """Carry one connection both ways until either side ends it or the link is cut."""
        if not self._open:
            await trio.aclose_forcefully(left)
            return
        try:
            right = await trio.open_tcp_stream("127.0.0.1", target)
        except OSError:
            await trio.aclose_forcefully(left)
            return
        self._streams |= {left, right}
        async with trio.open_nursery() as nursery:
            for source, sink in ((left, right), (right, left)):
                nursery.start_soon(self._pump, source, sink, nursery.cancel_scope)
        self._streams -= {left, right}
        await trio.aclose_forcefully(left)
        await trio.aclose_forcefully(right)

    async def _pump(self, source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope) -> None:
        try:
            async for part in source:
                await sink.send_all(part)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        scope.cancel()

    async def keep_breaking(self, rng: random.Random, up_s: float, down_s: float) -> None:
        """Cut and restore until cancelled; it ends restored."""
        try:
            while True:
                await trio.sleep(rng.uniform(0.5, 1.5) * up_s)
                self._open, away_s = False, rng.uniform(0.3, 1.7) * down_s
                self.cuts, self.down_s = self.cuts + 1, self.down_s + away_s
                for stream in list(self._streams):
                    await trio.aclose_forcefully(stream)
                await trio.sleep(away_s)
                self._open = True
        finally:
            self._open = True


@dataclass(frozen=True, slots=True)
class Site:
    """What runs: where clients connect, the box's process and folders."""

    namesrv: str
    data: Path
    landing: Path
    box: psutil.Process
    link: Link

    async def metrics(self) -> dict[str, float]:
        """Return the box's metrics, summed over labels."""
        _, text = await trio.to_thread.run_sync(scrape, self.data / "run" / SOCKET_NAME, ASK_S)
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
        return found

    async def look(self, began_s: float) -> Sample:
        """Return one sample."""
        seen = await self.metrics()
        with self.box.oneshot():
            times = self.box.cpu_times()
            memory, files = self.box.memory_info().rss, self.box.num_fds()
            threads, cpu_s = self.box.num_threads(), times.user + times.system
        return Sample(
            trio.current_time() - began_s,
            memory,
            files,
            threads,
            cpu_s,
            int(seen["rocketbox_stored_messages_total"]),
            int(seen.get("rocketmq_messages_out_total", 0)),
            int(seen["rocketbox_uplink_unshipped_bytes"]),
            int(seen.get("rocketmq_consumer_lag_messages", 0)),
            seen["rocketbox_sync_seconds_sum"] / max(1.0, seen["rocketbox_sync_seconds_count"]),
        )

    async def keep_looking(self, samples: list[Sample], began_s: float) -> None:
        while True:
            samples.append(await self.look(began_s))
            await trio.sleep(LOOK_S)


@asynccontextmanager
async def open_site(folder: Path) -> AsyncIterator[Site]:
    """Start gateway, link and box; leaving ends them."""
    gateway = Gateway(folder / "landing")
    gateway.landing.mkdir()
    async with _running(gateway), trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        link = Link(listener.socket.getsockname()[1])
        nursery.start_soon(partial(trio.serve_listeners, partial(link.relay, gateway.port), [listener]))
        box = Box(folder / "data", uplink=f"127.0.0.1:{link.port}")
        async with _running(box):
            yield Site(box.namesrv, box.data, gateway.landing, psutil.Process(box.pid), link)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def _running(child: Child) -> AsyncIterator[None]:
    await trio.to_thread.run_sync(child.start)
    try:
        yield
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(child.stop)


def landed(landing: Path) -> tuple[set[str], int]:
    """Return the keys of all messages upstream, and how many bytes the log had there."""
    keys, raw_bytes = set[str](), 0
    zone = ZoneReader(str(landing))
    ends = zone.ends()
    for entry in zone.entries(dict.fromkeys(ends, 0), ends):
        if entry.kind != "log":
            continue
        with (landing / entry.pack).open("rb") as pack:
            pack.seek(entry.offset)
            raw = open_piece(pack.read(entry.stored_bytes)).raw()
        raw_bytes += len(raw)
        keys.update(_keys_in(raw))
    return keys, raw_bytes


def _keys_in(raw: bytes) -> set[str]:
    found, at = set(), 0
    while at < len(raw):
        try:
            message = decode_record(raw, at)
        except RecordDamaged:
            break  # the blank at the end of a segment
        found.add(message.property_map.get("KEYS", ""))
        at += message.size
    return found
