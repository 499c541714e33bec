"""What the core wants done. The driver carries out one Effects after the other, each in the order of its fields."""

from typing import Literal

from storage_driver.consensus.hard_state import HardState
from storage_driver.consensus.members import Configs, Members
from storage_driver.consensus.messages import Append, Message
from storage_driver.consensus.terms import Rows
from storage_driver.named_tuple import NamedTuple

Role = Literal["follower", "candidate", "leader"]


class TermTable(NamedTuple):
    """What stands beside the log: its terms and its members, oldest first. Saved as a whole."""

    rows: Rows
    configs: Configs


class LogCut(NamedTuple):
    """Take everything above a log offset out of the log, then call `cut_done`. Meanwhile nothing is appended.

    `restart`: the log is empty; it is to begin at this log offset (`MessageStore.begin_at`).
    `below_committed`: acknowledged records go; only with manual elections, or without copies. An alarm.
    """

    log_offset: int
    reason: str
    restart: bool = False
    below_committed: bool = False


class BeginTerm(NamedTuple):
    """This member leads from now on: append the term's first record, with term and members, then call `appended`."""

    term: int
    log_offset: int
    members: Members


class FollowerProgress(NamedTuple):
    """How far another member is, as its leader knows it."""

    member: str
    matched: bool  # its log agrees with the leader's: bytes can be shipped
    next: int  # log offset of the first byte that is not shipped yet
    synced: int
    heard_s: float  # the leader's clock when it last answered; -1.0: never in this term


class MemberStatus(NamedTuple):
    """What a member is. `ready`: it leads, its term's first record is committed, and it hands over to nobody."""

    role: Role
    term: int
    leader: str  # empty: unknown
    ready: bool
    transferring_to: str  # appends are refused meanwhile
    solo: bool  # it leads alone, by force, until another disk has all that is committed
    members: Members
    trouble: str  # why this member takes nothing from the leader; a person has to act


class Effects(NamedTuple):
    """Carried out in the order of the fields; the next Effects only after this one.

    1. `hard_state` is written and synced. When that fails nothing else is done, ever: the member stops.
    2. `table` is written and synced. The same.
    3. `cut` begins; `cut_done` is called when its journal is finished.
    4. `accepted`: the bytes behind this Append are checked (CRC, whole records) and appended, then `appended` is
       called. When they cannot be appended they are dropped: the core asks for them again.
       `begin_term`, `members`: the leader appends a record that names them, then calls `appended`. That of
       `begin_term` is the first record of the term: nothing is appended before it.
    5. `send`: the messages leave. None may leave before 1 and 2 are synced.
    6. `committed`: the store's mark moves; never down, but for a cut with `below_committed`.
    """

    hard_state: HardState | None = None
    table: TermTable | None = None
    cut: LogCut | None = None
    accepted: Append | None = None
    begin_term: BeginTerm | None = None
    members: Members | None = None
    send: tuple[tuple[str, Message], ...] = ()
    committed: int | None = None
    status: MemberStatus | None = None  # present when it differs from the last one


class Start(NamedTuple):
    """What recovery found. Everything of the log is on disk, so its end is what is synced."""

    hard_state: HardState
    table: TermTable  # as it was saved; rows and members above the end are ignored
    first: int
    end: int
    committed: int
