"""How a leader leaves: a planned transfer, a disk that stalls, a preferred leader that is back."""

from storage_driver.consensus import leading
from storage_driver.consensus.member_state import MemberState
from storage_driver.consensus.quorum import majority
from storage_driver.consensus.roles import NEVER, Leading, PeerProgress, Transfer
from storage_driver.consensus.rules import (
    OTHERS_FIRST_S,
    PREFERRED_LEVEL_S,
    PREFERRED_PAUSE_S,
    QUORUM_S,
    STALL_S,
    TRANSFER_BYTES,
    TRANSFER_S,
)
from storage_driver.errors import ConsensusRefused


def transfer(state: MemberState, part: Leading, now_s: float, to: str) -> None:
    """Begin to hand over: no more appends, the target campaigns once it has everything. Raises ConsensusRefused."""
    check_transfer(state, part, now_s, to)
    part.transfer = Transfer(to, now_s + TRANSFER_S * state.rules.scale)
    leading.advance_transfer(state, part)


def check_transfer(state: MemberState, part: Leading, now_s: float, to: str) -> None:
    """Raise ConsensusRefused where a transfer cannot begin."""
    progress = part.progress.get(to)
    if to not in state.log.members.boxes or progress is None:
        raise ConsensusRefused(f"{to} is not another box that votes in this group")
    if part.transfer is not None:
        raise ConsensusRefused(f"the leadership is being transferred to {part.transfer.to}: wait for it")
    if part.first_end is None or state.log.committed < part.first_end:
        raise ConsensusRefused("this leader has just begun and committed nothing yet: try again")
    if not _is_there(state, progress, now_s):
        raise ConsensusRefused(f"{to} is not connected, or does not follow yet")
    if (behind := state.log.end - progress.synced) > TRANSFER_BYTES:
        raise ConsensusRefused(
            f"{to} is {behind} bytes behind, at most {TRANSFER_BYTES} are allowed: wait until it follows"
        )


def _is_there(state: MemberState, progress: PeerProgress, now_s: float) -> bool:
    return progress.matched and now_s - progress.heard_s < QUORUM_S * state.rules.scale


def resign(state: MemberState, part: Leading, now_s: float) -> None:
    """Hand over to whoever is closest, or just stop leading. With manual elections nobody would take over: stay."""
    if state.rules.manual or part.solo or part.transfer is not None or len(state.log.members.voters) == 1:
        return
    boxes = [name for name in state.log.members.boxes if name in part.progress]
    there = [name for name in boxes if _is_there(state, part.progress[name], now_s)]
    try:
        transfer(state, part, now_s, max(there, key=lambda name: part.progress[name].synced, default=""))
    except ConsensusRefused:
        _step_down(state, now_s)


def _step_down(state: MemberState, now_s: float) -> None:
    state.follow_nobody()
    state.timer.since_s, state.timer.timeout_s = now_s, OTHERS_FIRST_S * state.rules.scale


def on_tick(state: MemberState, part: Leading, now_s: float) -> bool:
    """Look whether to leave; return whether this member is to campaign anew, after a transfer that nobody took."""
    if leading.lost_quorum(state, part, now_s):
        state.follow_nobody()
        return False
    if part.transfer is not None and now_s >= part.transfer.deadline_s:
        return _give_up_transfer(state, part, part.transfer, now_s)
    if state.disk_error or _stalls(state, part, now_s):
        resign(state, part, now_s)
    return False


def _give_up_transfer(state: MemberState, part: Leading, transfer: Transfer, now_s: float) -> bool:
    """Go on as before, but for the lease: a late vote for the target would not wait for it.

    So a lease comes back with a new term only, or when nobody can be elected without this member's vote.
    """
    part.transfer = None
    if state.disk_error or _stalls(state, part, now_s):
        _step_down(state, now_s)
        return False
    voters = len(state.log.members.voters)
    if transfer.told and majority(voters) == voters:
        part.lease_given_up = False
        return False
    return transfer.told


def _stalls(state: MemberState, part: Leading, now_s: float) -> bool:
    return part.unsynced_s is not None and now_s - part.unsynced_s > STALL_S * state.rules.scale


def wanted_leader(state: MemberState, part: Leading, now_s: float) -> str:
    """Return the preferred leader once it has been level for long and the last switch is long ago, else "".

    It is told once, and again after as long: a transfer is an order, so that a leader's own parts end in order.
    """
    rules = state.rules
    progress = part.progress.get(rules.preferred)
    if progress is None or rules.manual or part.transfer is not None or progress.level_s == NEVER:
        return ""
    level_s, pause_s = PREFERRED_LEVEL_S * rules.scale, PREFERRED_PAUSE_S * rules.scale
    if now_s - progress.level_s < level_s or now_s - part.wanted_s < pause_s:
        return ""
    try:
        check_transfer(state, part, now_s, rules.preferred)
    except ConsensusRefused:
        return ""  # it is not there now; the next look tells
    part.wanted_s = now_s
    return rules.preferred
