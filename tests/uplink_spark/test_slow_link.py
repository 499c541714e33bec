"""A slow link: a simulated week of 64 kbit/s, 600 ms, 2 % loss and a cut every two minutes (the real plan, bucket and
rate under an own clock), and what the wire really carries: budget in frame bytes, TLS on top."""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import trio

from storage_driver.log.clock import wall_ms
from uplink_spark.box.caps import KBIT, PIECE_OVERHEAD, SMALLEST_PIECE, Allowed, Bucket
from uplink_spark.box.plan import (
    MIN_TARGET,
    CutFacts,
    Flight,
    LinkRate,
    SendPiece,
    SendPlan,
    make_plan,
    target_bytes,
)
from uplink_spark.centre.certs import make_box, make_ca, make_gateway
from uplink_spark.centre.gateway import run_gateway
from uplink_spark.config import GatewayConfig, Metered
from uplink_spark.testing_site import box, fill, gateway, message, shipped, until
from uplink_spark.wire.intervals import Intervals

RATE = 64 * KBIT  # bytes a second: the box's cap
LINK = RATE * 0.97  # of it on a link of 64 kbit/s, packets lost and sent again taken off
LOSS, ALARM_BYTES = 0.02, 700
DELAY_S, LINGER_S, CONNECTED_S, COMPRESSION = 0.6, 1.0, 120.0, 3.3
FRAME_BYTES = 210  # frame and piece header
DAY_S = 86_400.0


@dataclass
class Week:
    """The box's log, what the centre holds, and what went over the wire."""

    inflow: float  # raw bytes a second
    backlog: int
    alarm_every_s: float = 0  # an express message of ALARM_BYTES; 0: no express lane
    dice: random.Random = field(default_factory=lambda: random.Random(7))
    rate: LinkRate = field(default_factory=LinkRate)
    held: Intervals = field(default_factory=Intervals)
    bucket: Bucket = field(default_factory=lambda: Bucket(RATE))
    wire: int = 0
    repeated: float = 0.0
    stalls: int = 0
    picked: Intervals = field(default_factory=Intervals)  # what the express lane has scanned and landed
    alarm_s: float = 0.0  # the longest way of an alarm to the centre, but for cuts

    def durable(self, now: float) -> int:
        return self.backlog + int(now * self.inflow)

    def connection(self, began: float) -> None:
        """Two minutes of sending; what has no time to arrive whole is lost and sent again."""
        ends = began + CONNECTED_S
        durable = self.durable(began)
        plan = self.plan = make_plan(
            self.held.missing(0, durable), durable, order="live_first", backlog_share=0.3, oldest_age_s=None
        )
        flight, receipts, now = Flight(32 << 20, 64), list[tuple[float, int, int]](), began + 4 * DELAY_S
        express = SendPlan(self.picked.missing(0, durable), durable, backlog_share=1, oldest_first=True)
        step = 1.0 if self.alarm_every_s else 4.0
        progress = self.held.bytes_in(0, 1 << 62)
        while now < ends:
            receipts.sort()
            while receipts and receipts[0][0] <= now:
                at, raw, wire = receipts.pop(0)
                flight.remove(raw)
                self.rate.receipted(raw, wire, at)
            lane = express if self.alarm_every_s and flight.room(0, self.rate.wire) else None
            sent = self._send_one(lane, flight, receipts, now, ends) if lane else now
            if sent == now and flight.room(MIN_TARGET, self.rate.wire):
                sent = self._send_one(plan, flight, receipts, now, ends)
            now = sent if sent > now else min(now + step, receipts[0][0] if receipts else now + step)
        self.stalls += self.held.bytes_in(0, 1 << 62) == progress

    def _send_one(
        self, plan: SendPlan, flight: Flight, receipts: list[tuple[float, int, int]], now: float, ends: float
    ) -> float:
        express = plan is not self.plan
        durable, target = self.durable(now), 4 << 20 if express else target_bytes(self.rate.raw, 4 << 20)
        plan.note_durable(durable, now)
        cut = plan.next_cut(CutFacts(now, durable, target, 1.0 if express else 10.0, Allowed(), lambda at: 1 << 62))
        if not isinstance(cut, SendPiece):
            return now
        end = min(cut.start + target, cut.end)
        plan.sent(cut.lane, cut.start, end, now, durable)
        alarms = self.alarms_in(cut.start, end) if express else []
        raw = ALARM_BYTES * len(alarms) if express else end - cut.start
        wire, sent_at = int(raw / COMPRESSION) + FRAME_BYTES, now
        for at in range(0, wire, 65536):
            now = max(now, now + self.bucket.take(min(65536, wire - at), now))
        now = max(now, sent_at + wire / LINK)
        self.wire += wire
        arrives = now + DELAY_S + self.lost_s(wire)
        if arrives > ends:
            self.repeated += wire
            return ends
        (self.picked if express else self.held).add(cut.start, end)
        if alarms and cut.lane == "live":
            self.alarm_s = max(self.alarm_s, arrives - min(alarms))
        self.rate.sent(sent_at, idle=not flight.count)
        flight.add(raw)
        receipts.append((arrives + DELAY_S + LINGER_S, raw, wire))
        return now

    def alarms_in(self, start: int, end: int) -> list[float]:
        """When the alarms of a range of the log were sent."""
        first_s, last_s = (max(0.0, (at - self.backlog) / self.inflow) for at in (start, end))
        number, found = math.ceil(first_s / self.alarm_every_s), list[float]()
        while number * self.alarm_every_s < last_s:
            found.append(number * self.alarm_every_s)
            number += 1
        return found

    def lost_s(self, wire: int) -> float:
        """How much later a piece is whole: a packet lost with 2 % costs a round trip, and lost again two more."""
        packets = 1 + wire // 1400
        lost = sum(self.dice.random() < LOSS for _ in range(min(packets, 50)))
        return (lost > 0) * 2 * DELAY_S + (lost > 1 and self.dice.random() < LOSS) * 4 * DELAY_S


@pytest.mark.slow
@pytest.mark.parametrize(
    ("inflow", "backlog", "alarm_every_s", "days"),
    [(5_000.0, 0, 0, 7), (60_000.0, 1 << 30, 0, 1), (5_000.0, 1 << 30, 60, 0.25)],
)
def test_a_week_on_a_bad_link_never_stands_still_repeats_little_and_keeps_its_cap(
    inflow: float, backlog: int, alarm_every_s: float, days: float
) -> None:
    live_through(Week(inflow, backlog, alarm_every_s), days)


@pytest.mark.soak
@pytest.mark.parametrize(("inflow", "backlog", "alarm_every_s"), [(5_000.0, 3 << 30, 0), (5_000.0, 1 << 30, 60)])
def test_a_whole_week_with_backlog_and_alarms(inflow: float, backlog: int, alarm_every_s: float) -> None:
    live_through(Week(inflow, backlog, alarm_every_s), 7)


def live_through(week: Week, days: float) -> None:
    now, dice, inflow, backlog, alarm_every_s = 0.0, random.Random(7), week.inflow, week.backlog, week.alarm_every_s
    while now < days * DAY_S:
        week.connection(now)
        now += CONNECTED_S + dice.uniform(0.1, 2.0)
    if alarm_every_s:
        print(f"slowest alarm {week.alarm_s:.1f} s of {now / alarm_every_s:.0f}")
        assert 0 < week.alarm_s < 60
    print(f"repeats {week.repeated / week.wire:.3f} of {week.wire / 1e6:.0f} MB, stalls {week.stalls}")
    assert week.stalls == 0
    assert week.repeated <= 0.10 * week.wire
    assert week.wire <= RATE * now * 1.05 + week.bucket.burst
    sendable = RATE * COMPRESSION
    if inflow < sendable / 2 and not backlog:
        assert week.durable(now) - week.held.bytes_in(0, 1 << 62) < 60 * inflow * 10  # the log keeps up
    elif inflow < sendable / 2 and days == 7:
        assert week.held.end > week.backlog  # live data went on while the hole behind it was filled
        assert week.held.bytes_in(0, week.backlog) == backlog


class Tap:
    """Passes a connection on and counts the bytes of the box."""

    def __init__(self, port: int) -> None:
        self.port, self.sent, self.opened = port, 0, 0

    async def pass_on(self, box_side: trio.SocketStream) -> None:
        self.opened += 1
        try:
            async with await trio.open_tcp_stream("127.0.0.1", self.port) as far, trio.open_nursery() as nursery:
                nursery.start_soon(self._copy, far, box_side, False)
                await self._copy(box_side, far, True)
                nursery.cancel_scope.cancel()
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async def _copy(self, source: trio.SocketStream, target: trio.SocketStream, counted: bool) -> None:
        async for part in source:
            self.sent += len(part) * counted
            await target.send_all(part)
        await target.aclose()


@asynccontextmanager
async def tapped(port: int) -> AsyncIterator[tuple[Tap, int]]:
    tap = Tap(port)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, tap.pass_on, 0, host="127.0.0.1"))
        yield tap, listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_the_budget_of_a_month_counts_every_byte_on_the_wire_and_holds(tmp_path: Path) -> None:
    metered = Metered(interfaces=("lo",), month_mbytes=1, backlog=True)
    settings: dict[str, object] = {
        "metered": metered,
        "codec": "none",
        "express": ("alarm",),
        "express_max_delay_s": 0.01,
    }
    async with (
        gateway(tmp_path / "landing") as port,
        tapped(port) as (tap, through),
        box(tmp_path / "store", through, **settings) as (store, uplink),
    ):
        state = uplink.shipper.state
        await until(lambda: bool(state.ledger.switches))
        await fill(store, 1_500)  # 1.7 MB
        state.ship_now()
        await until(lambda: state.metering.budget_left(0)[0] < SMALLEST_PIECE)
        await until(lambda: tap.sent == state.ledger.month.wire_bytes)
        express = state.counts.pieces["pick"] * PIECE_OVERHEAD  # that lane goes on above 90 %, empty-handed as well
        assert 900_000 - 2 * SMALLEST_PIECE <= tap.sent < 900_000 + express
        assert uplink.statistics().unshipped_bytes > 0
        before = tap.sent
        store.put(message(1, topic="alarm"))  # express goes on, from 90 to 100 %
        await until(lambda: tap.sent > before)
        await until(lambda: tap.sent == state.ledger.month.wire_bytes)
        assert uplink.statistics().month_bytes == uplink.statistics().counts.wire_bytes == tap.sent


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is missing: apt-get install openssl")
async def test_tls_adds_less_than_half_a_percent_and_a_handshake_of_some_kilobytes(tmp_path: Path) -> None:
    certs = tmp_path / "certs"
    make_ca(certs)
    make_gateway(certs, "localhost")
    make_box(certs, "box-17")
    config = GatewayConfig(str(tmp_path / "landing"), ("127.0.0.1", 0), certs=certs, linger_ms=20)
    async with trio.open_nursery() as nursery:
        run = partial(run_gateway, config, now_ms=wall_ms)
        _, port = await nursery.start(lambda task_status: run(task_status=task_status))
        settings: dict[str, object] = {"certs": certs, "codec": "none"}
        async with tapped(port) as (tap, through):
            settings["gateway"] = f"localhost:{through}"
            async with box(tmp_path / "store", through, **settings) as (store, uplink):
                await fill(store, 2_000)
                await until(shipped(store, uplink))
                frames = uplink.statistics().counts.wire_bytes
        nursery.cancel_scope.cancel()
    handshake = 4_000
    print(f"{frames} frame bytes, {tap.sent} over TCP")
    assert tap.opened == 1
    assert frames < tap.sent < frames * 1.005 + handshake
