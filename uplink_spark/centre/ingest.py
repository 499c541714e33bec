"""One box at the gateway: HELLO judged, pieces verified in threads, receipts only for what has landed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NoReturn

import trio

from storage_driver.files.disk import SPACE_ERRORS
from uplink_spark.centre.admission import RateLimit
from uplink_spark.centre.hub import Hub
from uplink_spark.centre.lander import Offer, ShardLander
from uplink_spark.centre.received import ReceivedPieces
from uplink_spark.centre.verify import Verified, judge_for, verify_piece
from uplink_spark.errors import PieceDamaged, ProtocolError, Refused
from uplink_spark.wire import frames
from uplink_spark.wire.batch import decode_header
from uplink_spark.wire.frames import FrameType, Hello, Receipt, ReceiptRow, Refusal, Status, Welcome
from uplink_spark.wire.link import IDLE_PING_S, SLOW_BYTES_S, FrameQueue, FrameReader, LinkClosed, Stream, unexpected

log = logging.getLogger("uplink_spark.gateway")
HELLO_S = 10
LONGEST_S, LONGEST_BYTES = 24 * 3600, 64 << 30
SMALL_BURST, SMALL_A_SECOND = 200, 10  # a box sends three a minute


def _nothing() -> None:
    """Nobody waits for the welcome."""


class BoxSession:
    """A connection from HELLO to its end; `run` returns or raises why it ended."""

    def __init__(
        self,
        stream: Stream,
        peer: str,
        hub: Hub,
        *,
        certified: str | None,
        deadline_s: float,
        stick: bool = False,
        when_welcomed: Callable[[], None] = _nothing,
    ) -> None:
        self.peer, self._hub, self._certified = peer, hub, certified
        self._reader, self.outbox = FrameReader(stream), FrameQueue(stream)
        self._stick = stick  # its box is elsewhere: it takes nobody's place
        self._deadline_s = deadline_s  # this connection ends then, so that new certificates take effect
        self._pieces = ReceivedPieces(hub.config, hub.budget)
        self._rows: list[ReceiptRow] = []
        self.hello: Hello
        self.welcomed = False
        self._when_welcomed = when_welcomed
        self._small_frames = RateLimit(SMALL_A_SECOND, burst=SMALL_BURST)
        self.status: Status | None = None
        self._lander: ShardLander
        self._judge: Callable[..., None]

    async def run(self) -> None:
        """Serve the box until it leaves or must go. Raises LinkClosed, OSError, ProtocolError before HELLO."""
        with trio.move_on_after(HELLO_S) as late:
            kind, body = await self._reader.next_frame(pieces=False)
            if kind != FrameType.HELLO:
                raise unexpected(kind)
            self.hello = frames.decode_hello(body)
        if late.cancelled_caught:
            raise LinkClosed(f"no HELLO in {HELLO_S} s")
        try:
            if self._stick:
                welcome = await self._hub.greet_stick(self.hello)
            else:
                welcome = await self._hub.greet(self.hello, self._certified, self)
        except Refused as reason:
            await self._turn_away(reason)
            raise
        except OSError as error:  # the landing zone, not the network
            code = "full" if error.errno in SPACE_ERRORS else "internal"
            self._hub.counts.refused[code] += 1
            broken = Refused(code, f"the landing zone cannot be used: {error}", self._hub.retry_ms())
            await self._turn_away(broken)
            raise broken from error
        self.welcomed = True
        self._when_welcomed()
        self._hub.counts.handshakes["welcome"] += 1
        try:
            await self._converse(welcome)
        finally:
            self._hub.leave(self.hello.box, self)
            self._pieces.release()

    async def _turn_away(self, reason: Refused) -> None:
        self.outbox.close_after(_fault(reason).encode())
        with trio.move_on_after(HELLO_S):
            await self.outbox.run()

    async def _converse(self, welcome: Welcome) -> None:
        self._lander = self._hub.lander_of(self.hello.box)
        self._judge = judge_for(self.hello)
        self.outbox.put(welcome.encode())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read)
            nursery.start_soon(self._verify)
            nursery.start_soon(self._tick)
            await self.outbox.run()  # returns after a last frame
            nursery.cancel_scope.cancel()

    async def _tick(self) -> None:
        began = trio.current_time()
        while True:
            await trio.sleep(IDLE_PING_S)
            now = trio.current_time()
            if now - began > self._deadline_s or self._reader.received_bytes > LONGEST_BYTES:
                self.outbox.close_after(frames.encode_bye("connection renewed; connect again"))
            elif self._hub.budget.is_short() and self._reader.is_slow():
                self.failed(
                    "busy", f"a piece came slower than {SLOW_BYTES_S} bytes a second, and others wait for memory"
                )
            elif now - self._reader.heard_at >= IDLE_PING_S:
                self.outbox.put(frames.encode_ping(FrameType.PING, int(now * 1000)))

    async def _read(self) -> None:
        try:
            while True:
                await self.outbox.wait_room()  # who does not read what we answer is not listened to
                kind, body = await self._reader.next_frame(pieces=True, admit=self._pieces.admit)
                if kind == FrameType.PIECE:
                    self._pieces.put(body)
                elif kind in (FrameType.BYE, FrameType.ERROR):
                    self._leave(kind, body)
                else:
                    self._small(kind, body)
        except ProtocolError as error:
            self._hub.counts.refused["protocol"] += 1
            log.warning(
                "protocol error box=%s peer=%s error=%s head=%s",
                self.hello.box, self.peer, error, self._reader.head.hex(),
            )  # fmt: skip
            self.outbox.close_after(frames.ErrorFrame("protocol", str(error)).encode())
            await trio.sleep_forever()

    def _small(self, kind: int, body: bytes) -> None:
        if not self._small_frames.take(trio.current_time()):
            raise ProtocolError(f"more than {SMALL_BURST} small frames, then {SMALL_A_SECOND} a second")
        if kind == FrameType.PING:
            self.outbox.put(frames.encode_ping(FrameType.PONG, frames.decode_ping(body)))
        elif kind == FrameType.PONG:
            frames.decode_ping(body)
        elif kind == FrameType.STATUS:
            self.status = frames.decode_status(body)
            self._hub.note_status(self.hello, self.status)
        elif kind < frames.LATER:
            raise unexpected(kind)

    def _leave(self, kind: int, body: bytes) -> NoReturn:
        text = frames.decode_fault(body).text if kind == FrameType.ERROR else "BYE"
        raise LinkClosed(f"the box ended the connection: {text}")

    async def _verify(self) -> None:
        while True:
            number, container = await self._pieces.next()
            await self._verify_one(number, container)

    async def _verify_one(self, number: int, container: bytes) -> None:
        self._hub.step("G1")
        try:
            piece = await trio.to_thread.run_sync(verify_piece, container, self._judge, limiter=self._hub.verifiers)
        except Refused as reason:
            if reason.code in ("damaged", "bad_records"):
                await self._hub.quarantine(self.hello.box, container)
            self._hub.counts.refused_kinds[kind_of(container)] += 1
            self._refuse(number, len(container), reason)
            return
        raw = piece.header.raw_bytes
        if not self._pieces.fits(raw):
            text = f"more than {self._hub.config.window_bytes} raw bytes without a receipt"
            self.outbox.close_after(frames.ErrorFrame("protocol", text).encode())
            return
        self._hub.counts.received(piece.header, len(container))
        self._pieces.offer(number, raw, len(container))
        self._lander.offer(Offer(number, piece, self))

    # What the lander answers, see lander.OfferSource.

    def landed(self, number: int, piece: Verified, seq: int, dup: int) -> None:
        header = piece.header
        self._rows.append(ReceiptRow(number, header.start, header.end, header.sha, seq, dup))
        self.dropped(number, piece)

    def refused(self, number: int, piece: Verified, reason: Refused) -> None:
        if reason.code == "diverged":
            self._hub.counts.divergences += 1
            self.outbox.close_after(_fault(reason).encode())
        else:
            self._tell_refusal(number, reason)
        self.dropped(number, piece)

    def dropped(self, number: int, piece: Verified) -> None:
        self._pieces.settle(number, len(piece.container), offered=True)

    def failed(self, code: str, text: str) -> None:
        self._hub.counts.refused[code] += 1
        self.outbox.close_after(frames.ErrorFrame(code, text, self._hub.retry_ms()).encode())

    def flush(self, shard: int) -> None:
        if self._rows:
            self.outbox.put(Receipt(shard, tuple(self._rows), self._hub.now_ms()).encode())
            self._rows = []

    def _refuse(self, number: int, length: int, reason: Refused) -> None:
        self._tell_refusal(number, reason)
        self._pieces.settle(number, length)

    def _tell_refusal(self, number: int, reason: Refused) -> None:
        self._hub.counts.refused[reason.code] += 1
        log.warning(
            "piece refused box=%s number=%d code=%s reason=%s", self.hello.box, number, reason.code, reason.text
        )
        self.outbox.put(Refusal(number, reason.code, reason.text, reason.retry_ms).encode())


def kind_of(container: bytes) -> str:
    """The kind a refused piece says it is, `unread` where its header cannot be read."""
    try:
        return decode_header(container)[0].kind
    except PieceDamaged:
        return "unread"


def _fault(reason: Refused) -> frames.ErrorFrame:
    keys = reason.keys
    fork, to = keys.get("fork"), keys.get("to")
    versions = (frames.VERSION, frames.VERSION) if reason.code == "version" else None
    return frames.ErrorFrame(
        reason.code,
        reason.text,
        reason.retry_ms,
        fork if isinstance(fork, int) else None,
        to if isinstance(to, str) else None,
        versions,
    )
