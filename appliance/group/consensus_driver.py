"""Runs the consensus core of one member over its store, its files and its links.

One task feeds the core with one event after the other and carries out what it wants before the next: promises are on
disk before a message leaves. The store's own thread syncs meanwhile, and links send bytes of the log meanwhile.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import trio

from appliance.broker.intake import NOT_COPIED
from appliance.group.copies.common_point import cuts_something, decode_point, encode_point, point_of
from appliance.group.copies.cut_news import decode_cuts, note_cuts
from appliance.group.copies.feed import Feed
from appliance.group.copies.lag import LogAges
from appliance.group.copies.log_copy import CopyFailed, LogCopy, LogShrunk
from appliance.group.copies.missing import MissingMessages, decode_missing, messages_of_clients
from appliance.group.copies.shipping import Shipping
from appliance.group.copies.topic_policies import CopiedMark
from appliance.group.driver import Divergence, GroupRefused, MemberProgress
from appliance.group.event_queue import DriverEvent, EventQueue, needs_turn
from appliance.group.leadership import LEADER, LEARNER, Leadership, LeadershipState
from appliance.group.links.frames import (
    ACCOUNTS,
    COMMON_POINT,
    COPY_REFUSES,
    CUTS,
    HAND_OVER,
    LEAVE,
    MISSING,
    MOST_TEXT,
    WISH_REFUSED,
    LinkFrame,
    LinkRefused,
    MemberHello,
    encode_frame,
    typed,
)
from appliance.group.links.greeting import hello_of, refusal_of
from appliance.group.links.link import Link
from appliance.group.links.links import MemberLinks
from appliance.group.links.message_frames import decode_message, encode_message
from appliance.group.member_files import MemberFiles
from appliance.group.member_parts import DriverClocks, MemberLog, MemberRules
from appliance.group.member_view import seen_members, what_is_lost, why_not_copied
from appliance.group.membership.member_changes import removed
from appliance.group.membership.membership_orders import MembershipOrders
from appliance.replication.slaves import SlavesSeen
from storage_driver.consensus.core import Core
from storage_driver.consensus.effects import BeginTerm, Effects, LogCut, MemberStatus
from storage_driver.consensus.members import Members
from storage_driver.consensus.messages import Append, Synced
from storage_driver.consensus.rules import REFUSAL_S
from storage_driver.errors import ConsensusRefused, LogFailed, StorageError
from storage_driver.log.lineage import AloneRange
from storage_driver.log.segment import Write
from storage_driver.record import Message
from uplink_spark.wire.cbor import encode_map

log = logging.getLogger("appliance.group")
RAFT_TOPIC: Final = "RBX_RAFT"
OFTEN_S: Final = 0.02  # between two notes of what copies lack
LOOK_S: Final = 0.25  # how old a lease and marks of the store may be when they are looked at
PROMOTE_S: Final = 10.0
PARTING_S: Final = 4.0  # for the broker's end, its tables in the log
PROMISE_S: Final = REFUSAL_S + 2
FAR_BEHIND: Final = 32 << 20  # bytes: twice what may be on its way
ROUND_S: Final = 1.0  # of an election by hand


class ConsensusDriver:
    """One member of a group. `run` is its life; orders of people are carried out while it runs."""

    def __init__(
        self,
        rules: MemberRules,
        core: Core,
        store: MemberLog,
        *,
        files: MemberFiles,
        leadership: Leadership,
        clocks: DriverClocks,
        session: bytes,
        copy: LogCopy,
        make_links: "Callable[[ConsensusDriver], MemberLinks]",
    ) -> None:
        self.member, self.leadership = rules.member, leadership
        self._rules, self._core, self._store, self._files = rules, core, store, files
        self._clocks, self._session = clocks, session
        feed = Feed(partial(store.read_log, synced=True), segment_bytes=store.segment_bytes, synced=self._synced)
        self._shipping = Shipping(core, feed, ship=lambda: self.links.wake(), rate=rules.catch_up_bytes_s)
        self._copy, self._missing = copy, MissingMessages(LogAges())
        self._events = EventQueue()
        self._epochs: dict[str, Sequence[tuple[int, int]]] = {}  # of the logs of linked members
        self._one_thread = trio.CapacityLimiter(1)
        self._told_end = store.end  # to the core
        self._failed, self._answer = False, ""  # whether the disk failed; why the leader does not hand over
        self.links = make_links(self)
        self._know(core.status.members)

    def _synced(self) -> int:
        return self._store.synced

    # ---- what links ask (LinkUser)

    def hello(self) -> MemberHello:
        """Return the greeting of this member."""
        return hello_of(self._rules, self._store, self._session)

    def check(self, hello: MemberHello) -> LinkRefused | None:
        """Return why a member's log cannot be one with this one."""
        return refusal_of(self.hello(), hello)

    def begun(self, link: Link, hello: MemberHello) -> None:
        """A link is open."""
        self._epochs[link.member] = hello.epochs
        link.pump(partial(self._shipping.next_frame, link.member))
        self._events.add(DriverEvent(partial(self._connected, link.member)))

    def _connected(self, member: str, now_s: float) -> Effects:
        return self._core.connected(now_s, member)

    def ended(self, link: Link) -> None:
        """A link is closed; what was on its way is lost."""
        self._copy.news.refusals.forget(link.member)

    async def take(self, link: Link, frame: LinkFrame) -> None:
        """Take a frame. Raises ProtocolError."""
        if frame.kind in (HAND_OVER, LEAVE):
            await self._events.wait_room()
            self._events.add(DriverEvent(partial(self._wish, kind=frame.kind, member=link.member)))
            return
        if frame.kind == ACCOUNTS:
            if self._rules.accounts is not None and link.member == self._core.status.leader:
                await self._rules.accounts.take(frame.data)
            return
        if frame.kind == WISH_REFUSED:
            self._answer = typed("REFUSED", lambda: frame.fields("REFUSED").text("text"))[:MOST_TEXT]
            return
        if frame.kind in (MISSING, COMMON_POINT):
            self._told_by(link.member, frame)
            return
        if frame.kind == CUTS:
            if (cuts := decode_cuts(frame)) and self._core.status.role == LEADER:
                note_cuts(self._store.lineage, link.member, cuts)
            return
        if frame.kind == COPY_REFUSES:
            self._copy.news.refusals.heard(link.member, frame)
            return
        message = decode_message(frame)
        event = DriverEvent(lambda now_s: self._core.step(now_s, link.member, message), frame.data, link.member)
        if isinstance(message, (Append, Synced)) and self._done_at_once(event):
            return
        await self._events.wait_room()
        self._events.add(event)

    def _told_by(self, member: str, frame: LinkFrame) -> None:
        """Take what a leader says beside the core's messages. Raises ProtocolError."""
        if member == self._core.status.leader:
            if frame.kind == MISSING:
                self._missing.heard(decode_missing(frame))
            else:
                self._copy.common = decode_point(frame)

    # ---- what the store tells

    def _synced_to(self, log_offset: int) -> None:
        self._tell(self._core.synced, log_offset)

    def _writing(self, writes: Sequence[Write], end: int) -> None:
        self._shipping.feed.batch(writes, end)
        self._tell(self._tell_appended, end)

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
        if not self._events.rests or self._store.failure is not None or self._store.end < self._told_end:
            return False
        now_s, leads = self._clocks.now_s(), self._core.status.role == LEADER
        effects = event.run(now_s)
        if (
            needs_turn(effects)
            or self._core.alone != self._store.lineage.is_alone
            or (effects.accepted is not None and self._begins_log(event))
        ):
            self._events.add_first(DriverEvent(lambda _: effects, event.data, event.sender))
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
            nursery.start_soon(self._look_after_copy)
            await self._act()

    def _linked_boxes(self) -> list[tuple[str, Link]]:
        """Return the other boxes that are linked, while this one leads."""
        status = self._core.status
        names = (*status.members.boxes, *status.members.learners) if status.role == LEADER else ()
        return [(name, link) for name in names if (link := self.links.link(name)) is not None]

    async def _look_after_copy(self) -> None:
        try:
            await self._copy.run()
        except (CopyFailed, LogFailed) as exc:
            self._fail(str(exc))

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
            elif self._store.end < self._told_end:
                text = f"the disk took the log up to {self._store.end}, not to {self._told_end}"
                raise LogShrunk(f"{text}: the next start goes on there")
            await self._carry_out(event.run(self._clocks.now_s()), event)
            self.copied.look()
            self._publish(self._core.status)
            self._look(self._clocks.now_s())

    def _look(self, now_s: float) -> None:
        """Note what the log has now; as leader, tell followers now and then what they have not of it."""
        store, self._missing.noted_s, far_behind = self._store, now_s, False
        self._missing.ages.note(max(store.end, self._core.told_committed), now_s)
        if self._core.status.role == LEADER:
            self._missing.note(store.committed, messages_of_clients(store))
            for member, frame in self._missing.frames(now_s, self._core.progress):
                self.links.send(member, frame)
        elif (link := self.links.link(self._core.status.leader)) is not None:
            self._copy.news.tell(link, self._copy.cuts)
            self._copy.news.refusals.tell(link, store.full, self._copy.refused)
            far_behind = self._core.told_committed - store.end > FAR_BEHIND
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
                    self._store.lineage.adopt, self._epochs[event.sender], limiter=self._one_thread
                )
            if (end := self._copy.append(effects.accepted, event.data)) is not None:
                self._appended(end)
        if effects.begin_term is not None:
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

    def _tell_others(self, effects: Effects) -> None:
        for member, message in effects.send:
            self.links.send(member, encode_message(message))
        if effects.committed is not None:
            self._store.commit(effects.committed)

    def _begins_log(self, event: DriverEvent) -> bool:
        """Return whether the sender's records are the first of this log, and say whose it is."""
        store, epochs = self._store, self._epochs.get(event.sender)
        return store.end == store.first and bool(epochs) and list(epochs or ()) != store.lineage.epochs

    def _appended(self, end: int) -> None:
        """This log ends here now: the core hears it before anything else."""
        appended = DriverEvent(partial(self._tell_appended, log_offset=end))
        if not self._done_at_once(appended):
            self._events.add_first(appended)

    def _tell_appended(self, now_s: float, log_offset: int) -> Effects:
        """Tell the core where the log ends now, unless it knows of more."""
        if log_offset <= self._told_end:
            return Effects()
        self._told_end = log_offset
        return self._core.appended(now_s, log_offset)

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
        self._told_end = cut.log_offset
        self._events.add_first(DriverEvent(lambda now_s: self._core.cut_done(now_s, cut.log_offset)))

    def _know(self, members: Members) -> None:
        """Link with who belongs to the group now, with nobody else."""
        self._rules.directory.update(members)
        self.links.set_peers(self._rules.directory.peers())

    def _follow(self, reason: str) -> None:
        """Take no messages of this box's own."""
        self._store.only_copies(reason)
        self.copied.fail(f"{NOT_COPIED}: {reason}")
        self._store.share(self._synced_to)
        self._shipping.feed.clear()
        self._events.add_first(DriverEvent(partial(self._tell_appended, log_offset=self._store.end)))

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

    def _publish(self, status: MemberStatus) -> None:
        role = LEARNER if self.member in status.members.learners else status.role
        ready = status.ready and not self.leadership.parting and self._core.lease_held(self._clocks.now_s())
        address = self._rules.directory.client_address(status.leader)
        self.leadership.set(LeadershipState(role, status.term, status.leader, address, ready))

    # ---- orders

    async def _order(self, call: Callable[[float], Effects]) -> None:
        """Give the core an order. Raises GroupRefused."""
        done, refused = trio.Event(), list[str]()

        def run(now_s: float) -> Effects:
            done.set()
            try:
                return call(now_s)
            except ConsensusRefused as exc:
                refused.append(str(exc))
                return Effects()

        self._events.add(DriverEvent(run))
        await done.wait()
        if refused:
            raise GroupRefused(refused[0])

    async def promote(self, *, accept_loss: bool = False) -> None:
        """Become the leader: by the other's hand-over if it is there, alone only with `accept_loss`."""
        status, self._answer = self._core.status, ""
        if status.leader not in ("", self.member) and self.links.link(status.leader) is not None and not accept_loss:
            self.links.send(status.leader, encode_frame(HAND_OVER, {}))
            await self._wait_lead(PROMOTE_S)
        elif status.role != LEADER:
            await self._campaign(forced=accept_loss)
        if self.leadership.current.role != LEADER:
            lost = await self._missing.lost(self._store, limiter=self._one_thread)
            text = self._answer or (
                "the other members did not vote for it: bring them back, or take over alone with --accept-loss, "
                + what_is_lost(self._core, self._store.synced, self._clocks.now_s(), lost)
            )
            raise GroupRefused(f"{self.member} does not lead: {text}", lost_messages=lost)

    async def _wait_lead(self, most_s: float) -> None:
        with trio.move_on_after(most_s):
            await self.leadership.wait_for(lambda state: state.role == LEADER or bool(self._answer))

    async def _campaign(self, *, forced: bool) -> None:
        """Hold elections until one is won, or what was promised to a leader that is gone has run out everywhere."""
        until = trio.current_time() + PROMISE_S * self._rules.scale
        while self.leadership.current.role != LEADER and trio.current_time() < until:
            try:
                await self._order(partial(self._core.campaign, forced=forced))
            except GroupRefused as exc:
                self._answer = str(exc)
                await trio.sleep(LOOK_S)
            else:
                self._answer = ""
                await self._wait_lead(ROUND_S * self._rules.scale)

    def _wish(self, now_s: float, kind: int, member: str) -> Effects:
        try:
            if kind == LEAVE:
                return self._core.propose_members(now_s, removed(self._core.status.members, member))
            return self._core.transfer(now_s, member)
        except ConsensusRefused as exc:
            self.links.send(member, encode_frame(WISH_REFUSED, {"text": str(exc)[:MOST_TEXT]}))
            return Effects()

    async def transfer(self, to: str) -> None:
        """Hand the leadership to a member; it has everything first. Requests wait until it leads."""
        self._may_transfer(to)
        self._part(True)
        try:
            with trio.move_on_after(PARTING_S):
                await self.leadership.wait_broker_ended()
            await self._order(partial(self._tell_appended, log_offset=self._store.end))
            await self._order(partial(self._core.transfer, to=to))
            with trio.move_on_after(PROMOTE_S):
                await self.leadership.wait_for(lambda state: state.leader == to)
        finally:
            self._part(False)
        if self.leadership.current.leader != to:
            raise GroupRefused(f"{to} did not take over: {self.leadership.current.leader or 'nobody'} leads")

    def _may_transfer(self, to: str) -> None:
        if self.leadership.parting:
            raise GroupRefused("a hand-over is under way: see `rocketbox group status`")
        if (refuses := self._copy.news.refusals.of(to)) and self._store.end > self._synced_of(to):
            raise GroupRefused(f"{to} {refuses}: it lacks what this box has")
        try:
            self._core.check_transfer(self._clocks.now_s(), to)
        except ConsensusRefused as exc:
            raise GroupRefused(str(exc)) from exc

    def _synced_of(self, member: str) -> int:
        return self._shipping.synced().get(member, 0)

    def _part(self, parting: bool) -> None:
        self.leadership.parting = parting
        self._publish(self._core.status)

    async def demote(self) -> None:
        """Stop leading, whoever takes over."""
        await self._order(self._core.resign)

    async def solo(self) -> None:
        """As leader, acknowledge alone from here on, until the other copy is level again."""
        await self._order(self._core.solo)

    def _changes(self) -> MembershipOrders:
        return MembershipOrders(self._core, self._order, self._rules.directory, self.leadership)

    async def join(self, member: str) -> str:
        """As leader, let a member in, one step; return what that waits for, "" when it is done."""
        return await self._changes().join(member)

    async def remove(self, member: str) -> None:
        """As leader, take another member out of the group."""
        await self._changes().remove(member)

    async def hand_over(self) -> None:
        """Let another box lead if this one does."""
        await self._changes().hand_over(self.transfer)

    async def leave(self) -> None:
        """Ask the leader to take this member out; who leads hands over first."""
        await self.hand_over()
        leader = self._core.status.leader
        with trio.move_on_after(PROMOTE_S):
            while self.links.link(leader) is not None:
                self._answer = ""
                self.links.send(leader, encode_frame(LEAVE, {}))
                await trio.sleep(LOOK_S)
        if not leader or self.links.link(leader) is not None:
            raise GroupRefused(self._answer or f"{leader or 'a leader'} did not answer: see `rocketbox group status`")

    async def resync(self, *, discard: bool = False) -> None:
        """As follower, end this process; its next start gives the copy up and takes the leader's anew."""
        status = self._core.status
        if status.role == LEADER or self.links.link(status.leader) is None:
            text = "this box leads" if status.role == LEADER else "no leader is connected"
            raise GroupRefused(f"{text}: a copy is given up only for that of a leader that is there")
        if self.member in status.members.witnesses:
            raise GroupRefused("a witness has no copy")
        try:
            await self._copy.give_up(status.members, discard=discard)
        except OSError as exc:
            raise GroupRefused(f"nothing was changed: {exc.strerror}; --discard deletes this copy first") from exc

    # ---- what is seen

    def members(self) -> tuple[MemberProgress, ...]:
        """Return every member as this one knows it."""
        now_s = self._clocks.now_s()
        return seen_members(
            *(self._rules, self._core, self._store, self.links),
            refuses=self._copy.news.refusals.of,
            age_s=partial(self._missing.ages.age_s, now_s),
        )

    def tell_committed(self) -> None:
        """As leader, tell the others at once what is committed."""
        self._events.add(DriverEvent(self._core.tell_committed))

    def divergence(self) -> Divergence | None:
        """Return the last cut of this log since the start."""
        return self._copy.divergence

    @property
    def copied(self) -> CopiedMark:
        """How far two disks have the log."""
        return self._shipping.copied

    def leads(self, term: int) -> bool:
        """Return whether this member leads in a term at this moment, and nobody else can have been elected since."""
        return self._core.status.term == term and self._core.lease_held(self._clocks.now_s())

    def alone(self) -> Sequence[AloneRange]:
        """Return which ranges this disk has acknowledged alone."""
        return self._store.lineage.alone

    def copy_there(self) -> bool:
        """Return whether another box is linked, or is not to be waited for."""
        boxes = self._core.status.members.boxes
        return self._core.alone or any(self.links.link(name) is not None for name in boxes if name != self.member)

    def refused(self) -> dict[str, int]:
        """Return how many connections to this member's port were refused or have ended, by reason."""
        return {**self.links.statistics().refused, **self.links.at_port}

    def slaves(self) -> SlavesSeen | None:
        """Return Apache's slaves that copy from this member, None where it serves none."""
        return self._rules.slaves.statistics() if self._rules.slaves is not None else None

    def why_not_copied(self) -> str:
        """Return why what this member has appended is not on enough disks."""
        return why_not_copied(self._core.status, self.members(), self.member)
