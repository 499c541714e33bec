"""What members of a group say to each other. `term` is always the sender's term, unless a field says otherwise.

All log offsets are bytes of the CommitLog. "Last term" is the term of a log's last byte, 0 of an empty log.
Every message may be lost, late, doubled or out of order: the core relies on none of these.
"""

from storage_driver.consensus.members import MembersAt
from storage_driver.consensus.terms import Row
from storage_driver.named_tuple import NamedTuple


class PreVote(NamedTuple):
    """Would you vote for me? Changes nothing at the receiver."""

    term: int  # the term that the sender would begin, its own + 1
    last_term: int
    end: int
    filling: bool = False  # as in the sender's hard state


class PreVoteReply(NamedTuple):
    """The answer to a PreVote."""

    term: int  # the receiver's own term
    asked: int  # the term of the PreVote that is answered
    granted: bool


class Vote(NamedTuple):
    """Vote for me in this term."""

    term: int
    last_term: int
    end: int
    transfer: bool  # the leader of the term before gave its lease up for this: it need not have run out
    filling: bool = False


class VoteReply(NamedTuple):
    """The answer to a Vote; leaves only after the vote is synced."""

    term: int
    granted: bool


class LeaderHeartbeat(NamedTuple):
    """I lead this term. Sent at its begin and every heartbeat interval."""

    term: int
    committed: int
    shipped: int  # log offset up to which the leader has sent bytes to this member; -1: it asks for its Position
    sent_s: float  # the leader's clock; comes back in the answer, means nothing to anybody else


class FollowerReply(NamedTuple):
    """Follower to leader: I follow you. Repeats the newest Synced, which may have been lost."""

    term: int
    sent_s: float
    synced: int  # as in Synced; -1: nothing to report


class Position(NamedTuple):
    """Follower to leader, after it connected or when bytes are missing: this is my log, where do we agree?"""

    term: int
    rows: tuple[Row, ...]
    first: int
    end: int


class Match(NamedTuple):
    """Leader to follower: our logs agree below `start`; cut what you have above, bytes follow from there."""

    term: int
    last_term: int  # of the Position that is answered: the answer is void when the follower's log has changed
    end: int  # the same
    start: int
    rows: tuple[Row, ...]  # the leader's rows that begin below start; an empty log takes them over
    configs: tuple[MembersAt, ...]  # likewise
    leader_end: int  # of the leader's log: nothing above was ever acknowledged in this term before


class Unrelated(NamedTuple):
    """Leader to follower: your log cannot be continued; this member needs a person."""

    term: int
    reason: str


class Append(NamedTuple):
    """Whole records follow: [start, start + length), all of one term and within one segment."""

    term: int
    start: int
    length: int
    bytes_term: int  # the term in which these bytes were appended
    row_start: int  # where that term begins in the leader's log, at most start
    previous_term: int  # of the byte before start
    crc: int  # CRC-32 of the bytes; the driver checks it before it appends
    committed: int
    configs: tuple[MembersAt, ...]  # changes of the members that begin within the range

    @property
    def end(self) -> int:
        """The log offset just past the bytes."""
        return self.start + self.length


class Synced(NamedTuple):
    """Follower to leader: everything below `log_offset` is what the leader has, and is on my disk."""

    term: int
    log_offset: int


class WitnessRow(NamedTuple):
    """Leader to witness while a box is out: keep this row, it stands for what you have."""

    term: int
    last_term: int
    end: int


class WitnessSynced(NamedTuple):
    """Witness to leader: the row is on my disk."""

    term: int
    last_term: int
    end: int


class CampaignNow(NamedTuple):
    """Leader to the member that takes over: you have everything, my lease is given up, begin an election now."""

    term: int


class Outdated(NamedTuple):
    """The answer to a message of an older term: the sender's term is over."""

    term: int


Message = (
    PreVote
    | PreVoteReply
    | Vote
    | VoteReply
    | LeaderHeartbeat
    | FollowerReply
    | Position
    | Match
    | Unrelated
    | Append
    | Synced
    | WitnessRow
    | WitnessSynced
    | CampaignNow
    | Outdated
)
