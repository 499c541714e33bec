"""How a member sees its group: every member's state, and why messages are not on enough disks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from appliance.group.copies.lag import STEP_S
from appliance.group.driver import CopyCount, Divergence, MemberProgress
from appliance.group.leadership import LEADER
from appliance.group.links.links import MemberLinks
from appliance.group.member_parts import DriverParts
from storage_driver.consensus.core import Core
from storage_driver.consensus.effects import FollowerProgress, MemberStatus

if TYPE_CHECKING:
    from appliance.group.links.link_tls import MemberCertificates
    from appliance.replication.slaves import SlavesSeen
    from storage_driver.log.lineage import AloneRange


class MemberView:
    """What one member knows of all of them, now."""

    def __init__(self, parts: DriverParts, links: MemberLinks) -> None:
        self._rules, self._core, self._store, self._links = parts.rules, parts.core, parts.store, links
        self._clocks, self._copy, self._missing = parts.clocks, parts.copy, parts.missing
        self.copied = parts.shipping.copied  # how far two disks have the log

    def members(self) -> tuple[MemberProgress, ...]:
        """Return every member: at the leader with its log, at a follower itself so and the others with links."""
        status, end = self._core.status, max(self._store.end, self._core.told_committed)
        progress = {each.member: each for each in self._core.progress()}
        now_s, found, lost = self._clocks.now_s(), [], self._links.statistics().last
        for name in status.members.all:
            link, own = self._links.link(name), name == self._rules.member
            told = progress.get(name)
            synced = self._store.synced if own else told.synced if told is not None else 0
            lags = (own or told is not None) and name not in status.members.witnesses
            behind: tuple[int | None, float | None] = (0, 0.0)
            if lags and (told is None or told.matched or synced):
                behind = max(0, end - synced), self._missing.ages.age_s(now_s, synced)
            elif lags:
                behind = None, None
            found.append(
                MemberProgress(
                    name,
                    self._rules.directory.link_address(name),
                    witness=name in status.members.witnesses,
                    learner=name in status.members.learners,
                    connected=own or link is not None,
                    synced=synced,
                    behind_bytes=behind[0],
                    behind_s=behind[1],
                    refuses=self._copy.news.refusals.of(name) if lags else "",
                    clock_drift_s=link.clock_drift_s if link is not None else None,
                    lost="" if own or link is not None else lost.get(name, ""),
                )
            )
        return tuple(found)

    def copies(self) -> CopyCount:
        """Return on how many disks a message is to be, and how many boxes take the log now."""
        core, status = self._core, self._core.status
        boxes = status.members.boxes
        wanted = min(self._rules.consensus.copies, len(boxes)) if core.waits_for_copies else 1
        if status.role != LEADER:
            return CopyCount(wanted)
        return CopyCount(wanted, 1 + len(self.takers()))

    def takers(self) -> tuple[FollowerProgress, ...]:
        """Return, at a leader, the other boxes that take the log: none is later than a send waits for it."""
        boxes, now_s = self._core.status.members.boxes, self._clocks.now_s()
        return tuple(each for each in self._core.progress() if each.member in boxes and self._takes(each, now_s))

    def _takes(self, each: FollowerProgress, now_s: float) -> bool:
        most_s = max(self._rules.wait_s - STEP_S, STEP_S)  # a step less: ages are noted so often
        return (
            self.is_linked(each.member)
            and each.matched
            and not self._copy.news.refusals.of(each.member)
            and self._missing.ages.age_s(now_s, each.synced) < most_s
        )

    def is_linked(self, member: str) -> bool:
        """Return whether another member is linked with this one."""
        return self._links.link(member) is not None

    def divergence(self) -> Divergence | None:
        """Return the last cut of this log since the start."""
        return self._copy.divergence

    def certificates(self) -> MemberCertificates:
        """Return when the certificates of the members end."""
        return self._links.certificates()

    def alone(self) -> Sequence[AloneRange]:
        """Return which ranges this disk has acknowledged alone."""
        return self._store.lineage.alone

    def leads(self, term: int) -> bool:
        """Return whether this member leads in a term at this moment, and nobody else can have been elected since."""
        return self._core.status.term == term and self._core.lease_held(self._clocks.now_s())

    def copy_there(self) -> bool:
        """Return whether another box is linked, or is not to be waited for."""
        boxes = self._core.status.members.boxes
        return self._core.alone or any(self.is_linked(name) for name in boxes if name != self._rules.member)

    def refused(self) -> dict[str, int]:
        """Return how many connections to this member's port were refused or have ended, by reason."""
        return {**self._links.statistics().refused, **self._links.at_port}

    def slaves(self) -> SlavesSeen | None:
        """Return Apache's slaves that copy from this member, None where it serves none."""
        return self._rules.slaves.statistics() if self._rules.slaves is not None else None

    def why_not_copied(self) -> str:
        """Return why what this member has appended is not on enough disks."""
        return why_not_copied(self._core.status, self.members(), self._rules.member)


def who_is_missed(members: Sequence[MemberProgress], own: str) -> str:
    """Return which other boxes a leader waits for, and why; "" while all take what it sends."""
    boxes = _other_boxes(members, own)
    if gone := [each.member for each in boxes if not each.connected]:
        return f"{' and '.join(gone)} cannot be reached"
    return ", ".join(f"{each.member} {each.refuses}" for each in boxes if each.refuses)


def why_not_copied(status: MemberStatus, members: Sequence[MemberProgress], own: str) -> str:
    """Return why what a member has appended is not on enough disks."""
    if status.role != LEADER:
        return f"{status.leader or 'nobody'} leads now"
    if status.trouble:
        return status.trouble
    if missed := who_is_missed(members, own):
        return missed
    return ", ".join(f"{each.member} {_distance(each)}" for each in _other_boxes(members, own))


def _distance(each: MemberProgress) -> str:
    return "has not been heard yet" if each.behind_bytes is None else f"is {each.behind_bytes} bytes behind"


def _other_boxes(members: Sequence[MemberProgress], own: str) -> list[MemberProgress]:
    return [each for each in members if each.member != own and not each.witness]


def what_is_lost(core: Core, synced: int, now_s: float, messages: int, led_s: float | None = None) -> str:
    """Return what a box that takes over alone loses, as far as its leader has told; about so many messages.

    led_s: when it last led itself, which tells it as much as another leader does.
    """
    told, heard_s = core.told_committed, core.heard_s
    if heard_s is None and led_s is None:
        return "which loses what only they have acknowledged: this box has heard no leader since it started"
    if heard_s is None or (led_s is not None and led_s > heard_s):
        ago = f"{now_s - (led_s or 0.0):.0f} s ago, when it last led itself"
    else:
        ago = f"{now_s - heard_s:.0f} s ago, when it last heard a leader"
    if told > synced and messages:
        count = "one acknowledged message" if messages == 1 else f"about {messages} acknowledged messages"
        return f"which loses {count} ({told - synced} bytes), which this box lacked {ago}"
    if told > synced:
        return f"which loses {told - synced} bytes that were acknowledged, which this box lacked {ago}"
    return f"which loses what only they have acknowledged: this box had all of it {ago}"
