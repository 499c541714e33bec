"""What comes over the links of a member becomes events of its driver, wishes, or news."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from appliance.group.copies.common_point import decode_point
from appliance.group.copies.cut_news import decode_cuts, note_cuts
from appliance.group.copies.missing import decode_missing
from appliance.group.copies.segment_fetching import SegmentFetching
from appliance.group.copies.segment_frames import WORKING, SegmentSeen, decode_offer, decode_seen
from appliance.group.event_queue import DriverEvent
from appliance.group.leadership import LEADER
from appliance.group.links.frames import (
    ACCOUNTS,
    APPEND_FETCHED,
    COMMON_POINT,
    COPY_REFUSES,
    CUTS,
    HAND_OVER,
    MISSING,
    MOST_TEXT,
    SEGMENT,
    SEGMENT_SEEN,
    WISH_REFUSED,
    LinkFrame,
    LinkRefused,
    MemberHello,
    typed,
)
from appliance.group.links.frames import LEAVE as LEAVE_FRAME
from appliance.group.links.greeting import hello_of, refusal_of
from appliance.group.links.link import Link, LinkEnded
from appliance.group.links.link_stream import LinkTlsStream
from appliance.group.links.message_frames import decode_message
from appliance.group.member_parts import DriverParts
from appliance.group.wishes import LEAD, LEAVE, Wish
from storage_driver.consensus.effects import Effects
from storage_driver.consensus.messages import Append, Synced

WISHES = {HAND_OVER: LEAD, LEAVE_FRAME: LEAVE}
Take = Callable[[Link, LinkFrame], Awaitable[None]]


class LinkEvents:
    """The user of a member's links."""

    def __init__(
        self,
        parts: DriverParts,
        session: bytes,
        *,
        at_once: Callable[[DriverEvent], bool],
        segments: Callable[[], SegmentFetching],
    ) -> None:
        """at_once: lets the core hear an event right now, and returns whether it did."""
        self._rules, self._core, self._store, self._session = parts.rules, parts.core, parts.store, session
        self._events, self._wishes, self._shipping = parts.events, parts.wishes, parts.shipping
        self._copy, self._missing, self._at_once = parts.copy, parts.missing, at_once
        self._segments = segments
        self.epochs: dict[str, Sequence[tuple[int, int]]] = {}  # of the logs of linked members
        self._takers: dict[int, Take] = {
            **dict.fromkeys(WISHES, self._take_wish),
            ACCOUNTS: self._take_accounts,
            WISH_REFUSED: self._take_answer,
            MISSING: self._take_news,
            COMMON_POINT: self._take_news,
            CUTS: self._take_news,
            COPY_REFUSES: self._take_news,
            SEGMENT: self._take_offer,
            SEGMENT_SEEN: self._take_seen,
        }

    def hello(self) -> MemberHello:
        """Return the greeting of this member."""
        relays = self._rules.relayed is not None
        return hello_of(self._rules, self._store, self._session)._replace(relays=relays)

    def check(self, hello: MemberHello) -> LinkRefused | None:
        """Return why a member's log cannot be one with this one."""
        return refusal_of(self.hello(), hello)

    def begun(self, link: Link, hello: MemberHello) -> None:
        """A link is open."""
        self.epochs[link.member] = hello.epochs
        if self._rules.relayed is not None and hello.segment_bytes:  # a witness has no clients
            self._rules.relayed.heard(link.member, hello.relays)
        if hello.fetches:
            self._shipping.segments.begin(link.member)
            if self._segments().unread:  # a member that fetches knows the frame
                link.put(SegmentSeen(0, 0, WORKING).encode())
        link.pump(partial(self._shipping.next_frame, link.member))
        self._events.add(DriverEvent(partial(self._connected, link.member)))

    def _connected(self, member: str, now_s: float) -> Effects:
        return self._core.connected(now_s, member)

    def ended(self, link: Link) -> None:
        """A link is closed; what was on its way is lost."""
        self._copy.news.refusals.forget(link.member)
        self._shipping.feed.forget(link.member)
        self._shipping.segments.forget(link.member)
        self._segments().left(link.member)
        if self._rules.relayed is not None:
            self._rules.relayed.left(link.member)
        self._events.add(DriverEvent(lambda now_s: Effects()))  # a copy less: the driver looks at once

    async def take(self, link: Link, frame: LinkFrame) -> None:
        """Take a frame. Raises ProtocolError."""
        await self._takers.get(frame.kind, self._take_message)(link, frame)

    async def _take_message(self, link: Link, frame: LinkFrame) -> None:
        message = decode_message(frame)
        fetched = frame.kind == APPEND_FETCHED
        event = DriverEvent(lambda now: self._core.step(now, link.member, message), frame.data, link.member, fetched)
        if isinstance(message, (Append, Synced)) and not fetched and self._at_once(event):
            return
        await self._events.wait_room()
        self._events.add(event)

    async def send_segment(self, member: str, stream: LinkTlsStream, frame: LinkFrame) -> None:
        """Send a member the rest of a segment. Raises LinkEnded, ProtocolError, OSError."""
        await self._shipping.send_segment(member, stream, frame)

    async def take_client(self, member: str, stream: LinkTlsStream, frame: LinkFrame) -> None:
        """Serve a gRPC client that a member brings. Raises LinkEnded, ProtocolError, OSError."""
        if self._rules.relayed is None:
            raise LinkEnded("relay", "a gRPC client came, and grpc.port is off here")
        await self._rules.relayed.take(member, stream, frame)

    async def _take_offer(self, link: Link, frame: LinkFrame) -> None:
        if link.member == self._core.status.leader:
            self._segments().offered(link.member, decode_offer(frame))

    async def _take_seen(self, link: Link, frame: LinkFrame) -> None:
        seen = decode_seen(frame)
        if self._core.status.role == LEADER:
            if (answer := self._shipping.seen(link.member, seen)) is not None:
                link.put(answer)
            link.wake()

    async def _take_wish(self, link: Link, frame: LinkFrame) -> None:
        self._wishes.add(Wish(WISHES[frame.kind], link.member))

    async def _take_accounts(self, link: Link, frame: LinkFrame) -> None:
        if self._rules.accounts is not None and link.member == self._core.status.leader:
            await self._rules.accounts.take(frame.data)

    async def _take_answer(self, link: Link, frame: LinkFrame) -> None:
        self._wishes.answer = typed("REFUSED", lambda: frame.fields("REFUSED").text("text"))[:MOST_TEXT]

    async def _take_news(self, link: Link, frame: LinkFrame) -> None:
        """Take what a leader says beside the core's messages; what was taken back elsewhere, who takes nothing."""
        status = self._core.status
        if frame.kind == CUTS:
            if (cuts := decode_cuts(frame)) and status.role == LEADER:
                note_cuts(self._store.lineage, link.member, cuts)
        elif frame.kind == COPY_REFUSES:
            self._copy.news.refusals.heard(link.member, frame)
        elif link.member == status.leader:
            if frame.kind == MISSING:
                self._missing.heard(decode_missing(frame))
            else:
                self._copy.common = decode_point(frame)
