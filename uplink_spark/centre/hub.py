"""What the connections of a gateway share: who is connected, what is held, how much memory and disk are left."""

from __future__ import annotations

import itertools
import logging
import os
import random
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import trio

from uplink_spark.centre.lander import LandingCounts, ShardLander
from uplink_spark.centre.zone_files.coverage import BoxCover
from uplink_spark.centre.zone_files.records import CentreRecords
from uplink_spark.config import GatewayConfig
from uplink_spark.errors import Refused
from uplink_spark.wire import frames
from uplink_spark.wire.batch import PieceHeader, codecs_here
from uplink_spark.wire.failpoints import Failpoint, no_failpoint
from uplink_spark.wire.frames import Hello, Status, Welcome
from uplink_spark.wire.identity import BOX_NAME, find_fork, stick_fork
from uplink_spark.wire.link import FrameQueue
from uplink_spark.zone.files import shown
from uplink_spark.zone.manifest import Zone, shard_of

log = logging.getLogger("uplink_spark.gateway")
TWIN_WINDOW_S, TWIN_TURNS = 600, 3
PAUSE_RATIO, FULL_RATIO = 0.85, 0.95
PAUSE_MS = 30_000
STATUS_EVERY_MS = 20_000
TAKING_MS = (300, 1500)  # when a box asks again whose shard is between two gateways


class Budget:
    """Bytes of unlanded pieces in memory; who comes when it is full waits in turn, and that is the back-pressure."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._queue: deque[tuple[int, trio.Event]] = deque()

    async def acquire(self, length: int) -> None:
        await trio.lowlevel.checkpoint()  # before: bytes taken by one who is cancelled here would be nobody's
        if not self._queue and length <= self._left:
            self._left -= length
            return
        place = (length, trio.Event())
        self._queue.append(place)
        try:
            await place[1].wait()
        except trio.Cancelled:
            if place in self._queue:
                self._queue.remove(place)
                self.release(0)  # whoever stood behind it may fit now
            else:
                self.release(length)  # given between the cancellation and here
            raise

    def release(self, length: int) -> None:
        self._left += length
        while self._queue and self._queue[0][0] <= self._left:
            wanted, event = self._queue.popleft()
            self._left -= wanted
            event.set()

    @property
    def left(self) -> int:
        return self._left

    def is_short(self) -> bool:
        """Whether somebody waits."""
        return bool(self._queue)


@dataclass(slots=True)
class GatewayCounts:
    """Counters of the metrics."""

    handshakes: Counter[str] = field(default_factory=Counter)  # by result: welcome, or what ended it before
    refused_kinds: Counter[str] = field(default_factory=Counter)  # refused before they could be landed, "unread" too
    refused: Counter[str] = field(default_factory=Counter)  # by code
    raw_bytes: int = 0
    wire_bytes: int = 0
    twins: int = 0
    status_left_out: int = 0  # lines: their boxes sent more than one in STATUS_EVERY_MS
    divergences: int = 0
    zone_doubts: Counter[str] = field(default_factory=Counter)  # what boxes know of another or a later landing zone
    shards: dict[int, LandingCounts] = field(default_factory=dict)  # of several gateways: of all it had since its start

    def received(self, header: PieceHeader, length: int) -> None:
        self.raw_bytes += header.raw_bytes
        self.wire_bytes += length


class ConnectedBox(Protocol):
    """A connected box, as the hub sees it."""

    outbox: FrameQueue

    def failed(self, code: str, text: str) -> None: ...


@dataclass(slots=True)
class BoxSeen:
    """What is known of a box beside its pieces."""

    hellos: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=16))
    status: Status | None = None
    seen_at_ms: int = 0
    skew_ms: int = 0
    heard_at: float = 0.0  # when it told its time, by a clock that nobody sets
    clock_ok: bool = False  # its clock was synchronised then
    durable: int = 0
    twin: bool = False
    line_at_ms: int = 0  # when its newest line of status was written


class Hub:
    """The centre's side of all boxes; its decisions are plain, its file work runs in threads."""

    def __init__(
        self,
        config: GatewayConfig,
        zone: Zone,
        landers: dict[int, ShardLander],  # of the shards that are landed here
        records: CentreRecords,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        step: Failpoint = no_failpoint,
    ) -> None:
        self.config, self.zone, self.landers, self.records = config, zone, landers, records
        self.elsewhere: Callable[[int], str | None] = lambda _: None  # the gateway that has another shard
        self.now_ms, self.step = now_ms, step
        self.counts, self.budget = GatewayCounts(), Budget(config.memory_bytes)
        self.verifiers = trio.CapacityLimiter(max(1, os.cpu_count() or 1))
        self.sessions: dict[str, ConnectedBox] = {}
        self.seen: dict[str, BoxSeen] = {}
        self.disk_used = 0.0
        self.disk_free: int | None = None  # bytes; None: an object store
        self.certificate_ends_s: float | None = None
        self._files = trio.CapacityLimiter(1)

    def lander_of(self, box: str) -> ShardLander:
        """Return the lander of a box's shard. Raises Refused where it is another gateway's."""
        shard = shard_of(box, self.zone.shards)
        lander = self.landers.get(shard)
        if lander is not None:
            return lander
        to = self.elsewhere(shard)
        if to is not None:
            raise self._refusal("moved", f"shard {shard:04x} is landed by the gateway {to}", to=to)
        wait_ms = random.randrange(*TAKING_MS)
        raise self._refusal("busy", f"shard {shard:04x} is on its way from one gateway to another", retry_ms=wait_ms)

    def send_away(self, shard: int) -> None:
        """Let the boxes of a shard go that is another gateway's from now on: they connect again and are told where."""
        for box, session in list(self.sessions.items()):
            if shard_of(box, self.zone.shards) == shard:
                session.outbox.close_after(frames.encode_bye("its shard goes to another gateway; connect again"))

    def retry_ms(self) -> int:
        return random.randrange(1000, 60_000)

    async def greet(self, hello: Hello, certified: str | None, session: ConnectedBox) -> Welcome:
        """Judge HELLO and return the answer. Raises Refused with every code that closes a connection."""
        self._check_versions(hello)
        if certified is not None and certified != hello.box:
            text = f"HELLO says box {hello.box}, the certificate says {certified}"
            raise self._refusal("identity", text)
        if BOX_NAME.fullmatch(hello.box) is None:
            raise self._refusal("identity", f"box name {hello.box!r}: 1 to 64 of A-Z a-z 0-9 . _ -")
        if len(self.sessions) >= self.config.max_boxes and hello.box not in self.sessions:
            raise self._refusal("busy", f"{len(self.sessions)} boxes are connected", retry_ms=self.retry_ms())
        if self.disk_used >= FULL_RATIO:
            raise self._refusal("full", "the landing disk is full", retry_ms=self.retry_ms())
        self.lander_of(hello.box)  # the records of another gateway's boxes are its own
        book = await trio.to_thread.run_sync(self.records.load, hello.box, limiter=self._files)
        if book.retired:
            raise self._refusal("retired", f"box {hello.box} is retired at this centre")
        cover = self.lander_of(hello.box).cover.boxes.get(hello.box, BoxCover())
        fork = find_fork(book.runs.get(hello.epoch, ()), hello.runs, cover.covered(hello.epoch), hello.durable)
        self._watch_twin(hello)
        if fork is not None:
            self.counts.divergences += 1
            raise self._refusal("diverged", f"another history above log offset {fork}", fork=fork)
        if book.runs.get(hello.epoch) != hello.runs:
            await trio.to_thread.run_sync(self.records.save, hello.box, hello.epoch, hello.runs, limiter=self._files)
        last = await trio.to_thread.run_sync(self.records.last_piece, cover.last, limiter=self._files)
        self.lander_of(hello.box)  # it may have gone meanwhile
        self._watch_zone(hello)
        self._enter(hello, session)
        return self._welcome(hello, cover, last)

    async def greet_stick(self, hello: Hello) -> Welcome:
        """Judge what a stick says of its box; a box that is connected stays so. Raises Refused."""
        self._check_versions(hello)
        self.lander_of(hello.box)
        if BOX_NAME.fullmatch(hello.box) is None:
            raise self._refusal("identity", f"box name {hello.box!r}: 1 to 64 of A-Z a-z 0-9 . _ -")
        book = await trio.to_thread.run_sync(self.records.load, hello.box, limiter=self._files)
        if book.retired:
            raise self._refusal("retired", f"box {hello.box} is retired at this centre")
        cover = self.lander_of(hello.box).cover.boxes.get(hello.box, BoxCover())
        known, covered = book.runs.get(hello.epoch, ()), cover.covered(hello.epoch)
        fork = stick_fork(known, hello.runs, covered, hello.durable)
        if fork is not None:
            raise self._refusal("diverged", f"its history differs from the centre's from log offset {fork}", fork=fork)
        if not known:
            await trio.to_thread.run_sync(self.records.save, hello.box, hello.epoch, hello.runs, limiter=self._files)
        self.lander_of(hello.box)
        return self._welcome(hello, cover, None)

    def _refusal(self, code: str, text: str, retry_ms: int = 0, **keys: object) -> Refused:
        self.counts.refused[code] += 1
        return Refused(code, text, retry_ms, **keys)

    def _check_versions(self, hello: Hello) -> None:
        low, high = hello.versions
        if not low <= frames.VERSION <= high:
            older = "box" if high < frames.VERSION else "gateway"
            text = f"the box speaks versions {low}..{high}, this gateway {frames.VERSION}: update the {older}"
            raise self._refusal("version", text)

    def _watch_twin(self, hello: Hello) -> None:
        seen = self.seen.setdefault(hello.box, BoxSeen())
        now = trio.current_time()
        seen.hellos.append((now, hello.epoch))
        recent = [epoch for at, epoch in seen.hellos if now - at <= TWIN_WINDOW_S]
        turns = sum(a != b for a, b in itertools.pairwise(recent))
        if turns >= TWIN_TURNS and not seen.twin:
            self.counts.twins += 1
            log.error("twin box=%s: two epochs alternate; two machines use the same certificate", hello.box)
        seen.twin = turns >= TWIN_TURNS

    def _watch_zone(self, hello: Hello) -> None:
        """A box's receipts tell of a zone that is not mounted, and of one that was set back to an older copy."""
        place, here = shown(self.config.landing), self.zone.landing_id
        shard, seq = hello.receipt or (0, -1)
        if hello.landing is None:
            return
        if hello.landing != here:
            self.counts.zone_doubts["other"] += 1
            known = f"its receipts are of landing zone {hello.landing.hex()[:8]}, {place} is {here.hex()[:8]}"
            log.error(
                "box=%s %s: is the right file system mounted there? The box ships its log again", hello.box, known
            )
        elif shard in self.landers and seq >= (end := self.landers[shard].writer.next_seq):
            self.counts.zone_doubts["older"] += 1
            known = f"it has the receipt of seq {shard}:{seq}, {place} ends at {shard}:{end}"
            text = (
                "box=%s %s: is it an older copy? Spark's tables and checkpoints that read further must be started again"
            )
            log.error(text, hello.box, known)

    def _enter(self, hello: Hello, session: ConnectedBox) -> None:
        before = self.sessions.get(hello.box)
        if before is not None:
            log.info("box=%s connected again; its connection before ends", hello.box)
            before.failed("busy", f"box {hello.box} connected again: do two machines use one name and certificate?")
        self.sessions[hello.box] = session
        self._note_clock(hello.box, hello)

    def _note_clock(self, box: str, said: Hello | Status) -> None:
        seen = self.seen.setdefault(box, BoxSeen())
        seen.seen_at_ms, seen.heard_at = self.now_ms(), trio.current_time()
        seen.skew_ms, seen.durable, seen.clock_ok = said.now_ms - seen.seen_at_ms, said.durable, bool(said.clock_ok)

    def clock_ahead_ms(self) -> int:
        """By how much the clock here is ahead of the synchronised ones of connected boxes, their median; 0: none is."""
        here_ms, now = self.now_ms(), trio.current_time()
        told = [seen for box, seen in self.seen.items() if box in self.sessions and seen.clock_ok]
        there_ms = [seen.seen_at_ms + seen.skew_ms + round((now - seen.heard_at) * 1000) for seen in told]
        return here_ms - round(statistics.median(there_ms)) if there_ms else 0

    def leave(self, box: str, session: ConnectedBox) -> None:
        if self.sessions.get(box) is session:
            del self.sessions[box]

    def _welcome(self, hello: Hello, cover: BoxCover, last: tuple[int, int, int, bytes] | None) -> Welcome:
        epochs = [epoch for epoch, _ in hello.lineage]
        paused = self.disk_used >= PAUSE_RATIO
        return Welcome(
            self.zone.landing_id,
            cover.have(epochs, "log"),
            cover.have(epochs, "pick") if hello.express else (),
            last if last is not None and last[0] in epochs else None,
            0 if paused else self.config.window_bytes,
            self.config.window_pieces,
            codecs_here(),
            self.config.rate_bytes,
            self.now_ms(),
        )

    def note_status(self, hello: Hello, status: Status) -> None:
        """Keep the newest STATUS and append it to the day's file, which Spark reads as box_status; a line less on a
        disk that takes none is no reason to let the box go. A box has a line in STATUS_EVERY_MS, however often it
        connects: it sends one a minute, and the file has no other end than the day's.
        """
        self._note_clock(hello.box, status)
        seen, now_ms = self.seen[hello.box], self.now_ms()
        seen.status = status
        if 0 <= now_ms - seen.line_at_ms < STATUS_EVERY_MS:
            self.counts.status_left_out += 1
            return
        seen.line_at_ms = now_ms
        try:
            self.records.append_status(hello, status, now_ms)
        except OSError as error:
            log.warning("status line not written box=%s error=%s", hello.box, error)

    async def quarantine(self, box: str, container: bytes) -> None:
        """Keep refused bytes for a person to look at; where they cannot be kept they are refused all the same."""
        call = partial(self.records.quarantine, box, container, self.now_ms())
        try:
            await trio.to_thread.run_sync(call, limiter=self._files)
        except OSError as error:
            log.warning("refused piece not kept box=%s error=%s", box, error)

    def note_disk(self, used: float) -> None:
        """The used share of the landing disk: above 85 % boxes pause, above 95 % they are sent away."""
        before, self.disk_used = self.disk_used, used
        for ratio, means in ((PAUSE_RATIO, "boxes wait"), (FULL_RATIO, "no box is let in")):
            if (used >= ratio) != (before >= ratio):
                text = f"{means} until there is room" if used >= ratio else f"below {ratio:.0%} again"
                log.warning("landing disk %d%% full: %s", round(used * 100), text)
        if used >= FULL_RATIO:
            for session in list(self.sessions.values()):
                session.failed("full", "the landing disk is full")
        elif (used >= PAUSE_RATIO) != (before >= PAUSE_RATIO):
            paused = used >= PAUSE_RATIO
            window = 0 if paused else self.config.window_bytes
            frame = frames.Window(window, self.config.rate_bytes, PAUSE_MS if paused else 0).encode()
            for session in list(self.sessions.values()):
                session.outbox.put(frame)
