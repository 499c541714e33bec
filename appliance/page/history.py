"""An hour and a week of a few figures for the page's curves: a point each ten seconds, and a mean of each half hour.

Both are in one small file of fixed places, so that a restart continues with them. It is never synced: the kernel writes
it when it likes, each place has a checksum, and a power cut costs the last minutes of the curves and nothing else.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import trio

from appliance.box_view import BoxView
from appliance.page.vitals import HostVitals, read_vitals
from storage_driver.named_tuple import NamedTuple

log = logging.getLogger("appliance.page")
FIRST_S, LOOK_S, SAVE_S = 1.0, 10.0, 300.0
NAME = "page.history"
PLACE = struct.Struct("<Q10fI")  # time in ms, the figures, CRC-32 of what is before it
PLACE_BYTES = PLACE.size


class Point(NamedTuple):
    """The figures of one stretch of time that ends at `at_ms`: rates and levels are means over it."""

    at_ms: int
    messages_in: float = 0.0
    messages_out: float = 0.0
    bytes_in: float = 0.0
    sync_ms: float = 0.0  # mean duration of a sync, 0 where there was none
    unshipped: float = 0.0
    connections: float = 0.0
    processor: float = 0.0  # shares, 0..1
    memory: float = 0.0
    disk: float = 0.0
    temperature: float = 0.0  # 0: no sensor


class Reach(NamedTuple):
    """One of the two rows of points: how far apart they are, and how many are kept."""

    name: str
    step_s: int
    kept: int

    @property
    def span_s(self) -> int:
        return self.step_s * self.kept


HOUR, WEEK = Reach("hour", 10, 360), Reach("week", 1800, 336)
REACHES = {each.name: each for each in (HOUR, WEEK)}
FILE_BYTES = (HOUR.kept + WEEK.kept) * PLACE_BYTES


class CurveBuffer:
    """The points of one reach by place: a point's time says its place, so a jump of the clock costs only curves."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self._points: dict[int, Point] = {}
        self._unsaved: set[int] = set()

    def put(self, point: Point, *, saved: bool = False) -> None:
        """Keep a point in place of the one that was there a whole span ago."""
        place = point.at_ms // (1000 * self.reach.step_s) % self.reach.kept
        self._points[place] = point
        if not saved:
            self._unsaved.add(place)

    def since(self, now_ms: int) -> list[Point]:
        """Return the points of the span that ends now, oldest first."""
        first_ms = now_ms - 1000 * self.reach.span_s
        return sorted(point for point in self._points.values() if first_ms < point.at_ms <= now_ms)

    def take_unsaved(self) -> list[tuple[int, Point]]:
        """Return the places that changed since they were last taken, with their points."""
        taken = sorted((place, self._points[place]) for place in self._unsaved)
        self._unsaved.clear()
        return taken


def mean_of(points: Sequence[Point], at_ms: int) -> Point:
    """Return one point for several; of syncs only those that there were, of temperatures only those that were read."""
    columns = list(zip(*points, strict=True))[1:]
    some = {name: [v for v in column if v] for name, column in zip(Point._fields[1:], columns, strict=True)}
    sparse = ("sync_ms", "temperature")
    count = {name: len(some[name]) if name in sparse else len(points) for name in some}
    return Point(at_ms, *(sum(values) / max(1, count[name]) for name, values in some.items()))


def encode(point: Point) -> bytes:
    """Return what stands in the place of a point."""
    raw = PLACE.pack(*point, 0)[:-4]
    return raw + struct.pack("<I", zlib.crc32(raw))


def decode(raw: bytes) -> Point | None:
    """Return the point in a place, None if there is none or half of one."""
    if len(raw) != PLACE_BYTES or not any(raw) or zlib.crc32(raw[:-4]) != struct.unpack("<I", raw[-4:])[0]:
        return None
    return Point(*PLACE.unpack(raw)[:-1])


class _Totals(NamedTuple):
    """Running totals at one moment."""

    at_s: float
    messages_in: int
    messages_out: int
    bytes_in: int
    syncs: int
    sync_s: float


class CurveHistory:
    """Looks every ten seconds, keeps an hour and a week."""

    def __init__(self, watched: BoxView, *, vitals: Callable[[], HostVitals] = read_vitals) -> None:
        self._watched, self._read_vitals, self._path = watched, vitals, watched.data / NAME
        self.rows = {name: CurveBuffer(reach) for name, reach in REACHES.items()}
        self.vitals = vitals()
        self.newest: Point | None = None  # since the start
        self._totals = self._count()
        self._failed = False

    async def run(self) -> None:
        """Continue with what is on disk, then look until cancelled."""
        self.take(await trio.to_thread.run_sync(read_file, self._path))
        saved_s = trio.current_time()
        try:
            await trio.sleep(FIRST_S)
            self.look()
            while True:
                await trio.sleep(LOOK_S)
                self.look()
                if trio.current_time() - saved_s >= SAVE_S:
                    saved_s = trio.current_time()
                    await trio.to_thread.run_sync(self.save)
        finally:
            self.save()  # a few KB into the page cache, at a stop of any kind

    def take(self, raw: bytes) -> None:
        """Take the points of a file."""
        at = 0
        for row in self.rows.values():
            end = at + row.reach.kept * PLACE_BYTES
            for place in range(at, end, PLACE_BYTES):
                point = decode(raw[place : place + PLACE_BYTES])
                if point is not None:
                    row.put(point, saved=True)
            at = end

    def look(self) -> None:
        """Take one look, and the mean of a half hour when it is over."""
        before, before_vitals = self._totals, self.vitals
        self._totals, self.vitals = self._count(), self._read_vitals()
        self.newest = point = self._point(before, before_vitals)
        hour, week = self.rows[HOUR.name], self.rows[WEEK.name]
        hour.put(point)
        step_ms = 1000 * WEEK.step_s
        begun_ms = point.at_ms // step_ms * step_ms
        recent = [each for each in hour.since(point.at_ms) if each.at_ms >= begun_ms]
        week.put(mean_of(recent, point.at_ms))

    def _count(self) -> _Totals:
        stats, store = self._watched.tables.stats, self._watched.store.statistics()
        counts = (stats.puts.count, stats.gets.count, stats.puts.size, store.syncs, store.sync_s)
        return _Totals(trio.current_time(), *counts)

    def _point(self, before: _Totals, before_vitals: HostVitals) -> Point:
        watched, now, vitals = self._watched, self._totals, self.vitals
        took_s, syncs = max(0.001, now.at_s - before.at_s), now.syncs - before.syncs
        return Point(
            watched.now_ms(),
            (now.messages_in - before.messages_in) / took_s,
            (now.messages_out - before.messages_out) / took_s,
            (now.bytes_in - before.bytes_in) / took_s,
            1000 * (now.sync_s - before.sync_s) / syncs if syncs else 0.0,
            watched.uplink.statistics().unshipped_bytes if watched.uplink else 0,
            watched.governor.statistics().connections,
            vitals.ticks.share_since(before_vitals.ticks),
            vitals.memory_used,
            watched.store.statistics().disk_percent / 100,
            vitals.temperature_c or 0.0,
        )

    def save(self) -> None:
        """Write the places that changed, unsynced. Blocks; without room the curves live in memory alone."""
        try:
            write_places(self._path, self._unsaved())
        except OSError as exc:
            if not self._failed:
                log.warning("event=history_not_saved file=%s reason=%r", self._path, str(exc))
            self._failed = True
        else:
            self._failed = False

    def _unsaved(self) -> Iterable[tuple[int, bytes]]:
        first = 0
        for row in self.rows.values():
            yield from (((first + place) * PLACE_BYTES, encode(point)) for place, point in row.take_unsaved())
            first += row.reach.kept


def read_file(path: Path) -> bytes:
    """Return what is on disk, nothing if there is none. Blocks."""
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES)
    except OSError:
        return b""


def write_places(path: Path, places: Iterable[tuple[int, bytes]]) -> None:
    """Write some places of the file, unsynced. Blocks. Raises OSError."""
    path.touch(mode=0o600)
    with path.open("r+b", buffering=0) as file:
        for at, raw in places:
            file.seek(at)
            file.write(raw)
