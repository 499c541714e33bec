"""Frames over a stream, both ends: one reader that judges lengths first, one writer that owns the stream."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from uplink_spark.errors import ProtocolError
from uplink_spark.wire.frames import FRAME_HEAD, FrameType, read_frame_head

CHUNK = 64 * 1024
FAST_CHUNK, FAST_S = 256 * 1024, 0.02  # what takes a chunk so fast gets larger ones: a third of the loop's cost
RECEIVE = 256 * 1024
IDLE_PING_S = 30
IDLE_CLOSE_S = 90
SLOW_BYTES_S = 8 * 1024  # a piece that comes slower is the first to go where memory is short: 64 kbit/s is faster
STUCK_S = 60  # a chunk not taken by the socket
MOST_HELD = 256 * 1024  # bytes of small frames that the peer has not taken: above, it is not read from


class Stream(Protocol):
    """The half of trio's streams that is used here."""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None: ...
    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray: ...
    async def aclose(self) -> None: ...


class LinkClosed(Exception):
    """The peer has ended the stream, or nothing came for too long."""


async def no_wait(_length: int) -> None:
    """Admit a frame of any allowed length at once."""
    await trio.lowlevel.checkpoint()


class FrameReader:
    """Whole frames from a stream. Five bytes are read, judged, and only then the body is received."""

    def __init__(self, stream: Stream, idle_s: float = IDLE_CLOSE_S) -> None:
        self._stream, self._idle_s = stream, idle_s
        self._buffer = bytearray()
        self.heard_at = trio.current_time()
        self.received_bytes = 0
        self.head = b""  # of the frame being read, for the log
        self._due = math.inf  # when the piece under way ought to be whole

    async def _fill(self, length: int) -> None:
        while len(self._buffer) < length:
            with trio.move_on_after(self._idle_s) as silence:
                got = await self._stream.receive_some(RECEIVE)
            if silence.cancelled_caught:
                raise LinkClosed(f"nothing received for {self._idle_s:g} s")
            if not got:
                raise LinkClosed("the peer closed the connection")
            self._buffer += got
            self.received_bytes += len(got)
            self.heard_at = trio.current_time()

    def _take(self, length: int) -> bytes:
        with memoryview(self._buffer) as view:
            part = bytes(view[:length])
        del self._buffer[:length]
        return part

    async def next_frame(self, *, pieces: bool, admit: Callable[[int], Awaitable[None]] = no_wait) -> tuple[int, bytes]:
        """Return type and body. admit(length) is awaited before the body of a PIECE is received.

        Raises ProtocolError for a length or type that is not allowed, LinkClosed at the end.
        """
        await self._fill(FRAME_HEAD.size)
        self.head = bytes(self._buffer[:64])
        kind, length = read_frame_head(self._take(FRAME_HEAD.size), pieces=pieces)
        if kind == FrameType.PIECE:
            await admit(length)
            self._due = trio.current_time() + self._idle_s + length / SLOW_BYTES_S
        await self._fill(length)
        self._due = math.inf
        return kind, self._take(length)

    def is_slow(self) -> bool:
        """Whether the piece under way comes slower than SLOW_BYTES_S, and IDLE_CLOSE_S is over too."""
        return trio.current_time() > self._due


class Throttle(Protocol):
    """Who says when the next chunk may leave."""

    async def wait_for(self, length: int) -> bool:
        """Return when length bytes may leave: whether a cap is in force."""
        ...


class FrameQueue:
    """Small frames first, then pieces; one task writes, in chunks, and never waits for the one who puts."""

    def __init__(self, stream: Stream, throttle: Throttle | None = None) -> None:
        self._stream, self._throttle = stream, throttle
        self._small: deque[bytes] = deque()
        self._work, self._room = trio.Event(), trio.Event()
        self._held = 0  # bytes of small frames that have not left
        self._chunk = CHUNK
        self.closing = False
        self.sent_bytes = self.piece_bytes = 0  # all, and of pieces that left whole

    def put(self, frame: bytes) -> None:
        self._small.append(frame)
        self._held += len(frame)
        self._work.set()

    async def wait_room(self) -> None:
        """Return once the peer has taken what was put, except for MOST_HELD bytes."""
        while self._held > MOST_HELD:
            self._room = trio.Event()
            await self._room.wait()

    def close_after(self, frame: bytes) -> None:
        """Queue the last frame; `run` returns when it has been sent."""
        self.put(frame)
        self.closing = True

    def wake(self) -> None:
        self._work.set()

    async def wait_work(self) -> None:
        """Return when something was put or `wake` was called."""
        await self._work.wait()
        self._work = trio.Event()

    async def run(self) -> None:
        """Send what is put until a last frame was sent. Raises OSError, trio.BrokenResourceError, LinkClosed."""
        while True:
            await self.wait_work()
            await self.flush()
            if self.closing:
                return

    async def flush(self) -> None:
        while self._small:
            batch = b"".join(self._small)
            self._small.clear()
            await self.send(batch)
            self._held -= len(batch)
            self._room.set()

    async def send(self, data: bytes) -> None:
        """Send one frame (or several) in chunks; the caller is the writer task."""
        rest = memoryview(data)
        while rest:
            chunk = rest[: self._chunk]
            capped = self._throttle is not None and await self._throttle.wait_for(len(chunk))
            began = trio.current_time()
            with trio.move_on_after(STUCK_S) as stuck:
                await self._stream.send_all(chunk)
            if stuck.cancelled_caught:
                raise LinkClosed(f"{len(chunk)} bytes not taken by the socket in {STUCK_S} s")
            self.sent_bytes += len(chunk)
            self._chunk = FAST_CHUNK if not capped and trio.current_time() - began < FAST_S else CHUNK
            rest = rest[len(chunk) :]


async def pump(outbox: FrameQueue, pieces: trio.MemoryReceiveChannel[bytes]) -> None:
    """Send pieces as they come and, between them or while there are none, the small frames that were put.

    One task writes; a second only passes on pieces, so that either can wake it.
    """
    slot: list[bytes] = []
    taken = trio.Event()

    async def pass_on() -> None:
        nonlocal taken
        async for frame in pieces:
            slot.append(frame)
            taken = trio.Event()
            outbox.wake()
            await taken.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pass_on)
        while not outbox.closing:
            await outbox.wait_work()
            await outbox.flush()
            if slot:
                piece = slot.pop()
                await outbox.send(piece)
                outbox.piece_bytes += len(piece)
                taken.set()
        await outbox.flush()
        nursery.cancel_scope.cancel()


def unexpected(kind: int) -> ProtocolError:
    return ProtocolError(f"a frame of type {kind:#04x} is not expected here")
