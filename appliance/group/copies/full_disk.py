"""A leader whose disk is full hands over to a box that takes records, where messages are acknowledged then.

The store takes records again by itself once there is room, so only a disk that stays full counts, only boxes that are
level and have told of no trouble for as long, and one hand-over a minute at most. In an election, too, a box whose disk
is full lets the others go first, where messages are acknowledged without it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from storage_driver.consensus.quorum import majority
from storage_driver.consensus.rules import LEVEL_BYTES, Rules
from storage_driver.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from appliance.group.member_parts import DriverParts
    from appliance.group.member_view import MemberView

log = logging.getLogger("appliance.group")
LASTS_S: Final = 2.0  # so long the disk is full, and the other one is not: four heartbeats
PAUSE_S: Final = 60.0  # between two hand-overs of one box


class BoxesSeen(NamedTuple):
    """The members beside a leader whose disk is full."""

    fit: Mapping[str, int]  # boxes that vote and take records → log offset below which they have everything on disk
    boxes: int  # that vote, this one included
    witnesses: int  # that are connected
    voters: int  # all of them

    def acknowledge(self, rules: Rules) -> bool:
        """Return whether the fit ones are enough for a message to be committed, without this box's disk."""
        if not rules.counts_copies:
            return bool(self.fit)
        votes = len(self.fit) + (self.witnesses if rules.copies == 1 else 0)
        return len(self.fit) >= min(rules.copies, self.boxes) and votes >= majority(self.voters)


class FullDisk:
    """Decides whether and to whom a leader hands over. Sans I/O."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._since_s: dict[str, float] = {}  # box → since when it is fit and this disk is full
        self._next_s, self._last = 0.0, ""

    def has_room(self) -> None:
        """This disk is not full, or this box does not lead."""
        self._since_s.clear()

    def successor(self, now_s: float, seen: BoxesSeen) -> str:
        """Return the box to hand over to now, "": none. The one that was named last comes after the others."""
        rules = self._rules
        if rules.manual or not seen.acknowledge(rules):
            self._since_s.clear()
            return ""
        self._since_s = {name: self._since_s.get(name, now_s) for name in seen.fit}
        lasting = [name for name, since_s in self._since_s.items() if now_s - since_s >= LASTS_S * rules.scale]
        if not lasting or now_s < self._next_s:
            return ""
        self._last = max(lasting, key=lambda name: (name != self._last, seen.fit[name]))
        self._next_s = now_s + PAUSE_S * rules.scale
        return self._last


class WantedLeader:
    """Who is to lead instead of this leader: the preferred box, or another one while this disk is full."""

    def __init__(self, parts: DriverParts, view: MemberView) -> None:
        self._core, self._store, self._view = parts.core, parts.store, view
        self._rules = parts.rules.consensus
        self._full_disk = FullDisk(self._rules)

    def now(self, now_s: float) -> str:
        """Return the box that this member, which leads, is to hand over to now; "": none."""
        preferred = self._core.wanted_leader(now_s)
        if preferred and any(each.member == preferred for each in self._view.takers()):
            return preferred
        full = self._store.full
        if full is None or not self._core.status.ready:
            self._full_disk.has_room()
            return ""
        level = self._store.end - LEVEL_BYTES
        fit = {each.member: each.synced for each in self._view.takers() if each.synced >= level}
        to = self._full_disk.successor(now_s, self._seen(fit))
        if to:
            log.warning("event=disk_full_hands_over to=%s reason=%r next_step='make room on this disk'", to, full)
        return to

    def stands_back(self) -> bool:
        """Return whether this disk is full, and the other boxes that are linked are enough for a message."""
        if self._store.full is None:
            return False
        linked = {name: 0 for name in self._core.status.members.boxes if self._view.is_linked(name)}
        return self._seen(linked).acknowledge(self._rules)

    def _seen(self, fit: Mapping[str, int]) -> BoxesSeen:
        members, linked = self._core.status.members, self._view.is_linked
        return BoxesSeen(fit, len(members.boxes), sum(map(linked, members.witnesses)), len(members.voters))
