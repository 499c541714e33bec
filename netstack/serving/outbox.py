"""Frames on their way to one peer: many put, one writer sends what is there in one call."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import trio

from netstack.wire.frame import KIB, MIB

CHUNK: Final = MIB  # progress is seen per chunk, so a slow peer is told from a stuck one
GATHERED: Final = 16 * KIB  # from here on the system joins frames in less time than a copy takes
IOV_MAX: Final = 1024  # buffers in one call
SHARE: Final = 256 * KIB  # what one peer may leave unread while all together leave too much
MODEST: Final = 8  # up to this part of what all may leave unread no address has much


class OutboxOwner(NamedTuple):
    """Whose outbox it is: what its address shares limits with, and the number of the connection, which only rises."""

    site: str = ""
    number: int = 0


NOBODY: Final = OutboxOwner()


class Unsent:
    """What all peers of a process together leave unread.

    Above `limit` a peer loses its connection, since a thousand may each have asked for one answer of 4 MiB: one of the
    address that leaves most, of its connections with more than SHARE the one that has taken nothing for longest. So one
    that pauses over an ordinary answer outlives those that have much and read it slowly on purpose. Where many
    addresses leave little each it is the newest connection.
    """

    def __init__(self, most: int = 24 * MIB, limit: int = 64 * MIB) -> None:
        self.bytes, self.most, self._limit = 0, most, limit
        self._owing: set[Outbox] = set()

    def add(self, outbox: "Outbox", change: int) -> None:
        """Count what a peer leaves unread more, or less; end those that are too many."""
        self.bytes += change
        if outbox.unsent_bytes:
            self._owing.add(outbox)
        else:
            self._owing.discard(outbox)
        first = outbox.unsent_bytes - change <= SHARE  # a peer may have one answer, however large
        while change > 0 and self.bytes > self._limit:
            owing = self._owing - {outbox} if first else self._owing
            if not owing:
                break
            self._worst(owing).give_up()

    def _worst(self, owing: Iterable["Outbox"]) -> "Outbox":
        by_site = Counter[str]()
        for each in owing:
            by_site[each.owner.site] += each.unsent_bytes
        site, left = by_site.most_common(1)[0]
        if left <= self._limit // MODEST:
            return max(owing, key=lambda each: each.owner.number)
        theirs = [each for each in owing if each.owner.site == site]
        return min(theirs, key=lambda each: (each.unsent_bytes <= SHARE, each.progress_at))


class Outbox:
    """Up to `limit_bytes` are no trouble; `socket_fd` is that of a stream without a layer above its socket."""

    def __init__(
        self,
        limit_bytes: int = 8 * MIB,
        socket_fd: int | None = None,
        together: Unsent | None = None,
        owner: OutboxOwner = NOBODY,
    ) -> None:
        self.owner = owner
        self.unsent_bytes = 0
        self.progress_at = trio.current_time()
        self.sent_bytes = 0
        self._limit_bytes, self._fd, self._together = limit_bytes, socket_fd, together or Unsent()
        self._reserved = 0  # for answers that are being made
        self._waiting = trio.lowlevel.ParkingLot()  # who wants to make one
        self._frames: list[bytes] = []
        self._writer: trio.lowlevel.Task | None = None
        self._closed = False
        self.end: Callable[[], None] | None = None  # ends the connection, when it is to be given up
        self.drained: trio.Event | None = None  # set, once, when the outbox is no longer full

    @property
    def full(self) -> bool:
        held = self.unsent_bytes + self._reserved
        return held > self._limit_bytes or (held > SHARE and self._together.bytes > self._together.most)

    async def reserve(self, size: int) -> None:
        """Return when an answer of about this size may be made; `give_back` follows, whatever becomes of it."""
        while self.full:
            await self._waiting.park()
        self._reserved += size

    def give_back(self, size: int) -> None:
        """The answer is in the outbox now, or there is none."""
        self._reserved -= size
        self._waiting.unpark()
        self._tell_drained()

    def put(self, frame: bytes) -> None:
        """Queue a frame; never blocks. What is put after close is dropped."""
        self.put_all((frame,))

    def put_all(self, frames: Sequence[bytes]) -> None:
        """Queue frames that leave together."""
        if self._closed or not frames:
            return
        if not self.unsent_bytes:
            self.progress_at = trio.current_time()
        self._frames += frames
        self._add(sum(map(len, frames)))  # which may be too much
        if self._writer is not None and self._frames:
            trio.lowlevel.reschedule(self._writer)
            self._writer = None

    def send(self, frames: Sequence[bytes]) -> None:
        """Queue frames that leave together: at once where nothing waits and the socket takes them, without a task."""
        if self._fd is not None and self._writer is not None and frames and not self._frames:
            size = sum(map(len, frames))
            try:
                if len(frames) == 1 or size < GATHERED or len(frames) > IOV_MAX:
                    frames = (b"".join(frames),)
                    sent = os.write(self._fd, frames[0])
                else:
                    sent = os.writev(self._fd, frames)
            except OSError:  # full, or gone: the writer finds out
                sent = 0
            if sent:
                self.sent_bytes += sent
                self.progress_at = trio.current_time()
            if sent == size:
                return
            frames = (b"".join(frames)[sent:],)
        self.put_all(frames)

    def close(self) -> None:
        self._closed = True
        self._frames.clear()
        self._add(-self.unsent_bytes)

    def give_up(self) -> None:
        """Drop what is unread, and end the connection."""
        self.close()
        if self.end is not None:
            self.end()

    def _add(self, change: int) -> None:
        self.unsent_bytes += change
        self._together.add(self, change)

    async def run(self, stream: trio.abc.SendStream) -> None:
        """Send until cancelled. The stream's errors pass through."""
        while True:
            if not self._frames:
                await self._wait_frame()
            frames, self._frames = self._frames, []
            ready = frames[0] if len(frames) == 1 else b"".join(frames)
            if len(ready) <= CHUNK:
                await self._send(stream, ready)
            else:
                with memoryview(ready) as view:
                    for at in range(0, len(ready), CHUNK):
                        await self._send(stream, view[at : at + CHUNK])

    async def _send(self, stream: trio.abc.SendStream, ready: bytes | memoryview) -> None:
        await stream.send_all(ready)
        if self._closed:
            return
        self._add(-len(ready))
        self.sent_bytes += len(ready)
        self.progress_at = trio.current_time()
        if self.full:
            return
        if self._waiting:
            self._waiting.unpark_all()
        self._tell_drained()

    def _tell_drained(self) -> None:
        if self.drained is not None and not self.full:
            self.drained.set()
            self.drained = None

    async def _wait_frame(self) -> None:
        def forget(_: object) -> trio.lowlevel.Abort:
            self._writer = None
            return trio.lowlevel.Abort.SUCCEEDED

        self._writer = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(forget)
