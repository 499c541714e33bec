"""One greeted connection of the box: cut, send, read answers, tick. Ends by raising why."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from uplink_spark.box.cutting.cutter import CutOrder, CutPiece, Taken, drop_cache
from uplink_spark.box.cutting.holes import AGAIN_S, take_around
from uplink_spark.box.cutting.piece_shape import PieceShape
from uplink_spark.box.cutting.suspects import Suspects
from uplink_spark.box.cutting.wrapping import Job, Jobs, wrap_all
from uplink_spark.box.figures import count
from uplink_spark.box.in_flight import InFlight, PiecesInFlight
from uplink_spark.box.link.connect import GatewayConnection, GatewayRefused
from uplink_spark.box.plan import Flight, SendPiece, SendPlan
from uplink_spark.box.receipts.gaps import Gap
from uplink_spark.box.receipts.ledger import SAVE_BYTES, SAVE_S, ReceiptSeen
from uplink_spark.box.send_lanes import SendLanes
from uplink_spark.box.spool import Spool, SpoolLane
from uplink_spark.box.state import ShipperState
from uplink_spark.box.unreadable import given_up
from uplink_spark.errors import ProtocolError
from uplink_spark.wire import frames
from uplink_spark.wire.batch import MAX_RAW_BYTES, PieceContents, PieceSource, encode_piece
from uplink_spark.wire.cbor import encode_map
from uplink_spark.wire.frames import FrameType, ReceiptRow, Refusal, encode_frame
from uplink_spark.wire.identity import owner_of, run_of
from uplink_spark.wire.link import IDLE_PING_S, LinkClosed, pump, unexpected

log = logging.getLogger("uplink_spark.shipper")
STATUS_S = 60
FAREWELL_S, REFUSED_S = 5, 1.0
DROP_CACHE_BYTES = 256 << 20


class UplinkSession:
    """The sending side of one connection."""

    def __init__(
        self,
        state: ShipperState,
        connection: GatewayConnection,
        codec: str,
        *,
        on_progress: Callable[[], None],
        spool: Spool,
    ) -> None:
        self._state, self._link, self._on_progress = state, connection, on_progress
        welcome = connection.welcome
        self._shape = PieceShape(codec, welcome.codecs, state.config.piece_bytes)
        state.metering.caps.gateway_rate = welcome.rate
        self._flight = Flight(welcome.window, welcome.pieces)
        self._pieces = PiecesInFlight()
        self._left = trio.Event()  # the last frame was sent
        self._rest_until = 0.0
        self._out: trio.MemorySendChannel[bytes]
        self._suspects = Suspects()
        self._lanes, self._spooled = SendLanes(state), SpoolLane(spool)
        self._saved_at = trio.current_time()

    async def run(self) -> None:
        """Converse until the connection ends. Raises what ended it."""
        self._note_window(self._flight.window)
        await self._state.workers.in_thread(self._spooled.look)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read)
            nursery.start_soon(self._tick)
            nursery.start_soon(self._write)

    # Sending

    async def _write(self) -> None:
        outbox = self._link.outbox
        async with trio.open_nursery() as nursery:
            jobs, taken = trio.open_memory_channel[Job](0)
            self._out, receive = trio.open_memory_channel[bytes](0)
            nursery.start_soon(self._cut_all, jobs)
            nursery.start_soon(wrap_all, taken, self._send)
            async with receive:
                await pump(outbox, receive)
                self._left.set()

    async def _cut_all(self, out: Jobs) -> None:
        state = self._state
        while True:
            state.wakes.changed = trio.Event()
            if state.ledger.paused:
                self._link.outbox.close_after(frames.encode_bye("paused"))
                raise LinkClosed("paused")
            wait_s = await self._cut_next(out)
            if wait_s > 0:
                with trio.move_on_after(wait_s):
                    await state.wakes.changed.wait()

    async def _cut_next(self, out: Jobs) -> float:
        """Send one piece and return 0, or return how long to wait."""
        if (rest := self._rest_until - trio.current_time()) > 0:
            return rest
        if self._lanes.gaps:
            if not self._flight.room(0, self._state.link.rate.wire):
                return 60.0
            await self._send_gap(self._lanes.gaps.pop(0), out)
            return 0.0
        room_for_any = self._flight.room(MAX_RAW_BYTES, self._state.link.rate.wire)
        if self._spooled.waiting and self._state.metering.allowed().express and room_for_any:
            kept = await self._state.workers.in_thread(self._spooled.take)
            if kept is not None:
                await self._queue(Job(kept.to_piece()), out)
            return 0.0
        queued = self._pieces.added_bytes - self._link.outbox.piece_bytes
        facts, waits = self._lanes.facts(queued, self._shape.most_bytes), [60.0]
        for lane, plan, weight in (("express", self._lanes.express, 0), ("log", self._lanes.log, facts.target)):
            if not self._flight.room(weight, self._state.link.rate.wire):
                continue
            decision = self._lanes.decide(lane, plan, facts)
            if isinstance(decision, SendPiece):
                await self._send_cut(lane, plan, decision, out)
                return 0.0
            waits.append(decision.seconds)
        return max(0.001, min(waits))

    async def _send_cut(self, lane: str, plan: SendPlan, cut: SendPiece, out: Jobs) -> None:
        """Cut one piece; where the link takes all and nobody sends here, the next is cut beside its wrapping."""
        state = self._state
        order, began = self._order(lane, cut), trio.current_time()
        state.pace.working = True
        taken = await self._take(order, plan, cut)
        if taken is None:
            state.pace.working = False
            return
        if taken.damage is not None:
            state.alarm("damage", taken.damage)
        start, end = taken.contents.start, taken.contents.end
        plan.sent(cut.lane, start, end, trio.current_time(), state.source.committed)
        job, taken_s = Job(taken), trio.current_time() - began
        await self._queue(job, out, beside=not state.one_by_one(began))
        if state.source.committed - end > DROP_CACHE_BYTES:
            await state.workers.in_thread(drop_cache, state.source.segments(), start, end)
        state.pace.working = False
        await trio.sleep(state.pace.rest_s(taken_s + job.wrap_s, trio.current_time(), pressed=state.pressed()))

    async def _take(self, order: CutOrder, plan: SendPlan, cut: SendPiece) -> Taken | None:
        """Return what goes next; None where it cannot be read: it is tried again, at last told as a loss and passed."""
        state = self._state
        found = await state.workers.in_thread(take_around, state.source.read_log, order)
        if isinstance(found, Taken):
            return found
        if await given_up(state, found, express=bool(order.pick)) is not None:
            self._add_gaps()
            plan.sent(cut.lane, found.start, found.end, trio.current_time(), state.source.committed)
        else:
            self._rest_until = trio.current_time() + AGAIN_S
        return None

    def _add_gaps(self) -> None:
        """Send what was declared meanwhile."""
        self._lanes.add_gaps([g for g in self._state.ledger.gaps.undelivered() if not self._pieces.has_gap(g)])

    async def _queue(self, job: Job, out: Jobs, *, beside: bool = False) -> None:
        """Hand on a piece; not beside others: return when it stands before the writer, its bytes counted."""
        self._state.link.rate.sent(trio.current_time(), idle=not self._flight.count)
        self._flight.add(job.raw_bytes)
        await out.send(job)
        if not beside:
            await job.gone.wait()

    def _order(self, lane: str, cut: SendPiece) -> CutOrder:
        state = self._state
        epoch = owner_of(state.source.lineage.epochs, cut.start)[0]
        run, run_start, _ = run_of(state.source.lineage.runs, cut.start)
        config = state.config
        source = PieceSource(config.box, epoch, run, run_start, state.now_ms(), int(state.clock_ok()))
        topics = state.ledger.express_at(cut.start)
        return CutOrder(
            source,
            cut.start,
            min(cut.end, self._suspects.end_of(cut.start)) if lane == "log" else cut.end,
            state.file_end(cut.start),
            cut.max_bytes,
            self._shape.codec,
            skip=topics if lane == "log" else (),
            pick=topics if lane == "express" else (),
            as_blob=lane == "log" and self._suspects.is_blob(cut.start),
        )

    async def _send_gap(self, gap: Gap, out: Jobs) -> None:
        state = self._state
        source = PieceSource(state.config.box, gap.epoch, gap.run, gap.run_start, state.now_ms(), int(state.clock_ok()))
        header, container = encode_piece(
            source, PieceContents("gap", gap.start, gap.end, encode_map(gap.facts)), self._shape.codec
        )
        await self._queue(Job(CutPiece(header, encode_frame(FrameType.PIECE, container)), gap), out)

    async def _send(self, piece: CutPiece, gap: Gap | None) -> None:
        """Number a piece, note it and hand it to the writer."""
        state, header = self._state, piece.header
        state.step("B2")
        self._pieces.add(InFlight(header, len(piece.frame), piece.sizes, gap))
        state.counts.pieces[header.kind] += 1
        state.counts.raw_bytes += header.raw_bytes
        await self._out.send(piece.frame)
        state.step("B3")

    # Answers

    async def _read(self) -> None:
        try:
            await self._read_on()
        except ProtocolError as error:  # the gateway hears why, behind the piece that is on its way
            self._link.outbox.close_after(frames.ErrorFrame("protocol", str(error)).encode())
            with trio.move_on_after(FAREWELL_S):
                await self._left.wait()
            raise

    async def _read_on(self) -> None:
        while True:
            kind, body = await self._link.reader.next_frame(pieces=False)
            if kind == FrameType.RECEIPT:
                await self._receipted(frames.decode_receipt(body))
            elif kind == FrameType.REFUSED:
                await self._refused(frames.decode_refused(body))
            elif kind == FrameType.WINDOW:
                window = frames.decode_window(body)
                self._state.metering.caps.gateway_rate = window.rate
                self._note_window(window.window)
            elif kind == FrameType.ERROR:
                raise GatewayRefused(frames.decode_fault(body))
            elif kind == FrameType.BYE:
                raise LinkClosed("the gateway asked to connect again")
            elif kind == FrameType.PING:
                self._link.outbox.put(frames.encode_ping(FrameType.PONG, frames.decode_ping(body)))
                await self._link.outbox.wait_room()
            elif kind != FrameType.PONG and kind < frames.LATER:
                raise unexpected(kind)
            self._state.wakes.changed.set()

    def _note_window(self, window: int) -> None:
        self._flight.window = window
        self._state.link.note_window(window, trio.current_time())

    async def _receipted(self, receipt: frames.Receipt) -> None:
        state, now = self._state, trio.current_time()
        state.step("B4")
        for row in receipt.rows:
            flying = self._checked(row)
            state.ledger.newest = receipt.shard, row.seq
            header = flying.header
            self._flight.remove(header.raw_bytes)
            seen = ReceiptSeen(row.start, row.end, header.kind, row.seq, receipt.shard, row.dup, state.now_ms())
            if flying.gap is not None:
                state.ledger.gaps.note_delivered(flying.gap)
            else:
                state.ledger.receipt(header.kind, seen)
                if self._spooled.sent(header):
                    await state.workers.in_thread(self._spooled.receipted, header)
                state.progress.receipted(header.raw_bytes, now)
                state.counts.repeat_bytes += header.raw_bytes if row.dup else 0
            if header.kind in ("log", "blob"):
                self._suspects.landed(header.start)
            state.link.rate.receipted(header.raw_bytes, flying.wire_bytes, now)
        state.link.last_receipt_at = now
        self._on_progress()
        if state.ledger.unsaved_bytes >= SAVE_BYTES or now - self._saved_at >= SAVE_S:
            await self._save()

    def _checked(self, row: ReceiptRow) -> InFlight:
        flying = self._pieces.take(row.number, "RECEIPT")
        header = flying.header
        if (row.start, row.end, row.sha) != (header.start, header.end, header.sha):
            self._state.alarm("receipt", f"piece {row.number} was receipted with another range or digest")
            raise ProtocolError(f"RECEIPT for piece {row.number} names {row.start}..{row.end} or another digest")
        return flying

    async def _save(self) -> None:
        self._saved_at = trio.current_time()
        await self._state.workers.in_thread(self._state.ledger.save)
        self._state.step("B5")

    async def _refused(self, refusal: Refusal) -> None:
        flying = self._pieces.take(refusal.number, "REFUSED")
        header, state = flying.header, self._state
        self._flight.remove(header.raw_bytes)
        count(state.counts.refused, refusal.code)
        log.warning(
            "piece refused range=%d..%d code=%s reason=%s", header.start, header.end, refusal.code, refusal.text
        )
        if flying.gap is not None:
            state.alarm("gap_refused", f"gap {header.start}..{header.end}: {refusal.code}: {refusal.text}")
            return
        if self._spooled.sent(header):
            if text := await state.workers.in_thread(self._spooled.refused, header, refusal):
                state.alarm("spool_refused", text)
            return
        if refusal.code == "too_big":
            self._shape.too_big(header.raw_bytes)
        elif refusal.code == "codec":
            self._shape.other_codec()
        elif refusal.code == "not_yours":
            state.alarm("not_yours", refusal.text)
            raise ProtocolError(f"REFUSED not_yours: {refusal.text}")
        elif refusal.code == "holes":
            self._lanes.log.mend()
        elif refusal.code in ("damaged", "bad_records"):
            if not self._suspect(flying, refusal):
                return
        else:  # its trouble, not the piece's: once more, later
            self._rest_until = trio.current_time() + max(REFUSED_S, refusal.retry_ms / 1000)
        self._lanes.again(header)

    def _suspect(self, flying: InFlight, refusal: Refusal) -> bool:
        """Read again from the disk; after three refusals halve the range, at last send it unparsed.

        An express piece is given up then: False. Its records travel in the log, too.
        """
        header, state = flying.header, self._state
        start, end = header.start, header.end
        if header.kind == "pick":
            if given_up := self._suspects.pick_refused(start, end):
                text = f"express records of log {start}..{end} are refused ({refusal.code}: {refusal.text})"
                state.alarm(
                    "express_refused", f"{text}: on this connection they are shipped only as part of the log (raw=true)"
                )
            return not given_up
        sizes = memoryview(flying.sizes).cast("I").tolist() if flying.sizes else []
        if self._suspects.refused(start, end, sizes):
            state.alarm("bad_records", f"log {start}..{end} is refused as bad records; sent as a blob")
        return True

    # Periodic

    async def _tick(self) -> None:
        """PING after 30 s of silence, STATUS at once and every 60 s, receipts saved, caps looked at."""
        status_at = trio.current_time()
        self._link.outbox.put(self._state.status_frame().encode())
        while True:
            await trio.sleep(IDLE_PING_S / 2)
            now = trio.current_time()
            if now - self._link.reader.heard_at >= IDLE_PING_S:
                self._link.outbox.put(frames.encode_ping(FrameType.PING, int(now * 1000)))
            if now - status_at >= STATUS_S:
                status_at = now
                self._link.outbox.put(self._state.status_frame().encode())
            if self._state.ledger.unsaved_bytes and now - self._saved_at >= SAVE_S:
                await self._save()
            self._add_gaps()
            await self._state.workers.in_thread(self._spooled.look)
            self._state.wakes.changed.set()
