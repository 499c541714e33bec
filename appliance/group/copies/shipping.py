"""What a leader sends its followers of the log: as far ahead as their windows allow, each from where it is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import trio

from appliance.group.copies.feed import Feed, FeedGone
from appliance.group.copies.segment_frames import HERE, REFUSED, SILENCE_S, SegmentSeen, decode_fetch
from appliance.group.copies.segment_offers import SegmentOffers
from appliance.group.copies.segment_sending import SegmentGone, SegmentSending, SendingPace, SendingRate
from appliance.group.copies.ship_pace import ShipPace
from appliance.group.copies.topic_policies import CopiedMark
from appliance.group.links.frames import LinkFrame
from appliance.group.links.link import LinkEnded
from appliance.group.links.link_stream import LinkTlsStream
from appliance.group.links.message_frames import encode_fetched, encode_message
from netstack.serving.limits import LogLimiter
from storage_driver.consensus.effects import FollowerProgress
from storage_driver.consensus.messages import Append
from storage_driver.crc import crc32

if TYPE_CHECKING:
    from storage_driver.log.segment import Write

log = logging.getLogger("appliance.group")
WINDOW: Final = 16 << 20  # bytes that a follower has been sent and has not on its disk
RETRY_S: Final = 1.0
MOST_SENDING: Final = 4  # threads that send segments


class ShippingCore(Protocol):
    """The part of the core that says what may be sent."""

    def to_ship(self, member: str) -> tuple[int, int]: ...
    def ship(self, member: str, length: int, crc: int) -> Append: ...
    def progress(self) -> tuple[FollowerProgress, ...]: ...
    def copied(self) -> int: ...
    @property
    def waits_for_copies(self) -> bool: ...


class Shipping:
    """Makes the frames of one leader's followers."""

    def __init__(self, core: ShippingCore, feed: Feed, *, ship: Callable[[], None], rate: int = 0) -> None:
        """ship: has followers sent what there is. rate: bytes a second for each from the disk, 0: as `SendingRate`."""
        self._core, self.feed = core, feed
        self._rate = SendingRate(rate)
        self.segments = SegmentOffers(feed.segment_bytes, feed.synced)
        self._sending = trio.CapacityLimiter(MOST_SENDING)
        self._paces: dict[str, SendingPace] = {}  # of followers
        self._told = LogLimiter()
        self.copied = CopiedMark(core.copied)
        self.pace = ShipPace(ship, waited_for=lambda: core.waits_for_copies or self.copied.waits)

    async def next_frame(self, member: str) -> bytes | None:
        """Return the next bytes for a follower, None when it has none to get now: messages wait for no pause here."""
        pace = self._pace_of(member)
        while not pace.rest_s():
            start, upto = self._core.to_ship(member)
            if start >= upto:
                self.feed.forget(member)
                return None
            turn = self.segments.turn(member, (start, upto), self.synced().get(member, 0), trio.current_time())
            if turn.waits:
                self.feed.forget(member)
                return turn.offer.encode() if turn.offer is not None else None
            if start - self.synced().get(member, 0) > WINDOW:
                return None
            read_before = self.feed.read_by[member]
            try:
                piece = await self.feed.piece(start, upto, member)
            except FeedGone as exc:
                self._note(member, str(exc))
                pace.pause(RETRY_S)
                return None
            pace.sent(self.feed.read_by[member] - read_before)
            if piece is None:
                return None
            if self._core.to_ship(member)[0] == start and piece.end <= self._core.to_ship(member)[1]:
                append = self._core.ship(member, piece.end - start, crc32(piece.data))
                return encode_message(append, piece.data)
        return None

    def seen(self, member: str, seen: SegmentSeen) -> bytes | None:
        """Take what a follower says of a segment; return the frame that makes it part of its log."""
        start, upto = self._core.to_ship(member)
        if seen.what == HERE and (start != seen.start or upto < seen.end):
            seen = seen._replace(what=REFUSED)
        if not self.segments.seen(member, seen, trio.current_time()):
            return None
        return encode_fetched(self._core.ship(member, seen.end - seen.start, seen.crc))

    async def send_segment(self, member: str, stream: LinkTlsStream, frame: LinkFrame) -> None:
        """Send a follower what it fetches, if it was offered. Raises LinkEnded, ProtocolError, OSError."""
        fetch = decode_fetch(frame)
        served = self.segments.sends(fetch)
        if fetch.member != member or served is None:
            raise LinkEnded("differs", f"{member} fetches {fetch.start} to {fetch.end}, which it was not offered")
        stands, pace = partial(self.segments.stands, fetch, served), self._pace_of(member)
        sending = SegmentSending(fetch, served, read=self.feed.read, stands=stands, pace=pace)
        with stream.in_thread(SILENCE_S) as thread:
            try:
                await trio.to_thread.run_sync(sending.send, thread, limiter=self._sending)
            except SegmentGone as exc:
                raise LinkEnded("closed", str(exc)) from exc

    def writing(self, writes: Sequence[Write], end: int) -> None:
        """This leader's own disk gets these batches now; the log ends here."""
        self._rate.written(end)
        self.feed.batch(writes, end)

    def look(self) -> None:
        """Answer those who wait for two disks, as far as these are; have followers sent what is new."""
        self.copied.look()
        if end := self._sendable():
            self.pace.appended(end)

    def has_more(self) -> bool:
        """Return whether there is something that a follower was not sent."""
        return self._sendable() > 0

    def _sendable(self) -> int:
        """Return the log offset up to which there is something that a follower was not sent; 0: there is nothing."""
        return max((upto for start, upto in map(self._core.to_ship, self.synced()) if start < upto), default=0)

    def synced(self) -> Mapping[str, int]:
        """Return how far each follower's disk is."""
        return {each.member: each.synced for each in self._core.progress()}

    def _pace_of(self, member: str) -> SendingPace:
        found = self._paces.get(member)
        if found is None:  # threads cannot ask trio for the time, but its clock
            now_s = trio.lowlevel.current_clock().current_time
            found = self._paces[member] = SendingPace(self._rate, now_s)
        return found

    def _note(self, member: str, text: str) -> None:
        if self._told.allows(member, "feed", trio.current_time()) is not None:
            log.warning("event=not_shipped member=%s reason=%r", member, text)
