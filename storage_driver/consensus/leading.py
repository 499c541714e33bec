"""The leader's part: begin a term, keep it, know how far the others are, commit."""

from storage_driver.consensus import safety
from storage_driver.consensus.effects import BeginTerm, FollowerProgress
from storage_driver.consensus.member_state import MemberState
from storage_driver.consensus.messages import (
    Append,
    CampaignNow,
    FollowerReply,
    LeaderHeartbeat,
    Match,
    Position,
    Synced,
    Unrelated,
    WitnessRow,
    WitnessSynced,
)
from storage_driver.consensus.quorum import kth_largest, majority, on_majority
from storage_driver.consensus.roles import NEVER, Leading, PeerProgress
from storage_driver.consensus.rules import HEARTBEAT_S, LEASE_S, LEVEL_BYTES, QUORUM_S
from storage_driver.consensus.terms import ROWS_KEPT, Row, are_rising, common_point, row_end, term_below


def begin(state: MemberState, now_s: float, *, solo: bool) -> None:
    """Lead the own term from now on: its first record is to be appended before anything else."""
    log, term = state.log, state.hard.term
    state.part, state.leader = Leading(now_s, solo=solo), state.me
    log.forget_unappended()
    log.begin_row(Row(term, log.end))
    state.out.table = log.table
    state.out.begin_term = BeginTerm(term, log.end, log.members)
    know_members(state, state.part)
    send_heartbeats(state, state.part, now_s)


def know_members(state: MemberState, part: Leading) -> None:
    """Keep progress of all other members, and of nobody else."""
    others = [name for name in state.log.members.all if name != state.me]
    part.progress = {name: part.progress.get(name) or PeerProgress(part.since_s) for name in others}


def send_heartbeats(state: MemberState, part: Leading, now_s: float) -> None:
    """Tell everybody who leads and what is committed."""
    part.heartbeat_s = now_s + HEARTBEAT_S * state.rules.scale
    for name, progress in part.progress.items():
        shipped = progress.next if progress.matched else -1
        state.send(name, LeaderHeartbeat(state.hard.term, state.log.committed, shipped, now_s))
    advance_witness(state, part, now_s, again=True)


def quorum_s(state: MemberState, part: Leading, now_s: float) -> float:
    """Return when the newest heartbeat was sent that a majority has answered; a leader answers itself at once."""
    voters = state.log.members.voters
    heard = [now_s if name == state.me else part.progress[name].heard_s for name in voters if name in part.progress]
    if state.me in voters:
        heard.append(now_s)
    return kth_largest(heard, majority(len(voters)))


def lost_quorum(state: MemberState, part: Leading, now_s: float) -> bool:
    """Whether no majority has answered for so long that another leader may exist."""
    if state.rules.manual or part.solo:
        return False
    return now_s - max(quorum_s(state, part, now_s), part.since_s) >= QUORUM_S * state.rules.scale


def lease_held(state: MemberState, part: Leading, now_s: float) -> bool:
    """Whether nobody else can have been elected. With manual elections a person vouches for it."""
    if state.rules.manual or part.solo:
        return not part.lease_given_up
    sent_s = quorum_s(state, part, now_s)
    return safety.lease_holds(now_s, sent_s, LEASE_S * state.rules.scale, part.lease_given_up)


# ---- what the others say


def on_follower_reply(state: MemberState, now_s: float, sender: str, message: FollowerReply) -> None:
    """A heartbeat was answered."""
    part = state.part
    if isinstance(part, Leading) and (progress := part.progress.get(sender)) is not None:
        progress.heard_s = max(progress.heard_s, min(message.sent_s, now_s))
        note_level(state, progress, now_s)
        _count_synced(state, part, progress, now_s, message.synced)


def note_level(state: MemberState, progress: PeerProgress, now_s: float) -> None:
    """Note since when a follower has been close to the own end."""
    if state.log.end - progress.synced > LEVEL_BYTES or not progress.matched:
        progress.level_s = NEVER
    elif progress.level_s == NEVER:
        progress.level_s = now_s


def on_position(state: MemberState, now_s: float, sender: str, message: Position) -> None:
    """Say where a follower's log agrees with the own one, and ship from there."""
    part = state.part
    if not isinstance(part, Leading) or (progress := part.progress.get(sender)) is None:
        return
    if len(message.rows) > ROWS_KEPT or not are_rising(message.rows) or message.first > message.end:
        return
    log, term = state.log, state.hard.term
    start: int | None = log.first
    if message.rows or message.end > message.first:
        start = common_point(log.rows, log.end, message.rows, message.end)
    if start is None:
        state.send(sender, Unrelated(term, f"no term in common with the log of {state.me}"))
    elif start < log.first:
        state.send(sender, Unrelated(term, f"the log of {state.me} begins at {log.first}, yours agrees up to {start}"))
    else:
        progress.matched, progress.next, progress.synced = True, start, min(progress.synced, start)
        rows = tuple(row for row in log.rows if row.start < start)
        configs = tuple(config for config in log.configs if config.start < start)
        last_term = term_below(message.rows, message.end)
        state.send(sender, Match(term, last_term, message.end, start, rows, configs, log.end))


def on_synced(state: MemberState, now_s: float, sender: str, message: Synced) -> None:
    """A follower's disk has what was shipped up to there."""
    part = state.part
    if isinstance(part, Leading) and (progress := part.progress.get(sender)) is not None:
        _count_synced(state, part, progress, now_s, message.log_offset)


def _count_synced(state: MemberState, part: Leading, progress: PeerProgress, now_s: float, reported: int) -> None:
    synced = safety.counted(reported, state.log.end)
    if progress.matched and synced > progress.synced:
        progress.synced = synced
        note_level(state, progress, now_s)
        advance(state, part, reported=True)
        advance_transfer(state, part)


def on_witness_synced(state: MemberState, now_s: float, sender: str, message: WitnessSynced) -> None:
    """The witness has a row on disk."""
    part = state.part
    if isinstance(part, Leading) and (progress := part.progress.get(sender)) is not None:
        if message.last_term == state.hard.term and message.end > progress.synced:
            progress.synced = safety.counted(message.end, state.log.end)
            advance(state, part)
        advance_witness(state, part, now_s)


# ---- what is committed


def advance(state: MemberState, part: Leading, *, reported: bool = False) -> None:
    """Commit what enough disks have. `reported`: another disk has just said that it has more."""
    log, rules = state.log, state.rules
    if part.first_end is None:
        return
    if rules.counts_copies or part.alone:
        counted = _counted(state, part, rules.copies)
        if part.alone and reported and log.committed - counted <= LEVEL_BYTES:
            part.alone = False  # another disk is there and close
        if rules.counts_copies and not part.alone:
            if safety.may_commit(counted, part.first_end):
                part.solo = part.solo and counted < log.committed
                state.commit(safety.bounded_by_own(counted, log.synced))
            return
    part.solo = part.solo and part.alone  # no copies are waited for: nothing else keeps it from stepping down
    state.commit(log.synced)


def _counted(state: MemberState, part: Leading, copies: int) -> int:
    synced = {name: progress.synced for name, progress in part.progress.items()}
    synced[state.me] = state.log.synced
    return on_majority(state.log.members, synced, copies)


def copied(state: MemberState, part: Leading) -> int:
    """Return the log offset below which what is committed is on two disks, whatever committing waits for.

    Alone, by order of a person, one disk is all that is waited for.
    """
    if part.first_end is None:
        return 0
    counted = state.log.synced if part.alone else _counted(state, part, max(state.rules.copies, 2))
    return min(counted, state.log.committed) if safety.may_commit(counted, part.first_end) else 0


def advance_witness(state: MemberState, part: Leading, now_s: float, *, again: bool = False) -> None:
    """Let the witness keep the newest row while a box is out, or does not keep up, and one copy is enough."""
    log, rules = state.log, state.rules
    if part.first_end is None or log.synced < part.first_end:
        return
    quorum = QUORUM_S * rules.scale
    boxes = [part.progress[name] for name in log.members.boxes if name in part.progress]
    if not safety.witness_counts(rules.copies) or not rules.counts_copies:
        _begin_witness(state, part, boxes, again=again)
        return
    if again:
        note_kept(boxes, log.synced, now_s, quorum)
    level = all(each.matched and now_s - min(each.heard_s, each.kept_s) < quorum for each in boxes)
    for name in log.members.witnesses:
        progress = part.progress[name]
        if level and progress.synced:
            continue  # it needs one row of each leader, in case that its disk is new
        if log.synced > progress.next or (again and log.synced > progress.synced):
            progress.next = log.synced
            state.send(name, WitnessRow(state.hard.term, log.term_below(log.synced), log.synced))


def note_kept(boxes: list[PeerProgress], synced: int, now_s: float, late_s: float) -> None:
    """Note at a heartbeat which boxes have what the own disk had at an earlier one.

    Who came late once has to be close to the own end: behind a log that it copies it would be waited for.
    """
    for each in boxes:
        if each.synced >= each.goal:
            if now_s - each.kept_s < late_s or synced - each.synced <= LEVEL_BYTES:
                each.kept_s = now_s
            each.goal = synced


def _begin_witness(state: MemberState, part: Leading, boxes: list[PeerProgress], *, again: bool) -> None:
    """Send a witness that keeps no rows one of this term, in case that its disk is new: one that all boxes have."""
    first_end = part.first_end or 0
    if state.log.committed < first_end or any(progress.synced < first_end for progress in boxes):
        return
    for name in state.log.members.witnesses:
        progress = part.progress[name]
        if not progress.synced and (again or not progress.next):
            progress.next = first_end
            state.send(name, WitnessRow(state.hard.term, state.hard.term, first_end))


def advance_transfer(state: MemberState, part: Leading) -> None:
    """Tell the member that takes over to campaign, once it has everything."""
    transfer = part.transfer
    if transfer is None or transfer.told or (progress := part.progress.get(transfer.to)) is None:
        return
    if progress.matched and progress.synced == state.log.end:
        part.transfer, part.lease_given_up = transfer._replace(told=True), True
        state.send(transfer.to, CampaignNow(state.hard.term))


# ---- what is shipped


def to_ship(state: MemberState, part: Leading, member: str) -> tuple[int, int]:
    """Return what a follower may be sent now: bytes of one term."""
    progress, log = part.progress.get(member), state.log
    if progress is None or not progress.matched or member in log.members.witnesses or progress.next < log.first:
        return 0, 0
    return progress.next, row_end(log.rows, log.row_at(progress.next).term, log.end)


def ship(state: MemberState, part: Leading, member: str, length: int, crc: int) -> Append:
    """Return the message for the next bytes of a follower. Raises ValueError."""
    start, end = to_ship(state, part, member)
    if not 0 < length <= end - start:
        raise ValueError(f"{length} bytes for {member}, {end - start} can be shipped")
    log, row = state.log, state.log.row_at(start)
    part.progress[member].next = start + length
    configs = tuple(config for config in log.configs if start <= config.start < start + length)
    return Append(
        state.hard.term, start, length, row.term, row.start, log.term_below(start), crc, log.committed, configs
    )


def progress_of(part: Leading) -> tuple[FollowerProgress, ...]:
    """Return how far everybody is."""
    return tuple(
        FollowerProgress(name, each.matched, each.next, each.synced, max(each.heard_s, -1.0))
        for name, each in part.progress.items()
    )
