"""Who belongs to a group, who of them votes, and which changes are allowed: one voter at a time."""

from collections.abc import Sequence
from zlib import crc32

from storage_driver.errors import ConsensusRefused
from storage_driver.named_tuple import NamedTuple

MOST_MEMBERS = 16
MOST_ID_BYTES = 16
MOST_ADDRESSES, MOST_ADDRESS_BYTES = 5, 72


class Members(NamedTuple):
    """The members of a group by id. A witness is a voter without a log; a learner has the log and no vote."""

    boxes: tuple[str, ...]  # vote, and have the log
    witnesses: tuple[str, ...] = ()  # vote, and have no log
    learners: tuple[str, ...] = ()  # have the log
    addresses: tuple[str, ...] = ()  # of those who came later: nothing here reads them, they travel with the change

    @property
    def voters(self) -> tuple[str, ...]:
        """All who vote."""
        return self.boxes + self.witnesses

    @property
    def all(self) -> tuple[str, ...]:
        """Everybody."""
        return self.boxes + self.witnesses + self.learners


class MembersAt(NamedTuple):
    """The members from a log offset on: in force for every log that has the byte there. -1: from the beginning."""

    start: int
    members: Members


CONFIGS_KEPT = 64
Configs = tuple[MembersAt, ...]


def configs_below(configs: Sequence[MembersAt], log_offset: int) -> Configs:
    """Return the configs that are in force in a log that ends at a log offset, the newest last."""
    return tuple(config for config in configs if config.start < log_offset)[-CONFIGS_KEPT:]


def forced_slot(member: str) -> int:
    """Return the member's share of the terms that are taken without a vote; no two members of a group have the same."""
    return crc32(member.encode()) % 4096


def forced_term(member: str, term: int, *, further: int = 0) -> int:
    """Return a term above another that nobody else takes, neither by force nor by 255 elections after a forced one.

    further: of a member that has forgotten which terms it took; another one at each of its lives, below 1024.
    """
    return (((term >> 20) + 1 + further) << 20) + (forced_slot(member) << 8)


def check_members(members: Members) -> None:
    """Raise ConsensusRefused for what cannot be a group."""
    names = members.all
    if not members.boxes:
        raise ConsensusRefused("a group needs one box that votes")
    if len(set(names)) != len(names):
        raise ConsensusRefused(f"a member is named twice: {', '.join(names)}")
    if len(names) > MOST_MEMBERS:
        raise ConsensusRefused(f"{len(names)} members, at most {MOST_MEMBERS} are allowed")
    for name in names:
        if not 0 < len(name.encode()) <= MOST_ID_BYTES or "\0" in name:
            raise ConsensusRefused(f"member id {name!r}: it takes 1 to {MOST_ID_BYTES} bytes")
    if len({forced_slot(name) for name in names}) != len(names):
        raise ConsensusRefused(f"member ids {', '.join(names)} clash: choose another id for one of them")
    if len(members.addresses) > MOST_ADDRESSES:
        raise ConsensusRefused(f"{len(members.addresses)} members came later, at most {MOST_ADDRESSES} are allowed")
    if (longest := max((len(each.encode()) for each in members.addresses), default=0)) > MOST_ADDRESS_BYTES:
        raise ConsensusRefused(f"the address of a member has {longest} bytes, at most {MOST_ADDRESS_BYTES} are allowed")
    if len(members.witnesses) > 1:
        raise ConsensusRefused(f"{len(members.witnesses)} witnesses, at most one is allowed")


def check_change(old: Members, new: Members, leader: str) -> None:
    """Raise ConsensusRefused for a change that a running group cannot make in one step."""
    check_members(new)
    changed = set(old.voters) ^ set(new.voters)
    if len(changed) > 1:
        raise ConsensusRefused(
            f"{len(changed)} voters change at once ({', '.join(sorted(changed))}): change one at a time"
        )
    if leader not in new.boxes:
        raise ConsensusRefused(f"{leader} leads: transfer the leadership before you remove it")
    for name in set(old.all) & set(new.all):
        if (name in old.witnesses) != (name in new.witnesses):
            raise ConsensusRefused(
                f"{name} cannot change between box and witness: remove it, then add it under a new id"
            )
    for name in new.boxes:
        if name not in old.boxes and name not in old.learners:
            raise ConsensusRefused(f"{name} has no copy of the log yet: add it as a learner first")
