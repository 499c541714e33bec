"""Every rule on which safety rests, each a function of its own: tests take one away at a time and must see a fault.

Everything else in this package may be slow, wordy or late; it cannot lose a record or elect two leaders. Rules are
called as `safety.rule(...)`.
"""

from collections.abc import Iterable

from storage_driver.consensus.hard_state import HardState

MOST_TERM = 1 << 62
MOST_STEP = 1 << 32  # each step costs a sync: 2^62 are not reached in a lifetime


def has_all(their_term: int, their_end: int, own_term: int, own_end: int) -> bool:
    """Whether a candidate's log has everything that may be committed in ours: last term first, then length."""
    return (their_term, their_end) >= (own_term, own_end)


def row_counts(hard: HardState, own_term: int, own_end: int) -> tuple[int, int]:
    """Return last term and end that a candidate must reach: those of the log or, above them, a witness's row."""
    return max((own_term, own_end), (hard.row_term, hard.row_end))


def vote_is_free(hard: HardState, candidate: str) -> bool:
    """Whether the vote of this term is still to give, or was given to the same candidate."""
    return hard.voted_for in ("", candidate)


def may_follow(term: int, own_term: int) -> bool:
    """Whether a message's term can be: nobody is to use the terms up, by one message or by many.

    By force a term rises by two million. A member that has just begun takes any: its group may be old.
    """
    return term < MOST_TERM and (own_term <= 1 or term - own_term <= MOST_STEP)


def knows_its_votes(is_new_witness: bool, knows_terms: bool) -> bool:
    """Whether a member knows for which terms it may have voted.

    A witness whose disk is new has forgotten. Whoever got its vote had begun the term before: what all boxes say is
    their term, asked since its start, is the last one that it may have voted in.
    """
    return knows_terms or not is_new_witness


def boxes_have_all(copies: int, boxes: int, *, has_witness: bool, voter_is_filling: bool) -> bool:
    """Whether a box's vote is good whatever its disk has lost: all boxes have what is committed, none has voted twice.

    Where a witness votes, too, a term may have had a leader without the vote of the other box.
    """
    return copies >= boxes and not (has_witness and voter_is_filling)


def may_elect(voter_is_filling: bool, candidate_is_filling: bool, all_have_all: bool) -> bool:
    """Whether a vote says what it seems to: that whatever this member acknowledged the candidate has.

    A member whose disk was replaced knows neither what it acknowledged nor how it voted. It votes for its like, as when
    a group begins, and in a pair without a witness: there every box has everything that is committed, and no term has a
    leader for whom the other has not voted.
    """
    return all_have_all or voter_is_filling == candidate_is_filling


def has_terms_before(term_of_committed: int, own_term: int) -> bool:
    """Whether a member with a new disk has all that was committed before this term: something of this term is."""
    return term_of_committed == own_term


def has_term_of_old_disk(committed: int, leader_end: int) -> bool:
    """Whether it has all that its old disk acknowledged in this term: no more than the leader had when it came back."""
    return committed >= leader_end


def is_newest(own_term: int, others: Iterable[int], *, knows_terms: bool) -> bool:
    """Whether its old disk can have acknowledged nothing in a later term: no other box, all asked since, knows one."""
    return knows_terms and all(term <= own_term for term in others)


def refuses_to_vote(now_s: float, heard_s: float, refusal_s: float) -> bool:
    """Whether a leader was heard so shortly ago that its lease may hold; a start counts as heard."""
    return now_s - heard_s < refusal_s


def lease_holds(now_s: float, quorum_sent_s: float, lease_s: float, given_up: bool) -> bool:
    """Whether a majority still refuses others: it answered what was sent then, and the lease was not given up."""
    return not given_up and now_s < quorum_sent_s + lease_s


def may_commit(log_offset: int, first_end: int) -> bool:
    """Whether counting disks commits: only from the end of the own term's first record on (Raft paper, figure 8)."""
    return log_offset >= first_end


def bounded_by_own(log_offset: int, own_synced: int) -> int:
    """Return the part of it that this disk has: what is committed survives a restart of whoever shows it."""
    return min(log_offset, own_synced)


def counted(reported: int, leader_end: int) -> int:
    """Return what a follower's report is worth: nobody has more of the leader's log than the leader."""
    return min(reported, leader_end)


def may_cut(start: int, committed: int, may_lose: bool) -> bool:
    """Whether a follower may cut there: never below committed, unless a person took that upon himself."""
    return start >= committed or may_lose


def was_leaders(last_term: int, term: int) -> bool:
    """Whether the log's last byte is of this term's leader: then it agrees with the leader's log to its end."""
    return last_term == term


def answers_this(asked: tuple[int, int], own: tuple[int, int]) -> bool:
    """Whether a Match answers the log as it is now; an older answer would cut what was reported since."""
    return asked == own


def follows_on(start: int, previous_term: int, own_end: int, own_last_term: int) -> bool:
    """Whether bytes continue this log: they begin at its end, behind a byte of the same term."""
    return start == own_end and previous_term == own_last_term


def may_take(matched: bool) -> bool:
    """Whether bytes of this leader may be appended: when the log is the beginning of its log. Beside `follows_on`."""
    return matched


def may_match(matched: bool) -> bool:
    """Whether a Match may still change this log: one that agrees with the leader's does so for the whole term."""
    return not matched


def witness_counts(copies: int) -> bool:
    """Whether a box and a witness commit: only where one copy of the bytes is enough."""
    return copies == 1


def may_report(matched: bool) -> bool:
    """Whether this disk counts for the leader: only when the log is known to be the beginning of the leader's."""
    return matched


def may_change_members(committed: int, first_end: int, last_change: int) -> bool:
    """Whether a change may begin: the own term has committed a record, and the change before is committed."""
    return committed >= first_end and committed > last_change
