"""Changes of the members: one voter at a time, one change at a time. Source: Ongaro's thesis, 4.1, and its correction.

A change is in force for every log that has its record (its first byte), committed or not.
"""

from storage_driver.consensus import safety
from storage_driver.consensus.member_state import MemberState
from storage_driver.consensus.members import Members, MembersAt, check_change
from storage_driver.consensus.roles import NEVER, Leading
from storage_driver.consensus.rules import LEVEL_BYTES, LEVEL_S
from storage_driver.errors import ConsensusRefused


def propose(state: MemberState, part: Leading, now_s: float, members: Members) -> None:
    """Ask for the record of a change. Raises ConsensusRefused."""
    log = state.log
    check_change(log.members, members, state.me)
    if part.first_end is None or not safety.may_change_members(log.committed, part.first_end, log.last_change):
        raise ConsensusRefused("the change before, or the begin of the term, is not committed yet: try again")
    if part.transfer is not None:
        raise ConsensusRefused("the leadership is being transferred: ask the new leader")
    for name in members.boxes:
        if name in log.members.learners:
            _check_level(state, part, name, now_s)
    _check_copies(state, part, members)
    log.add_config(MembersAt(log.end, members))
    state.out.table, state.out.members = log.table, members


def _check_copies(state: MemberState, part: Leading, members: Members) -> None:
    """Raise ConsensusRefused when the boxes that stay would not have enough copies."""
    others = [part.progress[name] for name in members.boxes if name in part.progress]
    level = 1 + sum(each.matched and state.log.end - each.synced <= LEVEL_BYTES for each in others)
    gone = set(state.log.members.boxes) - set(members.boxes)
    if gone and level < min(state.rules.copies, len(members.boxes)):
        raise ConsensusRefused(f"without {', '.join(gone)} only {level} box has the log: wait until the others follow")


def _check_level(state: MemberState, part: Leading, learner: str, now_s: float) -> None:
    progress = part.progress[learner]
    if progress.level_s == NEVER or now_s - progress.level_s < LEVEL_S * state.rules.scale:
        behind = state.log.end - progress.synced
        raise ConsensusRefused(
            f"{learner} is {behind} bytes behind: it votes once it is within {LEVEL_BYTES} bytes for "
            f"{LEVEL_S * state.rules.scale:g} s"
        )
