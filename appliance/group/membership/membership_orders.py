"""Orders of people about who belongs to a group: let a member in, take one out, leave."""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from appliance.group.driver import GroupRefused, must_lead
from appliance.group.leadership import LEADER, Leadership
from appliance.group.links.directory import MemberDirectory, member_in
from appliance.group.membership.member_changes import joined, removed
from storage_driver.consensus.core import Core
from storage_driver.consensus.effects import Effects

LOOK_S: Final = 0.05
SETTLE_S: Final = 10.0
Order = Callable[[Callable[[float], Effects]], Awaitable[None]]


class MembershipOrders:
    """Carries them out; each change is in force when it is on enough disks."""

    def __init__(
        self,
        core: Core,
        order: Order,
        directory: MemberDirectory,
        leadership: Leadership,
        *,
        linked: Callable[[str], object],
    ) -> None:
        """linked: of a member, true while there is a link."""
        self._core, self._order, self._directory, self._leadership = core, order, directory, leadership
        self._linked = linked

    async def join(self, text: str) -> str:
        """Let a member in, one step; return what it waits for, "" when it is done. Raises GroupRefused."""
        must_lead(self._leadership)
        members, new = self._core.status.members, member_in(text)
        if new is not None and new.name in members.all:
            known = self._directory.link_address(new.name)
            if known != new.link_address:
                raise GroupRefused(f"{new.name} is a member at {known or 'an unknown address'}: choose another name")
        copies = new is not None and new.name in members.learners

        def step(now_s: float) -> Effects:
            found = joined(self._core.status.members, text)
            return self._core.propose_members(now_s, found) if found is not None else Effects()

        try:
            await self._order(step)
        except GroupRefused as exc:
            must_lead(self._leadership)
            if copies:
                return f"{exc}{self._who_is_gone()}"
            raise
        await self._settled()
        learners = self._core.status.members.learners
        return f"{new.name} copies the log" if new is not None and new.name in learners else ""

    async def remove(self, name: str) -> None:
        """Take a member out. Raises GroupRefused."""
        must_lead(self._leadership)
        await self._order(lambda now_s: self._core.propose_members(now_s, removed(self._core.status.members, name)))
        await self._settled()

    async def _settled(self) -> None:
        with trio.move_on_after(SETTLE_S):
            while self._core.changing and self._core.status.role == LEADER:  # noqa: ASYNC110 the core has no event
                await trio.sleep(LOOK_S)
        if self._core.changing or self._core.status.role != LEADER:
            raise GroupRefused(
                f"the change is not on enough disks yet{self._who_is_gone()}: see `rocketbox group status`"
            )

    def _who_is_gone(self) -> str:
        """Return which boxes a change waits for, and what to do if they do not come back; "" while all are linked."""
        boxes, own = self._core.status.members.boxes, self._core.status.leader
        if not (gone := " and ".join(name for name in boxes if name != own and not self._linked(name))):
            return ""
        step = f"start {gone}, with an empty folder where the disk is lost"
        return f", since {gone} cannot be reached; {step}; if that is gone for good, `rocketbox replica solo` first"
