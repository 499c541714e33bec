"""What the parts of the shipper share: the log, the ledger, the link and its meter, and the figures others ask for."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

import trio

from storage_driver.files.unreadable import only_unreadable
from storage_driver.log.lineage import AloneRange, CutTold, Switches
from storage_driver.recovery.verdict import RecoveryVerdict
from uplink_spark.box.cutting.cutter import LogFile
from uplink_spark.box.cutting.scan import scan_records
from uplink_spark.box.figures import ShipperCounts, UplinkStatus, quota_left_s
from uplink_spark.box.link.link_history import LinkHistory
from uplink_spark.box.link.metering import Metering
from uplink_spark.box.progress import CutterPause, Progress
from uplink_spark.box.receipts.gaps import Gap
from uplink_spark.box.receipts.ledger import Ledger
from uplink_spark.box.wakes import Wakes
from uplink_spark.box.workers import Workers
from uplink_spark.config import UplinkConfig
from uplink_spark.wire.batch import MAX_RAW_BYTES
from uplink_spark.wire.expiry import not_after
from uplink_spark.wire.failpoints import Failpoint, no_failpoint
from uplink_spark.wire.frames import MOST_CONDITIONS, MOST_TEXT, Status
from uplink_spark.wire.identity import run_of, spans
from uplink_spark.wire.intervals import Range

log = logging.getLogger("uplink_spark.shipper")


class LineageBook(Protocol):
    """Epochs, runs and express switches of the log (storage_driver.log.lineage)."""

    epochs: list[tuple[int, int]]
    runs: list[tuple[int, int]]
    express: list[tuple[int, tuple[str, ...]]]
    cuts: list[CutTold]
    alone_told: list[AloneRange]

    def fork(self, log_offset: int) -> None: ...
    def land(self, landing: str) -> None: ...
    def add_older_express(self, switches: Switches, /) -> None: ...
    def switch_express(self, log_offset: int, topics: tuple[str, ...], /, *, first: int = 0) -> None: ...


class LogSource(Protocol):
    """What the shipper needs of a store (storage_driver.store.MessageStore)."""

    @property
    def lineage(self) -> LineageBook: ...
    @property
    def committed(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def failure(self) -> str | None: ...
    @property
    def verdict(self) -> RecoveryVerdict: ...
    def damaged(self) -> Sequence[tuple[int, int]]: ...
    def read_log(self, start: int, max_bytes: int) -> bytes: ...
    def is_unreadable(self, start: int, end: int) -> bool: ...
    def segments(self) -> Sequence[LogFile]: ...
    def when_committed(self, log_offset: int, wake: Callable[[str | None], None]) -> None: ...


class ShipperState:
    """One object for everything that outlives a connection."""

    def __init__(
        self,
        source: LogSource,
        config: UplinkConfig,
        ledger: Ledger,
        *,
        now_ms: Callable[[], int],
        clock_ok: Callable[[], bool],
        store_root: Path | None = None,
        step: Failpoint = no_failpoint,
    ) -> None:
        self.store_root = store_root  # where consumequeue/ is
        self.source, self.config, self.ledger = source, config, ledger
        self.now_ms, self.clock_ok, self.step = now_ms, clock_ok, step
        self.counts, self.link = ShipperCounts(), LinkHistory()
        self.metering = Metering(config, ledger, self.counts, now_ms=now_ms, clock_ok=clock_ok)
        self.progress, self.pace = Progress(), CutterPause()
        self.wakes, self.workers = Wakes(), Workers()
        self.alarms: dict[str, str] = {}
        self.quota_bytes = 0  # 0: not known yet, or none
        self.health: Callable[[], tuple[str, list[str]]] = lambda: ("", [])  # state and sentences of the whole box

    # Waking

    async def watch_log(self) -> None:
        """Notify when `durable` moves, until cancelled or until the log has failed."""
        while True:
            moved, failure = trio.Event(), list[str]()

            def wake(reason: str | None, moved: trio.Event = moved, failure: list[str] = failure) -> None:
                failure += [] if reason is None else [reason]
                moved.set()

            before = self.source.committed
            self.source.when_committed(before + 1, wake)
            await moved.wait()
            if (
                failure and self.source.failure is not None
            ):  # else there was no room: it took back what waited, continues
                log.error("the log has failed: %s; what is durable is still shipped", failure[0])
                await trio.sleep_forever()
            now = trio.current_time()
            self.progress.inflow(self.source.committed - before, now)
            self.pace.moved(now)
            self.wakes.changed.set()

    async def wait_enabled(self) -> None:
        while self.ledger.paused:
            await self.wakes.wait_connect()

    def set_paused(self, paused: bool) -> None:
        """`uplink pause` and `resume`; the connection ends at the next look."""
        self.ledger.paused = paused
        self.wakes.both()

    def ship_now(self) -> None:
        """Cut what waits at once and connect without waiting for the back-off."""
        self.wakes.ship_now(self.source.committed)

    def connected(self) -> None:
        self.counts.connects += 1
        self.link.connected_since = trio.current_time()

    # Pace

    def one_by_one(self, now: float) -> bool:
        """Whether no piece is cut beside another: on a link that is not fast it keeps express waiting, else senders."""
        metering = self.metering
        return metering.on_metered or bool(metering.cap()) or not self.link.rate.fast or self.pace.busy(now)

    def pressed(self) -> bool:
        """Whether more than half of what may wait here does."""
        if not self.quota_bytes:
            return False
        return sum(end - start for start, end in self.waiting()) > self.quota_bytes // 2

    def waiting(self) -> list[Range]:
        """What waits to be shipped, ascending."""
        holes = self.ledger.unshipped(self.source.first, self.source.committed)
        return [part for hole in holes for part in self.ledger.gaps.covered.missing(*hole)]

    # Identity

    async def fork(self, log_offset: int) -> None:
        """Begin a new epoch at log_offset, durable before anybody hears of it."""
        log.error("divergence: a new epoch begins at log offset %d", log_offset)
        await self.workers.in_thread(self.source.lineage.fork, log_offset)
        self.step("B8")
        self.ledger.forked(log_offset)
        await self.workers.in_thread(self.ledger.save)

    def settle_express(self) -> None:
        """Have the express topics travel apart from here on, where others did before. Blocks. Raises OSError."""
        lineage = self.source.lineage
        lineage.add_older_express(self.ledger.switches)  # a box of an earlier release kept them with its receipts
        lineage.switch_express(self.source.committed, self.config.express, first=self.source.first)
        self.ledger.switches = lineage.express

    def declare(self, gap: Gap) -> None:
        """Declare a loss, durable before anybody hears of it. Blocks."""
        self.ledger.gaps.declare(gap)
        kind = str(gap.facts["class"])
        self.counts.gaps[kind] += 1
        self.counts.gap_bytes[kind] += gap.end - gap.start
        log.error("gap declared range=%d..%d class=%s reason=%s", gap.start, gap.end, kind, gap.facts["reason"])

    def readable(self, log_offset: int, max_bytes: int) -> bytes:
        """Return bytes of the log, none where the disk does not give them back. Blocks. Raises OSError."""
        try:
            return self.source.read_log(log_offset, max_bytes)
        except OSError as exc:
            only_unreadable(exc)
            return b""

    def differs(self, last: tuple[int, int, int, bytes] | None) -> int | None:
        """Return the start of the newest landed piece when those bytes are here and hash differently. Blocks."""
        if last is None:
            return None
        epoch, start, end, sha = last
        owned = [(low, high) for owner, low, high in spans(self.source.lineage.epochs) if owner == epoch]
        if not owned or start < max(owned[0][0], self.source.first) or end > min(owned[0][1], self.source.committed):
            return None
        digest, at = hashlib.sha256(), start
        while at < end:
            part = self.readable(at, end - at)
            if not part:
                return None
            digest.update(part)
            at += len(part)
        return None if digest.digest() == sha or self._ends_file(start, end, sha) else start

    def _ends_file(self, start: int, end: int, sha: bytes) -> bool:
        """Whether these are the records of a piece that ends its file: the blank behind them is in no digest."""
        if end != self.file_end(start) or end - start > 2 * MAX_RAW_BYTES:
            return False
        data = self.readable(start, end - start)
        scan = scan_records(data, start, len(data))
        return start + scan.length + scan.blank == end and hashlib.sha256(data[: scan.length]).digest() == sha

    def alarm(self, name: str, text: str) -> None:
        self.alarms[name] = text
        log.error("uplink alarm=%s reason=%s", name, text)

    def lift(self, names: Iterable[str]) -> None:
        """What these alarms told is over."""
        for name in names:
            if self.alarms.pop(name, None) is not None:
                log.info("uplink alarm=%s is over", name)

    # Figures

    def file_end(self, log_offset: int) -> int:
        """The end of the CommitLog file that holds log_offset."""
        for place in reversed(self.source.segments()):
            if place.base <= log_offset:
                return place.base + place.size
        return 1 << 63

    def boundary(self, log_offset: int) -> int:
        """The next offset above log_offset that a piece must not cross."""
        run_end = run_of(self.source.lineage.runs, log_offset)[2]
        borders = [self.file_end(log_offset), run_end]
        borders += [origin for _, origin in self.source.lineage.epochs if origin > log_offset]
        borders += [at for at, _ in self.ledger.switches if at > log_offset]
        return min(borders)

    def status(self) -> UplinkStatus:
        now, source, ledger = trio.current_time(), self.source, self.ledger
        holes = self.waiting()
        unshipped = sum(end - start for start, end in holes)
        backlog = self.progress.backlog(unshipped, now)
        inflow, rate = self.progress.inflow_rate(now), self.progress.shipping_rate(now)
        return UplinkStatus(
            connected=self.link.connected_since is not None,
            connected_s=self.link.connected_s(now),
            address=self.config.gateway,
            box=self.config.box,
            epoch=source.lineage.epochs[-1][0],
            durable=source.committed,
            receipted_bytes=sum(end - start for start, end in ledger.receipted.log),
            unshipped_bytes=unshipped,
            backlog_bytes=backlog,
            oldest_unshipped_s=self.progress.oldest_s(holes[0][0] if holes else None, now),
            raw_rate=rate,
            wire_rate=self.link.rate.wire or 0.0,
            inflow=inflow,
            cap_bytes=self.metering.cap(),
            eta_s=0.0 if not backlog else backlog / (rate - inflow) if rate > inflow else -1.0,
            quota_left_s=quota_left_s(self.quota_bytes, unshipped, inflow - rate),
            last_receipt_s=self.link.last_receipt_s(now),
            gaps_undelivered=len(ledger.gaps.undelivered()),
            gaps=len(ledger.gaps.log.gaps),
            paused=ledger.paused,
            gateway_full=self.link.is_full(now),
            month_bytes=self.metering.month_use().wire_bytes,
            alarms=dict(self.alarms),
            last_error=self.link.last_error,
            counts=self.counts,
            certificate_left_s=self._certificate_left_s(),
        )

    def status_frame(self) -> Status:
        """What the box says of itself every minute."""
        facts, free, (state, told) = self.status(), 0, self.health()
        if self.store_root is not None:
            disk = os.statvfs(self.store_root)
            free = disk.f_bavail * disk.f_frsize
        return Status(
            durable=facts.durable,
            unshipped=facts.unshipped_bytes,
            oldest_ms=int(facts.oldest_unshipped_s * 1000),
            disk_free=free,
            inflow=int(facts.inflow),
            gaps=facts.gaps_undelivered,
            verdict=self.source.verdict.verdict,
            software=self.config.software,
            now_ms=max(0, self.now_ms()),
            clock_ok=int(self.clock_ok()),
            state=state,
            conditions=tuple(text[:MOST_TEXT] for text in told[:MOST_CONDITIONS]),
        )

    def _certificate_left_s(self) -> float | None:
        """Seconds until the box's own certificate ends by the box's clock, None without one."""
        if self.config.certs is None:
            return None
        try:
            return round(not_after((self.config.certs / "box.crt").read_text()) - self.now_ms() / 1000)
        except (OSError, ValueError):
            return None
