"""One connection to one member: frames in and out, now and then a sign of life, silence that ends it.

Messages of the core go first, bytes of the log behind them, a frame of at most a MiB and a record at a time: a
heartbeat never waits for more than that.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Final, Protocol

import trio

from appliance.group.links.frames import (
    PING,
    PONG,
    REFUSED,
    LinkFrame,
    LinkFrameDecoder,
    LinkPing,
    LinkRefused,
    decode_ping,
    decode_refused,
)
from storage_driver.named_tuple import NamedTuple

RECEIVE_BYTES: Final = 512 << 10
MOST_HELD: Final = 1 << 20  # bytes of messages that the member has not taken: above, it is closed

SHORTEST_REST_S: Final = 0.01  # between two looks whether something is to be said


class LinkPace(NamedTuple):
    """How often a side says something, how long the other's silence may last, how long a handshake."""

    ping_s: float = 2.0
    silence_s: float = 5.0
    handshake_s: float = 5.0
    measure_s: float = 10.0  # between two looks at the other's clock and the way there, whatever else is said


class LinkStream(Protocol):
    """The half of trio's streams that is used here."""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None: ...
    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray: ...


class LinkEnded(Exception):
    """The link is closed; `refused`: what the other side is told before, or has told."""

    def __init__(self, reason: str, text: str, refused: LinkRefused | None = None) -> None:
        super().__init__(text)
        self.reason, self.refused = reason, refused


class LinkClocks(NamedTuple):
    """What a link measures with: seconds that suspend counts too, and the wall clock."""

    now_s: Callable[[], float]
    wall_ms: Callable[[], int]


class LinkSigns:
    """When the other side was heard last, and when something was said to it."""

    def __init__(self, now_s: float) -> None:
        self.heard_s = self.said_s = now_s
        self.sending_s: float | None = None  # when it began to take what is sent now


class Link:
    """A greeted connection. `put` never waits; one task writes, one reads."""

    def __init__(
        self, stream: LinkStream, member: str, decoder: LinkFrameDecoder, *, pace: LinkPace, clocks: LinkClocks
    ) -> None:
        self.member = member
        self.round_s: float | None = None  # of the last PING
        self.clock_drift_s: float | None = None  # the other's wall clock minus this one's
        self._signs = LinkSigns(clocks.now_s())
        self.sent_bytes = self.received_bytes = 0
        self._stream, self._decoder, self._pace, self._clocks = stream, decoder, pace, clocks
        self._held, self._held_bytes = deque[bytes](), 0
        self._work = trio.Event()
        self._next_bytes: Callable[[], Awaitable[bytes | None]] | None = None
        self._ended: LinkEnded | None = None

    @property
    def heard_s(self) -> float:
        """When the other side said something last."""
        return self._signs.heard_s

    def put(self, frame: bytes) -> None:
        """Send a frame of a message, in order."""
        self._held.append(frame)
        self._held_bytes += len(frame)
        if self._held_bytes > MOST_HELD:
            self.end(LinkEnded("slow", f"{self.member} does not take its messages"))
        self._work.set()

    def pump(self, next_bytes: Callable[[], Awaitable[bytes | None]] | None) -> None:
        """Have frames with bytes of the log come from here, when no message waits; None: none at the moment."""
        self._next_bytes = next_bytes
        self._work.set()

    def wake(self) -> None:
        """Ask the pump again."""
        self._work.set()

    def end(self, ended: LinkEnded) -> None:
        """Close the link; the other side hears why."""
        if self._ended is None:
            self._ended = ended
        self._work.set()

    async def end_replaced(self, rest_s: float) -> None:
        """Close the link a while after another one has replaced it."""
        try:
            await trio.sleep(rest_s)
        finally:
            self.end(LinkEnded("replaced", f"{self.member} is connected anew"))

    async def run(self, take: Callable[[LinkFrame], Awaitable[None]], first: Sequence[LinkFrame] = ()) -> None:
        """Serve until cancelled or the link ends; `first`: frames that came with the greeting.

        Raises LinkEnded, ProtocolError, trio's errors of streams.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write)
            nursery.start_soon(self._ping)
            nursery.start_soon(self._listen)
            for frame in first:
                await self._took(frame, take)
            await self._read(take)

    async def _read(self, take: Callable[[LinkFrame], Awaitable[None]]) -> None:
        while True:
            data = await self._stream.receive_some(RECEIVE_BYTES)
            if not data:
                raise LinkEnded("closed", f"{self.member} closed the link")
            self._signs.heard_s = self._clocks.now_s()
            self.received_bytes += len(data)
            for frame in self._decoder.feed(data):
                await self._took(frame, take)

    async def _took(self, frame: LinkFrame, take: Callable[[LinkFrame], Awaitable[None]]) -> None:
        """Raises LinkEnded, ProtocolError."""
        if frame.kind in (PING, PONG):
            self._answer(frame)
        elif frame.kind == REFUSED:
            refused = decode_refused(frame)
            raise LinkEnded("differs", f"{self.member} ends the link: {refused.code}: {refused.text}", refused)
        else:
            await take(frame)

    def _answer(self, frame: LinkFrame) -> None:
        ping, now_s = decode_ping(frame), self._clocks.now_s()
        if frame.kind == PING:
            self.put(LinkPing(ping.sent_us, self._clocks.wall_ms()).encode(PONG))
            return
        self.round_s = max(0.0, now_s - ping.sent_us / 1e6)
        self.clock_drift_s = (ping.wall_ms - self._clocks.wall_ms()) / 1000 + self.round_s / 2

    async def _listen(self) -> None:
        """End the link when the other side says or takes nothing: a deadline for each frame costs a tenth of it."""
        silence_s, signs = self._pace.silence_s, self._signs
        while True:
            now_s = self._clocks.now_s()
            since_s = signs.heard_s if signs.sending_s is None else min(signs.heard_s, signs.sending_s)
            if now_s - since_s < silence_s:
                await trio.sleep(max(since_s + silence_s - now_s, SHORTEST_REST_S))
                continue
            await trio.sleep(SHORTEST_REST_S)  # who was suspended takes what has come meanwhile first
            if self._clocks.now_s() - signs.heard_s >= silence_s:
                raise LinkEnded("silent", f"{self.member} said nothing for {silence_s:g} s")
            if signs.sending_s is not None and self._clocks.now_s() - signs.sending_s >= silence_s:
                raise LinkEnded("slow", f"{self.member} did not take what it was sent in {silence_s:g} s")

    async def _ping(self) -> None:
        """Say something where nothing was said for `ping_s`, answers among it; measure now and then."""
        measured_s = -inf
        while True:
            now_s = self._clocks.now_s()
            due_s = min(self._signs.said_s + self._pace.ping_s, measured_s + self._pace.measure_s)
            if now_s < due_s:
                await trio.sleep(max(due_s - now_s, SHORTEST_REST_S))
                continue
            measured_s = self._signs.said_s = now_s
            self.put(LinkPing(int(now_s * 1e6), self._clocks.wall_ms()).encode(PING))

    async def _write(self) -> None:
        while True:
            await self._work.wait()
            self._work = trio.Event()
            await self._flush()
            while self._next_bytes is not None and (data := await self._next_bytes()) is not None:
                await self._send(data)
                await self._flush()

    async def _flush(self) -> None:
        if self._ended is not None:
            if self._ended.refused is not None:
                await self._send(self._ended.refused.encode())
            raise self._ended
        while self._held:
            batch = b"".join(self._held)
            self._held.clear()
            self._held_bytes -= len(batch)
            await self._send(batch)

    async def _send(self, data: bytes) -> None:
        signs = self._signs
        signs.sending_s = self._clocks.now_s()
        await self._stream.send_all(data)
        signs.sending_s = None
        self.sent_bytes += len(data)
        signs.said_s = self._clocks.now_s()
