"""What gives way when the log cannot leave fast enough: `when_full`, decided by plain rules, carried out in order.

Order: count -> append and sync the gap -> unlink. A gap is final: its bytes are not shipped any more.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import trio

from uplink_spark.box.cuts import declare_cuts
from uplink_spark.box.cutting.cutter import LogFile
from uplink_spark.box.cutting.scan import record_fields
from uplink_spark.box.receipts.gaps import Gap
from uplink_spark.box.reconcile import make_gap
from uplink_spark.box.spool import Spool
from uplink_spark.box.state import ShipperState
from uplink_spark.errors import RecordsBad
from uplink_spark.wire.identity import spans
from uplink_spark.wire.intervals import Intervals

log = logging.getLogger("uplink_spark.shipper")
LOOK_S, ALARM = 10, "quota_disk"
PARTITION_SHARE = 0.6
DISK_MARK = 0.85
MOST_REJECTED = 10_000
HOUR_MS = 3_600_000
GIB = 1 << 30


@runtime_checkable
class Droppable(Protocol):
    """A store whose oldest CommitLog file can be deleted."""

    async def drop_first(self) -> None: ...


@dataclass(frozen=True, slots=True)
class QuotaFacts:
    """What the rules look at."""

    unshipped_bytes: int
    oldest_hours: float | None  # None: the clock cannot tell
    disk_used: float  # share


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """0: no limit."""

    lag_bytes: int
    lag_hours: int


def over_quota(facts: QuotaFacts, limits: QuotaLimits) -> str | None:
    """Return the reason why something must give way, None when all is well."""
    if facts.unshipped_bytes <= 0:
        return None
    if limits.lag_bytes and facts.unshipped_bytes > limits.lag_bytes:
        return "quota_bytes"
    if limits.lag_hours and facts.oldest_hours is not None and facts.oldest_hours > limits.lag_hours:
        return "quota_hours"
    return "disk_full" if facts.disk_used > DISK_MARK else None


class QuotaKeeper:
    """Watches the lag of one store and does what `when_full` says."""

    def __init__(self, state: ShipperState) -> None:
        self._state = state
        self.refusal: str | None = None  # what senders are told while `reject_new` is in force
        self.spool = Spool(state.ledger.folder / "spool")
        self._rejected: Counter[tuple[int, str, str]] = Counter()  # minute, topic, reason

    async def run(self) -> None:
        """Look every ten seconds, and when receipts come while senders are refused; a failing disk is asked again."""
        finished = False
        while True:
            try:
                if not finished:
                    await self._finish_unlink()
                    finished = True
                await self.look()
                await self._declare_rejected()
                await declare_cuts(self._state)
            except OSError as error:
                if ALARM not in self._state.alarms:
                    self._state.alarm(
                        ALARM, f"no segment can be deleted: {error}; see `rocketbox doctor`; the box tries again"
                    )
            else:
                self._state.lift([ALARM])
            await trio.sleep(LOOK_S)

    # Rules

    def facts(self) -> QuotaFacts:
        """Look at log and disk. Blocks."""
        state = self._state
        holes = state.waiting()
        unshipped = sum(end - start for start, end in holes)
        hours = None
        if holes and state.clock_ok():
            stored_ms = self._stored_ms(holes[0][0])
            hours = max(0.0, (state.now_ms() - stored_ms) / HOUR_MS) if stored_ms else None
        return QuotaFacts(unshipped, hours, _used(state.store_root))

    def limits(self) -> QuotaLimits:
        """The configured limits; 0 bytes means 60 % of the partition. Blocks."""
        config = self._state.config
        lag_bytes = config.max_lag_bytes
        if not lag_bytes and self._state.store_root is not None:
            disk = os.statvfs(self._state.store_root)
            lag_bytes = int(disk.f_blocks * disk.f_frsize * PARTITION_SHARE)
        return QuotaLimits(lag_bytes, config.max_lag_hours)

    def _stored_ms(self, log_offset: int) -> int:
        data = self._state.readable(log_offset, 1 << 20)
        try:
            return record_fields(data, 0, len(data), log_offset)[1] if len(data) > 91 else 0
        except (RecordsBad, IndexError):
            return 0

    async def look(self) -> None:
        """One round: refuse or lift, or let the oldest files go until the limits hold."""
        state = self._state
        while True:
            facts, limits = await state.workers.in_thread(self.facts), await state.workers.in_thread(self.limits)
            state.quota_bytes = limits.lag_bytes
            reason = over_quota(facts, limits)
            self.refusal = None
            if reason is None:
                return
            if state.config.when_full == "reject_new":
                hours = f", oldest {facts.oldest_hours:.0f} h" if facts.oldest_hours is not None else ""
                self.refusal = f"uplink quota: {facts.unshipped_bytes / GIB:.1f} GiB unshipped{hours}"
                return
            if not await self._let_go(reason):
                return

    # Letting go

    async def _let_go(self, reason: str) -> bool:
        """Drop the oldest file, declaring first what of it was not receipted; False when there is none to drop."""
        state = self._state
        places = list(state.source.segments())
        if len(places) < 2 or not isinstance(state.source, Droppable):
            return False
        oldest = places[0]
        end = oldest.base + oldest.size
        if state.ledger.unsaved_bytes:
            await state.workers.in_thread(state.ledger.save)
        if not state.ledger.may_release(oldest.base, end):
            await self._declare(oldest, end, reason)
        await self._drop(state.source)
        return True

    async def _declare(self, oldest: LogFile, end: int, reason: str) -> None:
        state = self._state
        if state.config.when_full == "express_only" or state.ledger.switches:
            await state.workers.in_thread(self.spool.keep, state, oldest.base, end)
        for gap in await state.workers.in_thread(self._gaps_of, oldest.base, end, reason):
            await state.workers.in_thread(state.declare, gap)
            state.step("B6")
        state.wakes.changed.set()

    def _gaps_of(self, base: int, end: int, reason: str) -> list[Gap]:
        state, gaps = self._state, list[Gap]()
        for _, low, high in spans(state.source.lineage.epochs):
            for start, stop in state.ledger.unshipped(max(base, low), min(end, high)) if max(base, low) < high else []:
                gaps.append(make_gap(state, start, stop, ("missing", reason), len(gaps)))
        return gaps

    async def _drop(self, source: Droppable) -> None:
        await source.drop_first()
        self._state.step("B7")

    async def _finish_unlink(self) -> None:
        """A file whose loss was declared, but which a crash kept, goes now."""
        state = self._state
        declared = Intervals((gap.start, gap.end) for gap in state.ledger.gaps.log.gaps)
        while isinstance(state.source, Droppable) and len(places := state.source.segments()) > 1:
            base, end = places[0].base, places[0].base + places[0].size
            if not declared.overlapping(base, end) or not state.ledger.may_release(base, end):
                return
            await self._drop(state.source)

    async def discard(self, before: int, reason: str) -> list[Gap]:
        """`uplink discard`: declare everything unshipped below a log offset lost; the files go by retention."""
        state = self._state
        gaps = await state.workers.in_thread(
            self._gaps_of, state.source.first, min(before, state.source.committed), "operator"
        )
        for gap in gaps:
            gap.facts["text"] = reason[:200]
            await state.workers.in_thread(state.declare, gap)
        state.wakes.changed.set()
        return gaps

    # Refused sends

    def note_rejected(self, topic: str, reason: str) -> None:
        """A producer got an error: counted per minute and topic, declared within a minute."""
        key = self._state.now_ms() // 60_000, topic, reason
        if len(self._rejected) >= MOST_REJECTED and key not in self._rejected:
            key = next(reversed(self._rejected))  # where the disk takes none for days: counted, if not as what it was
        self._rejected[key] += 1

    async def _declare_rejected(self) -> None:
        state, minute = self._state, self._state.now_ms() // 60_000
        due = [key for key in self._rejected if key[0] != minute]
        for key in due:
            count = self._rejected[key]
            at = state.source.committed
            gap = make_gap(state, at, at, ("rejected", key[2]))
            gap.facts.update(
                records=count, since=key[0] * 60_000, until=key[0] * 60_000 + 59_999, topic=key[1], queues=[], bytes=0
            )
            await state.workers.in_thread(state.declare, gap)
            self._rejected[key] -= count  # not before: without room for it they are told in a later round
            self._rejected += Counter()  # without those that are 0
            state.wakes.changed.set()


def _used(root: Path | None) -> float:
    if root is None:
        return 0.0
    disk = os.statvfs(root)
    used = disk.f_blocks - disk.f_bfree
    return used / max(1, used + disk.f_bavail)
