"""What the next step of a change of a group's members is. Sans I/O; the core says whether it may be taken."""

from appliance.configuration.group_settings import MEMBER, read_member
from appliance.group.links.directory import member_in
from storage_driver.consensus.members import Members
from storage_driver.errors import ConsensusRefused

MOST_BOXES = 4  # one more than a group has: who replaces a box lets the new one in first


def joined(members: Members, text: str) -> Members | None:
    """Return the members one step on towards a new one, `NAME=HOST:PORT[ witness]`; None when it is there and votes.

    A box copies the log first, as a learner; a witness has none. Raises ConsensusRefused.
    """
    new = member_in(text)
    if new is None:
        raise ConsensusRefused(f"{text!r} does not name a member: it must be {MEMBER.meaning}")
    if new.name in members.learners:
        learners = tuple(name for name in members.learners if name != new.name)
        return members._replace(boxes=(*members.boxes, new.name), learners=learners)
    if new.name in members.voters:
        return None
    addresses = (*_addresses(members, new.name), text)
    if new.witness:
        return members._replace(witnesses=(*members.witnesses, new.name), addresses=addresses)
    if len(members.boxes) + len(members.learners) >= MOST_BOXES:
        raise ConsensusRefused(f"the group has {MOST_BOXES} boxes: remove one first")
    return members._replace(learners=(*members.learners, new.name), addresses=addresses)


def removed(members: Members, name: str) -> Members:
    """Return the members without one of them. Raises ConsensusRefused."""
    if name not in members.all:
        raise ConsensusRefused(f"{name} is not a member; these are: {', '.join(members.all)}")

    def others(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(each for each in names if each != name)

    return Members(
        others(members.boxes), others(members.witnesses), others(members.learners), _addresses(members, name)
    )


def _addresses(members: Members, name: str) -> tuple[str, ...]:
    return tuple(text for text in members.addresses if read_member(text).name != name)
