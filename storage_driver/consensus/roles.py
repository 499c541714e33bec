"""What a member keeps while it follows, campaigns or leads, and no longer."""

from storage_driver.consensus.effects import LogCut, Role
from storage_driver.consensus.members import Configs
from storage_driver.consensus.terms import Rows
from storage_driver.named_tuple import NamedTuple

NEVER = -1.0e18
NEVER_ENDS = 1 << 63


class Following:
    """A follower, or a member that does not know its leader yet."""

    role: Role = "follower"

    def __init__(self) -> None:
        self.matched = False  # the log is the beginning of the leader's
        self.told = 0  # the leader's committed
        self.leader_end = NEVER_ENDS  # of the leader's log when it answered this member's Position
        self.seen_end = -1  # own end at the last heartbeat
        self.asked = False  # its Position was sent since the last heartbeat
        self.trouble = ""  # why nothing more can be taken from this leader

    @property
    def stuck(self) -> bool:
        """Whether this log is not the beginning of the leader's, and cannot be made that."""
        return bool(self.trouble) and not self.matched


class Campaigning:
    """A candidate, or a member that asks whether it would be elected."""

    role: Role = "candidate"

    def __init__(self, me: str, term: int, *, pre: bool, transfer: bool = False) -> None:
        self.term, self.pre, self.transfer = term, pre, transfer
        self.votes = {me}


class Transfer(NamedTuple):
    """The leadership goes to a member; `told`: it was told to campaign, the lease is given up."""

    to: str
    deadline_s: float
    told: bool = False


class PeerProgress:
    """One other member, as the leader knows it in this term."""

    def __init__(self, now_s: float) -> None:
        self.matched = False
        self.next = 0  # log offset of the first byte that is not shipped; of a witness: the row that was sent
        self.synced = 0
        self.heard_s = NEVER  # when the newest heartbeat was sent that it answered
        self.level_s = NEVER  # since when it has been close to the leader's end; NEVER: it is not
        self.goal = 0  # what the leader's disk had at a heartbeat, and this one is to have next
        self.kept_s = now_s  # when it had that last, and was close to the leader's end unless it had kept up before


class Leading:
    """The leader of a term."""

    role: Role = "leader"

    def __init__(self, now_s: float, *, solo: bool) -> None:
        self.progress: dict[str, PeerProgress] = {}
        self.first_end: int | None = None  # end of the term's first record, None until it is appended
        self.transfer: Transfer | None = None
        self.lease_given_up = False
        self.solo = self.alone = solo  # alone: it commits alone; solo: it needs no majority
        self.since_s = self.wanted_s = now_s  # wanted: when another member was last wanted to lead
        self.heartbeat_s = now_s  # when the next one is due
        self.unsynced_s: float | None = None  # since when the disk has not finished a sync that is due


class OpenCut(NamedTuple):
    """A cut that the driver carries out, and what the log is afterwards if it is a restart."""

    cut: LogCut
    term: int
    rows: Rows
    configs: Configs
