"""A follower fetches what is left of a segment, makes it part of its log, and reads its records when no more come.

The bytes go from the socket to a file in a thread. Only what was synced and read back is told to the leader, whose
Append then makes it part of the log; what has come stays when a connection ends, and the next one goes on there.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Final, Protocol

import trio

from appliance.group.copies.log_copy import CopyFailed, LogUnread
from appliance.group.copies.segment_frames import (
    HERE,
    PIECE,
    PIECE_HEAD,
    READ,
    REFUSED,
    SILENCE_S,
    WORKING,
    SegmentFetch,
    SegmentOffer,
    SegmentSeen,
    read_head,
)
from appliance.group.links.link import LinkEnded
from appliance.group.links.link_stream import LinkTlsStream
from appliance.group.links.links import STREAM_ERRORS
from appliance.group.links.thread_stream import ThreadStream
from storage_driver.consensus.messages import Append
from storage_driver.crc import crc32
from storage_driver.errors import QueueRestarted, RecordDamaged
from storage_driver.log.copied_segment import CopiedSegment, CopyDiffers
from storage_driver.named_tuple import NamedTuple
from uplink_spark.errors import ProtocolError

log = logging.getLogger("appliance.group")
TELL_S: Final = 1.0  # between two words to the leader
TRIES: Final = 5  # connections that bring nothing
RETRY_S: Final = 0.3
LEAD_S: Final = 2.0  # for records that were not read when a leadership begins


class WholeSegments(Protocol):
    """The part of a store that takes whole segments."""

    @property
    def unread(self) -> bool: ...
    def begin(self) -> CopiedSegment: ...
    def fits(self, copied: CopiedSegment, /) -> bool: ...
    async def install(self, copied: CopiedSegment, /) -> None: ...
    async def note_committed(self, log_offset: int, /) -> None: ...
    async def read_some(self) -> None: ...


class FetchedLog(Protocol):
    """A store, as far as segments are fetched for it; `copies`: None of a witness."""

    @property
    def copies(self) -> WholeSegments | None: ...
    @property
    def full(self) -> str | None: ...
    async def restart_queue(self, topic: str, queue_id: int, /) -> None: ...


class Fetcher(NamedTuple):
    """Who fetches, and how its leader is reached. `told`: what the leader says is committed."""

    group: str
    member: str
    connected: Callable[[str], AbstractAsyncContextManager[LinkTlsStream]]
    tell: Callable[[str, bytes], None]
    leader: Callable[[], str]
    told: Callable[[], int]


class PieceChanged(Exception):
    """A piece is not the one that was sent, or not of what had come before."""


class FetchRefused(Exception):
    """This disk does not take it."""


class SegmentFetching:
    """One follower's part; one segment at a time."""

    def __init__(self, fetcher: Fetcher, store: FetchedLog) -> None:
        self._me, self._store, self._copies = fetcher, store, store.copies
        self._wanted: tuple[str, SegmentOffer] | None = None
        self._copied: CopiedSegment | None = None  # what has come; `_here`: all of it, read back
        self._here = False
        self._scope = trio.CancelScope()
        self._work, self._to_read, self._idle = trio.Event(), trio.Event(), trio.Event()
        self._one_thread = trio.CapacityLimiter(1)

    @property
    def unread(self) -> bool:
        """Whether the log has records that nobody has read yet: no more can be appended."""
        return self._copies is not None and self._copies.unread

    def offered(self, leader: str, offer: SegmentOffer) -> None:
        """Fetch this and nothing else."""
        if self._copies is not None:
            self._scope.cancel()
            self._wanted = leader, offer
            self._work.set()

    def left(self, member: str) -> None:
        """The link to a member has ended; what has come from there is kept."""
        if self._wanted is not None and self._wanted[0] == member:
            self._wanted = None
            self._scope.cancel()

    async def run(self) -> None:
        """Fetch and read until cancelled. Raises CopyFailed, LogFailed."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_later)
            while True:
                self._idle.set()
                await self._work.wait()
                self._work, self._idle = trio.Event(), trio.Event()
                while (wanted := self._wanted) is not None:
                    with trio.CancelScope() as self._scope:
                        async with self._telling():
                            seen = await self._fetched(*wanted)
                        self._me.tell(wanted[0], seen.encode())
                    if self._wanted is wanted:
                        self._wanted = None

    @asynccontextmanager
    async def _telling(self) -> AsyncIterator[None]:
        """Tell the leader meanwhile that this goes on."""

        async def tell() -> None:
            while True:
                self._me.tell(self._me.leader(), SegmentSeen(0, 0, WORKING).encode())
                await trio.sleep(TELL_S)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell)
            yield
            nursery.cancel_scope.cancel()

    # ---- fetching

    async def _fetched(self, leader: str, offer: SegmentOffer) -> SegmentSeen:
        """Fetch an offer; return what the leader is told. Raises CopyFailed."""
        try:
            copied = await self._begun(offer)
            await self._receive(leader, offer, copied)
            await trio.to_thread.run_sync(copied.finish, trio.from_thread.check_cancelled, limiter=self._one_thread)
        except CopyDiffers as exc:
            raise CopyFailed(f"a segment from {offer.start} on: {exc}") from exc
        except (FetchRefused, OSError) as exc:
            log.warning("event=segment_refused start=%d end=%d reason=%r", offer.start, offer.end, str(exc))
            await self._drop()  # frames come instead
            return SegmentSeen(offer.start, offer.end, REFUSED, reason=str(exc))
        self._here = True
        return SegmentSeen(offer.start, offer.end, HERE, copied.crc)

    async def _drop(self) -> None:
        """Give back the space of what has come."""
        copied, self._copied, self._here = self._copied, None, False
        if copied is not None:
            try:
                await trio.to_thread.run_sync(copied.discard, limiter=self._one_thread)
            except OSError as exc:
                log.warning("event=copy_not_removed reason=%r", str(exc))

    async def _begun(self, offer: SegmentOffer) -> CopiedSegment:
        """Return what has come of an offer. Raises FetchRefused, OSError."""
        assert self._copies is not None, "a witness fetches nothing"
        copied = self._copied
        if copied is None or (copied.start, copied.end) != offer or not self._copies.fits(copied):
            copied, self._copied = self._copies.begin(), None
            if (copied.start, copied.end) != offer or not self._copies.fits(copied):
                raise FetchRefused(f"this log goes on at {copied.start}")
            self._copied, self._here = copied, False
        if self._store.full is not None:
            raise FetchRefused(self._store.full)
        if not copied.begun:
            await trio.to_thread.run_sync(copied.begin, trio.from_thread.check_cancelled, limiter=self._one_thread)
        return copied

    async def _receive(self, leader: str, offer: SegmentOffer, copied: CopiedSegment) -> None:
        """Receive what has not come. Raises FetchRefused."""
        tries = 0
        while copied.at < copied.end:
            before = copied.at
            try:
                async with self._me.connected(leader) as stream:
                    fetch = SegmentFetch(self._me.group, self._me.member, offer.start, offer.end, copied.at)
                    await stream.send_all(fetch.encode())
                    with stream.in_thread(SILENCE_S) as thread:
                        await trio.to_thread.run_sync(receive_range, thread, copied, limiter=self._one_thread)
            except* PieceChanged:
                copied.start_again()
                tries += 1
            except* (*STREAM_ERRORS, trio.TooSlowError, ProtocolError, LinkEnded) as group:
                tries = 0 if copied.at > before else tries + 1
                text = str(group.exceptions[0])
                log.info("event=fetch_cut start=%d at=%d reason=%r", offer.start, copied.at, text)
            if tries > TRIES:
                raise FetchRefused(f"{leader} does not send it")
            if copied.at < copied.end:
                await trio.sleep(RETRY_S)

    # ---- what is fetched becomes the log's

    async def adopt(self, append: Append) -> int | None:
        """Make what was fetched part of the log; return the log offset behind it, None where it is not that.

        Raises LogFailed.
        """
        copied, copies = self._copied, self._copies
        if copied is None or copies is None or not self._here or not copies.fits(copied):
            return None
        if (copied.start, copied.end, copied.crc) != (append.start, append.end, append.crc):
            return None
        self._copied, self._here = None, False
        await copies.install(copied)
        try:
            await copies.note_committed(min(self._me.told(), append.end))
        except OSError as exc:
            log.warning("event=committed_not_noted reason=%r", str(exc))
        self._to_read.set()
        return append.end

    async def _read_later(self) -> None:
        """Read the records of what was adopted whenever nothing is fetched."""
        while True:
            await self._to_read.wait()
            self._to_read = trio.Event()
            async with self._telling():
                while self.unread:
                    await self._idle.wait()
                    await self._read_some()
            self._me.tell(self._me.leader(), SegmentSeen(0, 0, READ).encode())

    async def read_all(self) -> None:
        """Read all records, for a box that is to lead. Raises CopyFailed, and LogUnread where that does not work now.

        Others wait for the leader meanwhile, and no topic can be deleted here: what was committed only a leader tells.
        """
        with trio.move_on_after(LEAD_S), suppress(QueueRestarted):
            while self.unread:
                await self._read_next()
        if self.unread:
            raise LogUnread("this box was elected before it had read what it copied: the next start reads it")

    async def _read_some(self) -> None:
        try:
            await self._read_next()
        except QueueRestarted as exc:
            await self._restart(exc)

    async def _restart(self, restarted: QueueRestarted) -> None:
        """Delete a queue, as the leader did before its next records."""
        try:
            await self._store.restart_queue(restarted.topic, restarted.queue_id)
        except OSError as exc:  # the disk has no room for a table
            log.warning("event=queue_not_restarted topic=%s reason=%r", restarted.topic, str(exc))
            await trio.sleep(TELL_S)

    async def _read_next(self) -> None:
        """Raise QueueRestarted, CopyFailed."""
        assert self._copies is not None, "a witness has nothing to read"
        try:
            await self._copies.read_some()
        except (RecordDamaged, OSError) as exc:
            raise CopyFailed(f"a segment that was fetched: {exc}") from exc


def receive_range(stream: ThreadStream, copied: CopiedSegment) -> None:
    """Take pieces until all is there. Blocks. Raises PieceChanged, FetchRefused, ProtocolError, OSError of streams."""
    buffer, head = memoryview(bytearray(PIECE)), memoryview(bytearray(PIECE_HEAD.size))
    while copied.at < copied.end:
        stream.receive_into(head)
        length, crc = read_head(bytes(head), copied.end - copied.at)
        piece = buffer[:length]
        stream.receive_into(piece)
        if crc32(piece, copied.crc) != crc:
            raise PieceChanged(f"the piece at {copied.at}")
        try:
            copied.write(piece, crc)
        except OSError as exc:
            raise FetchRefused(f"its disk takes no more: {exc}") from exc
