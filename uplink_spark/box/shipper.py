"""The shipper: connects, says HELLO, reconciles, sends what is missing, keeps receipts; never gives up.

OSError, TLS errors, ProtocolError and refusals end one connection; any other exception is a bug and ends the process.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import trio

from storage_driver.log.clock import wall_ms
from uplink_spark.box.conversation import UplinkSession
from uplink_spark.box.cuts import declare_cuts
from uplink_spark.box.figures import UplinkStatus, count
from uplink_spark.box.link.connect import Backoff, ConnectFailed, GatewayRefused, greet, open_stream
from uplink_spark.box.quota import QuotaKeeper
from uplink_spark.box.receipts.ledger import Ledger
from uplink_spark.box.reconcile import check_have, clip_have, reconcile_below, repairs_below
from uplink_spark.box.state import LogSource, ShipperState
from uplink_spark.config import UplinkConfig
from uplink_spark.errors import ConfigError, ProtocolError, first_error
from uplink_spark.wire.batch import codec_for
from uplink_spark.wire.failpoints import failpoint_from
from uplink_spark.wire.frames import ErrorFrame, Hello, Welcome
from uplink_spark.wire.identity import spans
from uplink_spark.wire.intervals import Intervals
from uplink_spark.wire.link import LinkClosed, Stream

log = logging.getLogger("uplink_spark.shipper")
HOURLY_S, DAILY_S, IDENTITY_S, ALARM_S = 3600.0, 86400.0, 300.0, 300.0
PROTOCOL_ALARM = 10  # in a row
MOVES_AT_ONCE, CALM_S = 3, 60.0  # from gateway to gateway; those that long ago count no more
MOVED_FAILURES = 3  # of a gateway that can be reached
FAREWELL_S = 5
LEDGER, LEDGER_S = "ledger", 10
DAMAGED = "ledger_damaged"  # until the next start
BEGUN_ANEW = (
    ": the gateway tells what it has; a pause, the bytes of this month and losses that were told have to be told again"
)
OVER = ("identity", "retired", "version", "protocol")  # alarms that a receipt ends
ENDS_CONNECTION = (OSError, ConnectFailed, ProtocolError, GatewayRefused, LinkClosed, trio.BrokenResourceError)


class Shipper:
    """The uplink of one store. `run` until cancelled; the rest is read or called by commands and metrics."""

    def __init__(
        self,
        source: LogSource,
        config: UplinkConfig,
        ledger: Ledger,
        *,
        now_ms: Callable[[], int],
        clock_ok: Callable[[], bool],
        store_root: Path | None = None,
    ) -> None:
        self._codec = codec_for(config.codec)
        self.state = ShipperState(
            source,
            config,
            ledger,
            now_ms=now_ms,
            clock_ok=clock_ok,
            store_root=store_root,
            step=failpoint_from(os.environ.get("UPLINK_STOP_AT")),
        )
        self.quota = QuotaKeeper(self.state)
        self._backoff = Backoff()
        self._address, self._moved_failures = config.gateway, 0
        self._protocol_errors = self._moves = 0
        self._moved_at = -math.inf

    async def run(self) -> None:
        """Ship until cancelled; the newest receipts are synced at the end."""
        state = self.state
        await self._open_ledger()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(state.watch_log)
                nursery.start_soon(self.quota.run)
                nursery.start_soon(self._ship)
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
                try:
                    await state.workers.in_thread(state.ledger.save)
                except OSError as error:  # the gateway tells at the next welcome what it has
                    log.error("uplink ledger not saved reason=%s", error)

    async def _open_ledger(self) -> None:
        """Return once receipts and losses are known; till then nothing is shipped, and nothing of the log goes."""
        while True:
            try:
                await self.state.workers.in_thread(self.state.ledger.open)
                self.state.ledger.gaps.covered = Intervals(
                    await self.state.workers.in_thread(self.state.source.damaged)
                )
                await self.state.workers.in_thread(self.state.settle_express)
            except OSError as error:
                if LEDGER not in self.state.alarms:
                    self.state.alarm(LEDGER, f"nothing is shipped: {error}; fix it; the box tries again")
                await trio.sleep(LEDGER_S)
            else:
                self.state.lift([LEDGER])
                break
        for damage, effect in ((self.state.ledger.damage, BEGUN_ANEW), (self.state.ledger.gaps.log.damage, "")):
            if damage is not None:
                self.state.alarm(DAMAGED, f"its state in rocketbox/ was damaged: {damage}{effect}")

    async def _ship(self) -> None:
        while True:
            await self.state.wait_enabled()
            wait_s = await self._connect_once()
            self.state.link.connected_since, self.state.pace.working = None, False
            await self.state.wakes.wait_connect(wait_s)

    async def _connect_once(self) -> float:
        """One connection from its begin to its end; returns how long to sleep before the next."""
        counts = self.state.counts
        try:
            await self._converse()
        except BaseExceptionGroup as group:
            _, bugs = group.split(ENDS_CONNECTION)
            if bugs is not None:  # a cancellation, or a bug of ours: not the connection's business
                raise bugs from None
            return await self._after(first_error(group))
        except ENDS_CONNECTION as error:
            return await self._after(error)
        counts.errors["closed"] += 1
        return self._backoff.next_s(refused=False)

    async def _after(self, error: BaseException) -> float:
        state = self.state
        cause = getattr(error, "cause", None) or getattr(error, "code", None) or "network"
        if isinstance(error, GatewayRefused):
            cause = error.fault.code
        count(state.counts.errors, str(cause))
        state.link.last_error = str(error)
        self._note_failure(error)
        if isinstance(error, GatewayRefused):
            return await self._after_fault(error.fault)
        if isinstance(error, ProtocolError):
            state.alarm("protocol", str(error))  # the gateway is not to be trusted
            return self._after_protocol(str(error))
        wait_s = self._backoff.next_s(refused=cause == "refused")
        log.info("uplink down cause=%s reason=%s next=%.1fs", cause, error, wait_s)
        return wait_s

    def _note_failure(self, error: BaseException) -> None:
        """Go back to the address of all gateways where the one told cannot be reached, or fails again and again."""
        if self._address == self.state.config.gateway:
            return
        self._moved_failures += 1
        unreachable = isinstance(error, ConnectFailed)
        if unreachable or self._moved_failures >= MOVED_FAILURES:
            self._address, self._moved_failures = self.state.config.gateway, 0
        if unreachable:
            self._moves = 0  # this attempt is paid for by a wait: the next gateway told is tried at once

    def _after_protocol(self, text: str) -> float:
        self._protocol_errors += 1
        log.error("uplink protocol error reason=%s in_a_row=%d", text, self._protocol_errors)
        if self._protocol_errors >= PROTOCOL_ALARM:
            self.state.alarm("protocol", text)
            return ALARM_S
        return self._backoff.next_s()

    async def _after_fault(self, fault: ErrorFrame) -> float:
        state = self.state
        log.warning("uplink refused code=%s reason=%s", fault.code, fault.text)
        if fault.code == "diverged":
            if fault.fork is None or fault.fork > state.source.committed:
                return self._after_protocol(f"diverged at {fault.fork}: no log offset of this log")
            await state.fork(fault.fork)
            return self._turned_s()
        if fault.code == "moved" and fault.to:
            self._address = fault.to
            return self._turned_s()
        if fault.code == "protocol":
            return self._after_protocol(fault.text)
        if fault.code in ("identity", "retired"):
            state.alarm(fault.code, fault.text)
            return IDENTITY_S if fault.code == "identity" else DAILY_S
        if fault.code == "version":
            state.alarm("version", fault.text)
            return HOURLY_S
        return max(fault.retry_ms / 1000, self._backoff.next_s())

    def _turned_s(self) -> float:
        """Return how long to wait after a gateway sent the box elsewhere, or to another epoch: not the first times."""
        now = trio.current_time()
        self._moves = self._moves + 1 if now - self._moved_at < CALM_S else 1
        self._moved_at = now
        return 0.0 if self._moves <= MOVES_AT_ONCE else self._backoff.next_s()  # gateways that do not agree yet

    async def _converse(self) -> None:
        state = self.state
        clock_ok = state.clock_ok()
        async with open_stream(state.config, self._address, clock_ok=clock_ok) as (stream, tcp):
            state.metering.leaves_by(tcp.socket.getsockname()[0])  # HELLO counts too
            try:
                hello = self._hello_now(clock_ok)
                connection = await greet(stream, hello, state.metering, certs=state.config.certs)
                state.connected()
                await self._reconcile(connection.welcome)
            except ProtocolError as error:
                await _say_why(stream, error)
                raise
            log.info("uplink connected gateway=%s epoch=%x", self._address, state.source.lineage.epochs[-1][0])
            conversation = UplinkSession(
                state, connection, self._codec, on_progress=self._progress, spool=self.quota.spool
            )
            await conversation.run()

    def _progress(self) -> None:
        self.state.lift(OVER)
        self._backoff.reset()
        self._protocol_errors = self._moved_failures = 0

    def hello(self) -> Hello:
        """Return the HELLO this box would send now."""
        return self._hello_now(self.state.clock_ok())

    def _hello_now(self, clock_ok: bool) -> Hello:
        source, config = self.state.source, self.state.config
        express = sorted({name for _, names in self.state.ledger.switches for name in names})
        return Hello(
            box=config.box,
            lineage=tuple(source.lineage.epochs[-16:]),
            runs=tuple(source.lineage.runs[-1024:]),
            first=source.first,
            durable=source.committed,
            now_ms=self.state.now_ms(),
            clock_ok=int(clock_ok),
            software=config.software,
            express=tuple(express),
            landing=self.state.ledger.landing,
            receipt=self.state.ledger.newest,
        )

    async def _reconcile(self, welcome: Welcome) -> None:
        state = self.state
        source, ledger = state.source, state.ledger
        owned = spans(source.lineage.epochs[-16:])
        fork = check_have(owned, welcome, source.committed)
        if fork is None and welcome.last is not None:
            fork = await state.workers.in_thread(lambda: state.differs(welcome.last))
        if fork is not None:
            log.error("the centre holds bytes this log does not: new epoch at %d", fork)
            await state.fork(fork)
            raise LinkClosed(f"diverged at {fork}")
        before, same = ledger.landing, ledger.landing == welcome.landing
        had, known_elsewhere = ledger.receipted.log.copy(), ledger.elsewhere.copy()
        lost = ledger.welcome(welcome.landing, clip_have(owned, welcome.have), clip_have(owned, welcome.pick))
        if lost and same:
            state.alarm("receipt_lost", f"the landing zone lacks receipted ranges {lost[:3]}")
        if not same:
            if before is not None:
                text = "landing zone %s instead of %s: the box ships its log again and declares what it no longer has"
                log.warning(text, welcome.landing.hex()[:8], before.hex()[:8])
            await state.workers.in_thread(lambda: source.lineage.land(welcome.landing.hex()))
        below = reconcile_below(state, had if same else None, ledger.elsewhere if not same else known_elsewhere)
        for gap in below:
            await state.workers.in_thread(state.declare, gap)
        for gap in await state.workers.in_thread(repairs_below, state):
            await state.workers.in_thread(state.declare, gap)
        await declare_cuts(state)
        await state.workers.in_thread(ledger.save)


async def _say_why(stream: Stream, error: ProtocolError) -> None:
    """Tell the gateway what was wrong with it; nothing else is being sent."""
    with trio.move_on_after(FAREWELL_S):
        try:
            await stream.send_all(ErrorFrame("protocol", str(error)).encode())
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # it has gone: its log will do without


@dataclass(frozen=True, slots=True)
class Uplink:
    """What the composition gets: the loop to start and the handles of commands, metrics and retention."""

    shipper: Shipper

    async def run(self) -> None:
        await self.shipper.run()

    def may_release(self, base: int, end: int) -> bool:
        """Retention's veto: may the CommitLog bytes [base, end) go?"""
        return self.shipper.state.ledger.may_release(base, end)

    def refusal(self) -> str | None:
        """Why senders are to get SERVICE_NOT_AVAILABLE (`when_full = "reject_new"`), None: they are not refused."""
        return self.shipper.quota.refusal

    def note_rejected(self, topic: str, reason: str) -> None:
        """A producer got an error for lack of space (disk_full, reject_new) or size (too_large): a gap of no bytes."""
        self.shipper.quota.note_rejected(topic, reason)

    def statistics(self) -> UplinkStatus:
        return self.shipper.state.status()


def make_uplink(
    source: LogSource,
    config: UplinkConfig,
    store_root: Path,
    *,
    now_ms: Callable[[], int] = wall_ms,
    clock_ok: Callable[[], bool],
) -> Uplink:
    """Return the uplink of a store, whose state is in <store_root>/rocketbox. Raises ConfigError.

    clock_ok: whether the time of day is to be believed; HELLO, STATUS and each piece say so.
    """
    try:
        shipper = Shipper(
            source,
            config,
            Ledger(store_root / "rocketbox"),
            now_ms=now_ms,
            clock_ok=clock_ok,
            store_root=store_root,
        )
    except ValueError as error:
        raise ConfigError(f"uplink: {error}") from error
    return Uplink(shipper)
