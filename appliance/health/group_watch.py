"""Which consumer groups have died or fall behind, from one look after the other: no clock, no tables of its own.

A group counts as died when it had a member since the box knows it, has none for `gone_s`, and messages wait for it.
A group that only ever committed offsets, was deleted, or has read everything is none of that.
"""

from collections.abc import Iterable, Sequence

from appliance.health.condition_rules import span
from appliance.health.conditions import Condition
from storage_driver.named_tuple import NamedTuple

MOST_TOLD = 5  # conditions of one kind


class GroupSeen(NamedTuple):
    """One group at one look; topic and age are those of the message that has waited longest."""

    group: str
    members: int
    lag: int
    topic: str = ""
    oldest_s: float | None = None


class DeadSeen(NamedTuple):
    """A group's dead letters: how many nobody has read, and all there ever were."""

    group: str
    unread: int
    total: int


class GroupLimits(NamedTuple):
    """How long a group may be without a member; how old its oldest message may be, and for how long."""

    gone_s: float = 600.0
    behind_s: float = 600.0


USUAL = GroupLimits()


class GroupWatch:
    """Remembers since when groups have no member, or do not catch up."""

    def __init__(self, known: Iterable[str], now_s: float, limits: GroupLimits = USUAL) -> None:
        """known: groups that had members before this start of the box."""
        self._limits, self.looked_s = limits, now_s
        self._had_s = dict.fromkeys(known, now_s)
        self._behind: dict[str, tuple[float, int]] = {}  # since when, and the lag then

    @property
    def known(self) -> list[str]:
        """Return the groups that have, or had, members: to be kept over a restart."""
        return sorted(self._had_s)

    def look(self, seen: Sequence[GroupSeen], now_s: float) -> list[Condition]:
        """Note one look and return what is wrong."""
        names, self.looked_s = {one.group for one in seen}, now_s
        self._had_s = {name: at for name, at in self._had_s.items() if name in names}
        self._behind = {name: row for name, row in self._behind.items() if name in names}
        died, behind = list[Condition](), list[Condition]()
        for one in seen:
            if one.members:
                self._had_s[one.group] = now_s
                behind += self._catches_up(one, now_s)
            else:
                self._behind.pop(one.group, None)
                died += self._died(one, now_s)
        return bounded(died) + bounded(behind)

    def _died(self, one: GroupSeen, now_s: float) -> list[Condition]:
        gone_s = now_s - self._had_s.get(one.group, now_s)
        if gone_s < self._limits.gone_s or not one.lag:
            return []
        waiting = f"up to {one.lag:,} messages wait for it"  # a filter may pass over them, and goes with its members
        text = f"the consumer group {one.group} has had no member for {span(gone_s)}, {waiting}"
        step = (
            f"start its consumer; if it is retired: `rocketbox groups delete {one.group}`; "
            f"if this is intended: `rocketbox conditions mute group_without_member:{one.group}`"
        )
        return [Condition("group_without_member", text, step, one.group)]

    def _catches_up(self, one: GroupSeen, now_s: float) -> list[Condition]:
        if not one.lag or one.oldest_s is None or one.oldest_s < self._limits.behind_s:
            self._behind.pop(one.group, None)
            return []
        since_s, lag = self._behind.setdefault(one.group, (now_s, one.lag))
        if one.lag < lag:
            self._behind[one.group] = (now_s, one.lag)
            return []
        if now_s - since_s < self._limits.behind_s:
            return []
        text = (
            f"the consumer group {one.group} is {span(one.oldest_s)} behind on {one.topic}, "
            f"{one.lag:,} messages, and does not catch up"
        )
        step = f"`rocketbox groups show {one.group}` shows the slow queue; add consumers or make them faster"
        return [Condition("group_behind", text, step, one.group)]


def dead_letter_conditions(seen: Iterable[DeadSeen]) -> list[Condition]:
    """Return whose messages were given up on and are unread."""
    found = []
    for one in seen:
        if one.unread:
            many = one.unread > 1
            text = f"{one.unread:,} message{'s' if many else ''} of the consumer group {one.group} "
            text += "are dead letters" if many else "is a dead letter"
            step = (
                f"resend them from the page (topic %DLQ%{one.group}), or read them: "
                f"`rocketbox consume %DLQ%{one.group}`; "
                f"known: `rocketbox conditions mute dead_letters:{one.group}`"
            )
            found.append(Condition("dead_letters", text, step, one.group, one.total))
    return bounded(found)


def bounded(found: Sequence[Condition]) -> list[Condition]:
    """Return the first of many conditions of one kind; the last of them says how many more there are."""
    if len(found) <= MOST_TOLD:
        return list(found)
    told, more = list(found[:MOST_TOLD]), len(found) - MOST_TOLD
    told[-1] = told[-1]._replace(text=f"{told[-1].text}; the same for {more} more groups")
    return told
