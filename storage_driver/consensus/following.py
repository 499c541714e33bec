"""The follower's part: hear the leader, agree on a common point, take bytes, report what is on disk."""

from storage_driver.consensus import safety
from storage_driver.consensus.effects import LogCut
from storage_driver.consensus.member_state import MemberState
from storage_driver.consensus.messages import (
    Append,
    FollowerReply,
    LeaderHeartbeat,
    Match,
    Position,
    Synced,
    Unrelated,
    WitnessRow,
    WitnessSynced,
)
from storage_driver.consensus.roles import Following, OpenCut
from storage_driver.consensus.terms import ROWS_KEPT, Row, are_rising

TAKE_ANEW = "`rocketbox replica resync` there takes the leader's log anew"


def follow(state: MemberState, now_s: float, sender: str) -> Following | None:
    """The sender leads this term: follow it. None for a second leader of one term, which cannot be."""
    if state.leader not in ("", sender):
        return None
    if not isinstance(state.part, Following):
        state.part = Following()
    state.leader, state.heard_s, state.timer.since_s = sender, now_s, now_s
    return state.part


def on_heartbeat(state: MemberState, now_s: float, sender: str, message: LeaderHeartbeat) -> None:
    """Answer, and ask for what is missing."""
    part = follow(state, now_s, sender)
    if part is None:
        return
    reports = safety.may_report(part.matched) and not state.disk_error
    state.send(sender, FollowerReply(message.term, message.sent_s, state.log.synced if reports else -1))
    if state.is_witness or state.cutting is not None or part.stuck:
        return
    end, seen_end = state.log.end, part.seen_end
    part.seen_end, part.asked = end, False
    if not part.matched or message.shipped < 0 or (message.shipped > end and seen_end == end):
        ask(state, part, sender)
    take_committed(state, part, message.committed)


def ask(state: MemberState, part: Following, leader: str) -> None:
    """Say what this log is, once between two heartbeats: the answer brings bytes, of which each could ask again."""
    log = state.log
    if part.asked:
        return
    part.asked = True
    state.forget_unappended()
    state.send(leader, Position(state.hard.term, log.rows, log.first, log.end))


def take_committed(state: MemberState, part: Following, told: int) -> None:
    """Commit what the leader says, as far as it is known to be the same and is on this disk."""
    if told > part.told:
        part.told = state.told = told
    if safety.may_report(part.matched):
        state.commit(safety.bounded_by_own(part.told, state.log.synced))


def on_unrelated(state: MemberState, now_s: float, sender: str, message: Unrelated) -> None:
    """Nothing more can be taken from this leader; one whose log went on meanwhile may send more yet."""
    part = follow(state, now_s, sender)
    if part is not None:
        part.trouble = f"{message.reason}: {TAKE_ANEW}"


def on_match(state: MemberState, now_s: float, sender: str, message: Match) -> None:
    """Cut to the common point, or go on at once where there is nothing to cut."""
    part, log = follow(state, now_s, sender), state.log
    if part is None or state.cutting is not None or part.stuck or not safety.may_match(part.matched):
        return
    if not safety.answers_this((message.last_term, message.end), (log.last_term, log.end)):
        return
    if len(message.rows) > ROWS_KEPT or not are_rising((*message.rows, Row(message.term + 1, 1 << 63))):
        return
    part.leader_end = message.leader_end
    if not log.rows and log.end == log.first and message.start >= log.end:
        _restart(state, part, message)
    elif message.start < log.end:
        _cut(state, part, message)
    elif message.start == log.end:
        matched(state, part)


def _restart(state: MemberState, part: Following, message: Match) -> None:
    log = state.log
    if message.start == log.end:
        log.restart(message.start, message.rows, message.configs)
        state.out.table = log.table
        matched(state, part)
    else:
        reason = f"the log is empty, the leader's begins at {message.start}"
        cut = LogCut(message.start, reason, restart=True)
        state.cutting = OpenCut(cut, message.term, message.rows, message.configs)
        state.out.cut = cut


def _cut(state: MemberState, part: Following, message: Match) -> None:
    log, rules = state.log, state.rules
    may_lose = (rules.manual or not rules.counts_copies) and message.start > 0  # at 0: perhaps a foreign log
    if safety.was_leaders(log.last_term, message.term):
        return
    if message.start < log.first or not safety.may_cut(message.start, log.committed, may_lose):
        part.trouble = (
            f"the leader's log agrees up to {message.start}, this one is committed up to {log.committed}: acknowledged "
            f"records would go. {TAKE_ANEW}, and keeps the records in `replaced-…`"
        )
        return
    reason = f"the leader of term {message.term} has other records from {message.start} on"
    cut = LogCut(message.start, reason, below_committed=message.start < log.committed)
    state.cutting = OpenCut(cut, message.term, (), ())
    state.out.cut = cut


def on_cut_done(state: MemberState, now_s: float, log_offset: int) -> None:
    """The log ends where it was to be cut. Raises ValueError when that was elsewhere."""
    cutting, log, part = state.cutting, state.log, state.part
    if cutting is None or cutting.cut.log_offset != log_offset:
        raise ValueError(f"a cut at {log_offset} was not asked for")
    state.cutting = None
    if cutting.cut.restart:
        log.restart(log_offset, cutting.rows, cutting.configs)
    else:
        log.cut(log_offset)
    state.out.table = log.table
    if isinstance(part, Following) and cutting.term == state.hard.term and state.leader:
        matched(state, part)


def matched(state: MemberState, part: Following) -> None:
    """This log is the beginning of the leader's: what is on disk counts from now on."""
    part.matched = True
    report(state, part)


def report(state: MemberState, part: Following) -> None:
    """Tell the leader what is on this disk."""
    if state.leader and not state.disk_error and safety.may_report(part.matched):
        state.send(state.leader, Synced(state.hard.term, state.log.synced))
        take_committed(state, part, 0)


def on_append(state: MemberState, now_s: float, sender: str, message: Append) -> None:
    """Take the bytes if they continue this log; ask for others if they cannot."""
    part, log = follow(state, now_s, sender), state.log
    if part is None or state.cutting is not None or part.stuck or state.is_witness:
        return
    take_committed(state, part, message.committed)
    if not safety.may_take(part.matched):
        ask(state, part, sender)
    elif safety.follows_on(message.start, message.previous_term, log.end, log.last_term):
        part.trouble = ""
        _accept(state, message)
    elif message.end <= log.end:
        report(state, part)
    else:
        ask(state, part, sender)


def _accept(state: MemberState, message: Append) -> None:
    log = state.log
    state.forget_unappended()
    if message.bytes_term != log.last_term:
        if not log.last_term < message.bytes_term <= message.term or message.row_start != message.start:
            return
        log.begin_row(Row(message.bytes_term, message.start))
        state.out.table = log.table
    for config in message.configs:
        if message.start <= config.start < message.end:
            log.add_config(config)
            state.out.table = log.table
    state.out.accepted = message


# ---- the witness


def on_witness_row(state: MemberState, now_s: float, sender: str, message: WitnessRow) -> None:
    """Keep the row if it is above the one kept; then no candidate with less gets this vote."""
    if follow(state, now_s, sender) is None or not state.is_witness:
        return
    if not safety.knows_its_votes(state.is_new_witness, state.knows_terms):
        return
    if (message.last_term, message.end) > (state.hard.row_term, state.hard.row_end):
        state.promise(state.hard._replace(row_term=message.last_term, row_end=message.end, filling=False))
    if (state.hard.row_term, state.hard.row_end) == (message.last_term, message.end):
        state.send(sender, WitnessSynced(message.term, message.last_term, message.end))
