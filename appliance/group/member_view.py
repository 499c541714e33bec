"""How a member sees its group: every member's state, and why messages are not on enough disks."""

from collections.abc import Callable, Sequence

from appliance.group.driver import MemberProgress
from appliance.group.leadership import LEADER
from appliance.group.links.links import MemberLinks
from appliance.group.member_parts import MemberLog, MemberRules
from storage_driver.consensus.core import Core
from storage_driver.consensus.effects import MemberStatus


def seen_members(
    rules: MemberRules,
    core: Core,
    store: MemberLog,
    links: MemberLinks,
    *,
    refuses: Callable[[str], str],
    age_s: Callable[[int], float],
) -> tuple[MemberProgress, ...]:
    """Return every member: all of them at the leader, at a follower itself with its log and the others with links.

    refuses: why a member takes nothing. age_s: how old the first byte at or above a log offset is.
    """
    status, end = core.status, max(store.end, core.told_committed)
    progress = {each.member: each for each in core.progress()}
    found = []
    for name in status.members.all:
        link, own = links.link(name), name == rules.member
        synced = store.synced if own else progress[name].synced if name in progress else 0
        lags = (own or name in progress) and name not in status.members.witnesses
        found.append(
            MemberProgress(
                name,
                rules.directory.link_address(name),
                witness=name in status.members.witnesses,
                learner=name in status.members.learners,
                connected=own or link is not None,
                synced=synced,
                behind_bytes=max(0, end - synced) if lags else 0,
                behind_s=age_s(synced) if lags else 0.0,
                refuses=refuses(name) if lags else "",
                clock_drift_s=link.clock_drift_s if link is not None else None,
            )
        )
    return tuple(found)


def who_is_missed(members: Sequence[MemberProgress], own: str) -> str:
    """Return which other boxes a leader waits for, and why; "" while all take what it sends."""
    boxes = [each for each in members if each.member != own and not each.witness]
    if gone := [each.member for each in boxes if not each.connected]:
        return f"{' and '.join(gone)} cannot be reached"
    return who_refuses(boxes)


def why_not_copied(status: MemberStatus, members: Sequence[MemberProgress], own: str) -> str:
    """Return why what a member has appended is not on enough disks."""
    if status.role != LEADER:
        return f"{status.leader or 'nobody'} leads now"
    if status.trouble:
        return status.trouble
    if missed := who_is_missed(members, own):
        return missed
    boxes = [each for each in members if each.member != own and not each.witness]
    return ", ".join(f"{each.member} is {each.behind_bytes} bytes behind" for each in boxes)


def who_refuses(members: Sequence[MemberProgress]) -> str:
    """Return which copies take nothing, and why; "" where none has told that."""
    return ", ".join(f"{each.member} {each.refuses}" for each in members if each.refuses)


def what_is_lost(core: Core, synced: int, now_s: float, messages: int) -> str:
    """Return what a box that takes over alone loses, as far as its leader has told; about so many messages."""
    told, heard_s = core.told_committed, core.heard_s
    if heard_s is None:
        return "which loses what only they have acknowledged: this box has heard no leader since it started"
    ago = f"{now_s - heard_s:.0f} s ago, when it last heard the leader"
    if told > synced and messages:
        count = "one acknowledged message" if messages == 1 else f"about {messages} acknowledged messages"
        return f"which loses {count} ({told - synced} bytes), which this box lacked {ago}"
    if told > synced:
        return f"which loses {told - synced} bytes that were acknowledged, which this box lacked {ago}"
    return f"which loses what only they have acknowledged: this box had all of it {ago}"
