"""Runs the consensus core of one member over its store, its files and its links.

One task feeds the core with one event after the other and carries out what it wants before the next: promises are on
disk before a message leaves. The store's own thread syncs meanwhile, and links send bytes of the log meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from appliance.errors import NOT_COPIED
from appliance.group.copies.common_point import cuts_something, encode_point, point_of
from appliance.group.copies.cut_news import note_cuts
from appliance.group.copies.full_disk import WantedLeader
from appliance.group.copies.log_copy import CopyFailed, LogShrunk
from appliance.group.copies.missing import messages_of_clients
from appliance.group.copies.segment_fetching import Fetcher, SegmentFetching
from appliance.group.event_queue import DriverEvent, needs_turn
from appliance.group.leadership import LEADER, LEARNER, LeadershipState
from appliance.group.link_events import LinkEvents
from appliance.group.links.link import Link
from appliance.group.links.links import LinkUser, MemberLinks, first_of
from appliance.group.links.message_frames import encode_message
from appliance.group.member_files import MemberFiles
from appliance.group.member_orders import MemberOrders
from appliance.group.member_parts import DriverParts
from appliance.group.member_view import MemberView
from appliance.group.told_log import ToldLog
from appliance.group.wishes import LEAD, Wish
from storage_driver.consensus.effects import BeginTerm, Effects, LogCut
from storage_driver.consensus.members import Members
from storage_driver.consensus.messages import Append
from storage_driver.errors import LogFailed, StorageError
from storage_driver.record import Message
from uplink_spark.wire.cbor import encode_map

if TYPE_CHECKING:
    from appliance.group.relay.relay import GrpcRelay
    from storage_driver.log.segment import Write

log = logging.getLogger("appliance.group")
RAFT_TOPIC: Final = "RBX_RAFT"
OFTEN_S: Final = 0.02  # between two notes of what copies lack
LOOK_S: Final = 0.5  # how old a lease and marks of the store may be when they are looked at
FAR_BEHIND: Final = 32 << 20  # bytes: twice what may be on its way


class ConsensusDriver:
    """Feeds the core of one member with one event after the other, and carries out what it wants before the next."""

    def __init__(
        self,
        parts: DriverParts,
        *,
        files: MemberFiles,
        session: bytes,
        make_links: Callable[[LinkUser], MemberLinks],
    ) -> None:
        self.leadership, self.member, self._rules = parts.leadership, parts.rules.member, parts.rules
        self._core, self._store, self._files, self._copy = parts.core, parts.store, files, parts.copy
        self._events, self._wishes, self._clocks = parts.events, parts.wishes, parts.clocks
        self._shipping, self._missing = parts.shipping, parts.missing
        self._one_thread = trio.CapacityLimiter(1)
        self._told, self._failed = ToldLog(parts.core, parts.store), False  # whether the disk failed
        self._heard = LinkEvents(parts, session, at_once=self._done_at_once, segments=lambda: self._segments)
        self.links = make_links(self._heard)
        self._segments = SegmentFetching(self._fetcher(), parts.store)
        self.view = MemberView(parts, self.links)
        self._wanted = WantedLeader(parts, self.view)
        self.orders = MemberOrders(
            parts,
            self.links,
            tell_end=lambda now_s: self._told.appended(now_s, self._store.end),
            publish=self._publish,
            limiter=self._one_thread,
        )
        self.relay = self._relay_of()
        self._know(self._core.status.members)

    def _relay_of(self) -> GrpcRelay | None:
        if (relayed := self._rules.relayed) is None:
            return None
        from appliance.group.relay.relay import GrpcRelay  # few boxes have the port of gRPC open

        return GrpcRelay(relayed, self.leadership, self.member, self.links.connected, self._rules.consensus.scale)

    def _fetcher(self) -> Fetcher:
        rules, core, links = self._rules, self._core, self.links
        leader, told = lambda: core.status.leader, lambda: core.told_committed

        def tell(member: str, frame: bytes) -> None:
            if self._shipping.segments.knows(member):
                links.send(member, frame)

        return Fetcher(rules.group, rules.member, links.connected, tell, leader, told)

    # ---- what the store tells

    def _told_later(self) -> bool:
        """Whether the core may hear of its log later: nobody waits for what it says, and it has heard all that came."""
        return self._told.waits and self._events.rests and not self._shipping.copied.waits

    def _synced_to(self, log_offset: int) -> None:
        if self._told_later():
            self._told.commit(log_offset)
        else:
            self._tell(self._core.synced, log_offset)

    def _writing(self, writes: Sequence[Write], end: int) -> None:
        self._shipping.writing(writes, end)
        if self._told_later():
            self._told.writing(end)
            self._shipping.pace.appended(end)
        else:
            self._tell(self._told.appended, end)

    def ship(self) -> None:
        """Have followers sent what there is."""
        self._told.tell(self._clocks.now_s())
        self.links.wake()

    def _tell(self, tell: Callable[[float, int], Effects], log_offset: int) -> None:
        """Tell the core of a log offset: at once, or when it listens, unless the log has been cut until then."""
        if self._done_at_once(DriverEvent(lambda now_s: tell(now_s, log_offset))):
            return
        truncations = self._store.truncations

        def run(now_s: float) -> Effects:
            return tell(now_s, log_offset) if self._store.truncations == truncations else Effects()

        self._events.add(DriverEvent(run))

    # ---- events

    def _done_at_once(self, event: DriverEvent) -> bool:
        """Let the core hear an event right now, if it rests: a turn of a task for each batch costs more than the rest.

        What comes of it and needs the disk or the loop is done first in the next turn.
        """
        if not self._events.rests or self._store.failure is not None or self._store.end < self._told.end:
            return False
        now_s, leads = self._clocks.now_s(), self._core.status.role == LEADER
        effects = self._hear(event, now_s)
        if (
            needs_turn(effects)
            or self._core.alone != self._store.lineage.is_alone
            or (effects.accepted is not None and self._begins_log(event))
        ):
            self._events.add_first(event._replace(run=lambda _: effects))
            return True
        end = self._copy.append(effects.accepted, event.data) if effects.accepted is not None else None
        self._tell_others(effects)
        if end is not None:
            self._appended(end)
        if leads:
            self._shipping.look()
        if now_s - self._missing.noted_s > OFTEN_S:
            self._look(now_s)
        return True

    def _hear(self, event: DriverEvent, now_s: float) -> Effects:
        self._told.tell(now_s)
        return event.run(now_s)

    async def run(self) -> None:
        """Take part until cancelled. Raises CutAtStart, CopyGivenUp, LogShrunk, OSError: the process ends."""
        self._follow("this box has just started")
        if self._store.lineage.is_alone:  # nobody ended it: all that is here may have been acknowledged
            await trio.to_thread.run_sync(self._store.lineage.end_alone, self._store.end, limiter=self._one_thread)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.links.run)
            nursery.start_soon(self._shipping.pace.run)
            if self._rules.accounts is not None:
                nursery.start_soon(self._rules.accounts.run, self._linked_boxes)
            nursery.start_soon(self._look_after, self._copy.run)
            nursery.start_soon(self._look_after, self._segments.run)
            nursery.start_soon(self.orders.grant)
            await self._act()

    def _linked_boxes(self) -> list[tuple[str, Link]]:
        """Return the other boxes that are linked, while this one leads."""
        status = self._core.status
        names = (*status.members.boxes, *status.members.learners) if status.role == LEADER else ()
        return [(name, link) for name in names if (link := self.links.link(name)) is not None]

    async def _look_after(self, run: Callable[[], Awaitable[None]]) -> None:
        try:
            await run()
        except* (CopyFailed, LogFailed) as group:
            self._fail(str(first_of(group)))

    def _fail(self, reason: str) -> None:
        if not self._failed:
            self._failed = True
            log.error("event=member_failed reason=%r", reason)
            self._events.add(DriverEvent(lambda now_s: self._core.disk_failed(now_s, reason)))

    async def _act(self) -> None:
        first = self._store.first
        while True:
            event = await self._events.next(self._rest_s()) or DriverEvent(self._tick)
            if self._store.first != first:
                first = self._store.first
                self._core.retained(first)
            if self._store.failure is not None:
                self._fail(self._store.failure)
            elif self._store.end < self._told.end:
                text = f"the disk took the log up to {self._store.end}, not to {self._told.end}"
                raise LogShrunk(f"{text}: the next start goes on there")
            await self._carry_out(self._hear(event, self._clocks.now_s()), event)
            self._shipping.copied.look()
            self._publish()
            self._look(self._clocks.now_s())

    def _look(self, now_s: float) -> None:
        """Note what the log has now; as leader, tell followers now and then what they have not of it."""
        store, self._missing.noted_s, far_behind = self._store, now_s, False
        self._core.stand_back(self._wanted.stands_back())
        self._missing.ages.note(max(store.end, self._core.told_committed), now_s)
        if self._core.status.role == LEADER:
            self._missing.led_s = now_s
            self._missing.note(store.committed, messages_of_clients(store))
            for member, frame in self._missing.frames(now_s, self._core.progress):
                self.links.send(member, frame)
            if to := self._wanted.now(now_s):
                self._wishes.add(Wish(LEAD, to, own=True))
        elif (link := self.links.link(self._core.status.leader)) is not None:
            self._copy.news.tell(link, self._copy.cuts)
            self._copy.news.refusals.tell(link, store.full, self._copy.refused or self._core.status.trouble)
            far_behind = self._core.told_committed - store.committed > FAR_BEHIND
        store.pause_index(far_behind)

    def _rest_s(self) -> float:
        return min(LOOK_S, max(0.0, self._core.next_tick_s() - self._clocks.now_s()))

    def _tick(self, now_s: float) -> Effects:
        return self._core.tick(now_s, self._clocks.random())

    async def _carry_out(self, effects: Effects, event: DriverEvent) -> None:
        """Do what the core wants, in its order. Raises OSError."""
        await self._note_alone()
        if effects.hard_state is not None:
            await trio.to_thread.run_sync(self._files.save_hard, effects.hard_state, limiter=self._one_thread)
        if effects.table is not None:
            await trio.to_thread.run_sync(self._files.save_table, effects.table, limiter=self._one_thread)
        if effects.cut is not None:
            await self._cut(effects.cut)
        if effects.accepted is not None:
            if self._begins_log(event):
                await trio.to_thread.run_sync(
                    self._store.lineage.adopt, self._heard.epochs[event.sender], limiter=self._one_thread
                )
            await self._accept(effects.accepted, event)
        if effects.begin_term is not None:
            await self._segments.read_all()
            self._lead(effects.begin_term)
        elif effects.members is not None:
            self._append_record(self._core.status.term, effects.members)
        for member, message in effects.send:
            if (match := cuts_something(message)) is not None:
                point = await trio.to_thread.run_sync(point_of, self._store, match.start, limiter=self._one_thread)
                self.links.send(member, encode_point(point))
        self._tell_others(effects)
        if effects.status is not None:
            self._know(effects.status.members)
        if effects.status is not None and effects.status.role != LEADER:
            if effects.status.leader:
                self._missing.clear()
            self._follow(f"{effects.status.leader or 'nobody'} leads this group")
        if self._shipping.has_more():
            self.links.wake()

    async def _accept(self, append: Append, event: DriverEvent) -> None:
        """Have what was accepted in the log."""
        try:
            fetched = event.fetched
            end = await self._segments.adopt(append) if fetched else self._copy.append(append, event.data)
        except (LogFailed, ValueError) as exc:
            self._fail(f"append at {append.start}: {exc}")
            return
        if end is not None:
            self._appended(end)
            if event.fetched:
                self._tell(self._core.synced, end)

    def _tell_others(self, effects: Effects) -> None:
        for member, message in effects.send:
            self.links.send(member, encode_message(message))
        if effects.committed is not None:
            self._store.commit(effects.committed)

    def _begins_log(self, event: DriverEvent) -> bool:
        """Return whether the sender's records are the first of this log, and say whose it is."""
        store, epochs = self._store, list(self._heard.epochs.get(event.sender, ()))
        return store.end == store.first and bool(epochs) and epochs != store.lineage.epochs

    def _appended(self, end: int) -> None:
        """This log ends here now: the core hears it before anything else."""
        appended = DriverEvent(partial(self._told.appended, log_offset=end))
        if not self._done_at_once(appended):
            self._events.add_first(appended)

    async def _note_alone(self) -> None:
        """Have it in the lineage before anything is acknowledged by this disk alone, and when that has ended."""
        lineage, alone = self._store.lineage, self._core.alone
        if alone == lineage.is_alone:
            return
        committed, at_ms = self._store.committed, self._clocks.wall_ms()
        if alone:
            log.warning("event=acknowledges_alone start=%d", committed)
            await trio.to_thread.run_sync(lineage.begin_alone, committed, at_ms, limiter=self._one_thread)
        else:
            log.info("event=acknowledges_with_others end=%d", committed)
            await trio.to_thread.run_sync(lineage.end_alone, committed, limiter=self._one_thread)

    async def _cut(self, cut: LogCut) -> None:
        try:
            await self._copy.cut(cut)
        except (LogFailed, ValueError, CopyFailed) as exc:
            self._fail(f"cut at {cut.log_offset}: {exc}")
            return
        self._told.cut(cut.log_offset)
        self._events.add_first(DriverEvent(lambda now_s: self._core.cut_done(now_s, cut.log_offset)))

    def _know(self, members: Members) -> None:
        """Link with who belongs to the group now, with nobody else."""
        self._rules.directory.update(members)
        peers = self._rules.directory.peers()
        self.links.set_peers(peers)
        if self._rules.relayed is not None:
            self._rules.relayed.know(peers)

    def _follow(self, reason: str) -> None:
        """Take no messages of this box's own."""
        self._store.only_copies(reason)
        self._shipping.copied.fail(f"{NOT_COPIED}: {reason}")
        self._store.share(self._synced_to)
        self._shipping.feed.clear()
        self._shipping.segments.clear()
        self._events.add_first(DriverEvent(partial(self._told.appended, log_offset=self._store.end)))

    def _lead(self, begin: BeginTerm) -> None:
        """Append the term's first record; from now on followers are sent what is appended."""
        if self._store.end != begin.log_offset:
            self._fail(f"term {begin.term} is to begin at {begin.log_offset}, the log ends at {self._store.end}")
            return
        self._missing.clear()
        note_cuts(self._store.lineage, self.member, self._copy.cuts)
        self._store.only_copies(None)
        self._store.share(self._synced_to, self._writing)
        end = self._append_record(begin.term, begin.members)
        if end is not None:
            self._appended(end)

    def _append_record(self, term: int, members: Members) -> int | None:
        """Append a record that names the members; return the log offset behind it, None when it cannot be had."""
        lists = {name: list(names) for name, names in members._asdict().items()}
        body = encode_map({"term": term, "leader": self.member, "run": self._store.lineage.run, **lists})
        message = Message(RAFT_TOPIC, 0, body, b"", 0, 0, self._clocks.wall_ms(), self._rules.host)
        try:
            return self._store.put(message, own=True).end
        except StorageError as exc:
            self._fail(f"the record of term {term} cannot be appended: {exc}")
            return None

    def _publish(self) -> None:
        status = self._core.status
        role = LEARNER if self.member in status.members.learners else status.role
        ready = status.ready and not self.leadership.parting and self._core.lease_held(self._clocks.now_s())
        address, lacks = self._rules.directory.client_address(status.leader), ready and self.view.copies().missing
        self.leadership.set(LeadershipState(role, status.term, status.leader, address, ready, lacks))

    def tell_committed(self) -> None:
        """As leader, tell the others at once what is committed."""
        self._events.add(DriverEvent(self._core.tell_committed))
