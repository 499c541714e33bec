"""What people want of a member: each order is an event of its driver, then waits for what that brings.

Also what other members ask of it while it leads: to lead themselves, to leave.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import trio

from appliance.group.driver import GroupRefused, must_lead
from appliance.group.event_queue import DriverEvent
from appliance.group.leadership import LEADER
from appliance.group.links.frames import HAND_OVER, MOST_TEXT, WISH_REFUSED, encode_frame
from appliance.group.links.frames import LEAVE as LEAVE_FRAME
from appliance.group.links.links import MemberLinks
from appliance.group.member_parts import DriverParts
from appliance.group.member_view import what_is_lost
from appliance.group.membership.member_changes import removed
from appliance.group.membership.membership_orders import MembershipOrders
from appliance.group.wishes import LEAVE, Wish
from storage_driver.consensus.effects import Effects
from storage_driver.consensus.rules import REFUSAL_S
from storage_driver.errors import ConsensusRefused

log = logging.getLogger("appliance.group")
LOOK_S: Final = 0.25
AGAIN_S: Final = 0.02
BEGUN_S: Final = 1.0
PROMOTE_S: Final = 10.0
PARTING_S: Final = 4.0  # for the broker's end, its tables in the log
PROMISE_S: Final = REFUSAL_S + 2
ROUND_S: Final = 1.0  # of an election by hand


class MemberOrders:
    """The orders of one member; each returns when it is done and raises GroupRefused."""

    def __init__(
        self,
        parts: DriverParts,
        links: MemberLinks,
        *,
        tell_end: Callable[[float], Effects],
        publish: Callable[[], None],
        limiter: trio.CapacityLimiter,
    ) -> None:
        """tell_end: tells the core where the log ends; publish: renews the leadership's state."""
        self._rules, self._core, self._store, self._leadership = parts.rules, parts.core, parts.store, parts.leadership
        self._events, self._wishes, self._clocks = parts.events, parts.wishes, parts.clocks
        self._copy, self._missing, self._shipping = parts.copy, parts.missing, parts.shipping
        self._links, self._tell_end, self._publish, self._limiter = links, tell_end, publish, limiter
        self._changes = MembershipOrders(
            parts.core, self._order, parts.rules.directory, parts.leadership, linked=links.link
        )

    async def grant(self) -> None:
        """As leader, do what members wish, one thing after the other, until cancelled."""
        while True:
            wish = await self._wishes.next()
            try:
                await self._grant(wish)
            except GroupRefused as exc:
                log.info("event=wish_refused wish=%s member=%s reason=%r", wish.kind, wish.member, str(exc))
                if not wish.own:
                    self._links.send(wish.member, encode_frame(WISH_REFUSED, {"text": str(exc)[:MOST_TEXT]}))

    async def _grant(self, wish: Wish) -> None:
        if wish.kind == LEAVE:
            members = removed(self._core.status.members, wish.member)
            await self._order(partial(self._core.propose_members, members=members))
        else:
            await self.transfer(wish.member)

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
        status, self._wishes.answer = self._core.status, ""
        if status.leader not in ("", self._rules.member) and self._links.link(status.leader) and not accept_loss:
            self._links.send(status.leader, encode_frame(HAND_OVER, {}))
            await self._wait_lead(PARTING_S + PROMOTE_S)
        elif status.role != LEADER:
            await self._campaign(forced=accept_loss)
        if self._leadership.current.role != LEADER:
            lost = await self._missing.lost(self._store, limiter=self._limiter)
            text = self._wishes.answer or (
                "the other members did not vote for it: bring them back, or take over alone with --accept-loss, "
                + what_is_lost(self._core, self._store.synced, self._clocks.now_s(), lost, self._missing.led_s)
            )
            raise GroupRefused(f"{self._rules.member} does not lead: {text}", lost_messages=lost)

    async def _wait_lead(self, most_s: float) -> None:
        with trio.move_on_after(most_s):
            await self._leadership.wait_for(lambda state: state.role == LEADER or bool(self._wishes.answer))

    async def _campaign(self, *, forced: bool) -> None:
        """Hold elections until one is won, or what was promised to a leader that is gone has run out everywhere."""
        until = trio.current_time() + PROMISE_S * self._rules.consensus.scale
        while self._leadership.current.role != LEADER and trio.current_time() < until:
            try:
                await self._order(partial(self._core.campaign, forced=forced))
            except GroupRefused as exc:
                self._wishes.answer = str(exc)
                await trio.sleep(LOOK_S)
            else:
                self._wishes.answer = ""
                await self._wait_lead(ROUND_S * self._rules.consensus.scale)

    async def transfer(self, to: str) -> None:
        """Hand the leadership to a member; it has everything first. Requests wait until it leads."""
        self._may_part()
        self._may_lead(to)
        async with self._parted():
            await self._transfer(to)

    async def hand_over(self) -> str:
        """Let another box lead if this one does; return who leads, "" if it did not."""
        if self._core.status.role != LEADER:
            return ""
        self._may_part()
        async with self._parted():
            reason = "there is no other box that could lead"
            for to in self._successors():
                try:
                    await self._wait_begun()
                    self._may_lead(to)
                    await self._transfer(to)
                except GroupRefused as exc:
                    reason = str(exc)
                if self._core.status.role != LEADER:
                    return await self._next_leader()
        raise GroupRefused(reason)

    async def _next_leader(self) -> str:
        """Return who leads now. Raises GroupRefused: whoever was about to has gone as well."""
        with trio.move_on_after(PROMOTE_S):
            return (await self._leadership.wait_for(lambda state: state.leader != "")).leader
        raise GroupRefused(f"this box leads no longer, and nobody does after {PROMOTE_S:g} s: see the other boxes")

    def _may_lead(self, to: str) -> None:
        """Raise GroupRefused where a member cannot take over now."""
        if (refuses := self._copy.news.refusals.of(to)) and self._store.end > self._shipping.synced().get(to, 0):
            raise GroupRefused(f"{to} {refuses}: it lacks what this box has")
        try:
            self._core.check_transfer(self._clocks.now_s(), to)
        except ConsensusRefused as exc:
            raise GroupRefused(str(exc)) from exc

    def _successors(self) -> list[str]:
        """Return the other boxes that vote: those that are linked and take records first, of these who has most."""
        boxes = [each for each in self._core.progress() if each.member in self._core.status.members.boxes]
        refuses = self._copy.news.refusals.of
        boxes.sort(key=lambda each: (self._links.link(each.member) is None, refuses(each.member) != "", -each.synced))
        return [each.member for each in boxes]

    def _may_part(self) -> None:
        must_lead(self._leadership)
        if self._leadership.parting:
            raise GroupRefused("a hand-over is under way: see `rocketbox group status`")

    @asynccontextmanager
    async def _parted(self) -> AsyncIterator[None]:
        """End the broker first, with what it has in the log; it begins again where this box leads on."""
        self._part(True)
        try:
            with trio.move_on_after(PARTING_S):
                await self._leadership.wait_broker_ended()
            yield
        finally:
            self._part(False)

    def _part(self, parting: bool) -> None:
        self._leadership.parting = parting
        self._publish()

    async def _wait_begun(self) -> None:
        """Return once a leader that was just elected again may hand over."""
        with trio.move_on_after(BEGUN_S):
            while self._core.status.role == LEADER and not self._core.status.ready:  # noqa: ASYNC110 no event of it
                await trio.sleep(AGAIN_S)

    async def _transfer(self, to: str) -> None:
        await self._order(self._tell_end)
        await self._order(partial(self._core.transfer, to=to))
        with trio.move_on_after(PROMOTE_S):
            while self._leadership.current.leader != to and not self._given_up(to):  # noqa: ASYNC110 the same
                await trio.sleep(AGAIN_S)
        if self._leadership.current.leader != to:
            raise GroupRefused(f"{to} did not take over: {self._leadership.current.leader or 'nobody'} leads")

    def _given_up(self, to: str) -> bool:
        status = self._core.status
        return status.role == LEADER and status.transferring_to != to

    async def demote(self) -> None:
        """Stop leading, whoever takes over."""
        must_lead(self._leadership)
        await self._order(self._core.resign)

    async def solo(self) -> None:
        """As leader, acknowledge alone from here on, until the other copy is level again."""
        must_lead(self._leadership)
        await self._order(self._core.solo)
        await self._order(lambda now_s: Effects())  # the first is carried out: the range has begun

    async def join(self, member: str) -> str:
        """As leader, let a member in, one step; return what that waits for, "" when it is done."""
        return await self._changes.join(member)

    async def remove(self, member: str) -> None:
        """As leader, take another member out of the group."""
        await self._changes.remove(member)

    async def leave(self) -> None:
        """Ask the leader to take this member out; who leads hands over first."""
        await self.hand_over()
        leader = self._core.status.leader
        with trio.move_on_after(PROMOTE_S):
            while self._links.link(leader) is not None:
                self._wishes.answer = ""
                self._links.send(leader, encode_frame(LEAVE_FRAME, {}))
                await trio.sleep(LOOK_S)
        if not leader or self._links.link(leader) is not None:
            answer = self._wishes.answer or f"{leader or 'a leader'} did not answer: see `rocketbox group status`"
            raise GroupRefused(answer)

    async def resync(self, *, discard: bool = False) -> None:
        """As follower, end this process; its next start gives the copy up and takes the leader's anew."""
        status = self._core.status
        if status.role == LEADER or self._links.link(status.leader) is None:
            text = "this box leads" if status.role == LEADER else "no leader is connected"
            raise GroupRefused(f"{text}: a copy is given up only for that of a leader that is there")
        if self._rules.member in status.members.witnesses:
            raise GroupRefused("a witness has no copy")
        try:
            await self._copy.give_up(status.members, discard=discard)
        except OSError as exc:
            raise GroupRefused(f"nothing was changed: {exc.strerror}; --discard deletes this copy first") from exc
