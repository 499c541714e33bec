"""One member of a group between two events: its promises, its log, its role."""

from storage_driver.consensus import safety
from storage_driver.consensus.effects import MemberStatus, Start
from storage_driver.consensus.hard_state import HardState
from storage_driver.consensus.log_state import LogState
from storage_driver.consensus.messages import Message
from storage_driver.consensus.pending import PendingEffects
from storage_driver.consensus.roles import Campaigning, Following, Leading, OpenCut
from storage_driver.consensus.rules import OTHERS_FIRST_S, Rules
from storage_driver.errors import ConsensusRefused


class AskedTerms:
    """The terms of the other boxes, as a member with a new disk has asked for them."""

    def __init__(self, question: int) -> None:
        self.question = question  # another one in each life: the term of its PreVotes, by which it knows the answers
        self.terms: dict[str, int] = {}


class ElectionTimer:
    """For how long a member has heard no leader, and how long it waits for one."""

    def __init__(self, now_s: float) -> None:
        self.since_s, self.timeout_s = now_s, 0.0  # 0: to be drawn
        self.stands_back = False  # other boxes have their turn first


class MemberState:
    """What the rules of the other modules read and change."""

    def __init__(self, me: str, rules: Rules, start: Start, now_s: float) -> None:
        self.me, self.rules = me, rules
        self.hard, self.log = start.hard_state, LogState(start)
        if self.log.last_term > self.hard.term:
            raise ConsensusRefused(
                f"the log has term {self.log.last_term}, the vote file term {self.hard.term}: it is not this log's; "
                "remove this member, let it join under a new id"
            )
        self.part: Following | Campaigning | Leading = Following()
        self.leader = ""
        self.heard_s = now_s  # before the start it may have promised a leader not to vote
        self.told = 0  # what the last leader has said to be committed
        self.timer = ElectionTimer(now_s)
        self.cutting: OpenCut | None = None
        self.disk_error = ""
        self.asked = AskedTerms(int(now_s * 1000) % (1 << 30) + 1)
        self.out = PendingEffects()
        if self.log.table != start.table:
            self.out.table = self.log.table  # the file must not come back to rows of bytes that are gone

    @property
    def is_box(self) -> bool:
        """Whether this member may lead."""
        return self.me in self.log.members.boxes

    @property
    def is_witness(self) -> bool:
        """Whether this member has no log."""
        return self.me in self.log.members.witnesses

    @property
    def is_new_witness(self) -> bool:
        """Whether this witness may have lost its votes and its row with a disk."""
        return self.hard.filling and self.is_witness

    @property
    def knows_terms(self) -> bool:
        """Whether every other box has told this member its term."""
        return self.asked.terms.keys() >= set(self.log.members.boxes) - {self.me}

    @property
    def campaign_s(self) -> float:
        """When this member campaigns unless it hears a leader; who stands back does so after the other boxes.

        A candidate has given them their turn; with manual elections nobody else campaigns.
        """
        timer = self.timer
        others_first = timer.stands_back and isinstance(self.part, Following) and not self.rules.manual
        return timer.since_s + timer.timeout_s + (OTHERS_FIRST_S * self.rules.scale if others_first else 0.0)

    def send(self, to: str, message: Message) -> None:
        """Let a message leave with the effects of this event."""
        self.out.send.append((to, message))

    def promise(self, hard: HardState) -> None:
        """Change the hard state; it is synced before any message leaves."""
        if hard != self.hard:
            self.hard = self.out.hard_state = hard

    def adopt_term(self, term: int) -> None:
        """Leave the own term for a higher one: no vote in it yet, no leader known."""
        self.promise(self.hard._replace(term=term, voted_for=""))
        self.follow_nobody()

    def follow_nobody(self) -> None:
        """Become a follower that waits for a leader."""
        self.part, self.leader = Following(), ""

    def forget_unappended(self) -> None:
        """Drop rows and members of bytes that were accepted and never appended, in the file as well."""
        before = self.log.table
        self.log.forget_unappended()
        if self.log.table != before:
            self.out.table = self.log.table

    def commit(self, log_offset: int) -> None:
        """Let committed rise."""
        log = self.log
        if log_offset > log.committed:
            log.committed = self.out.committed = log_offset
        if self.hard.filling and log.committed and self._is_filled():
            self.promise(self.hard._replace(filling=False))

    def _is_filled(self) -> bool:
        log, part, own = self.log, self.part, self.hard.term
        return (
            safety.has_terms_before(log.term_below(log.committed), own)
            and safety.has_term_of_old_disk(log.committed, part.leader_end if isinstance(part, Following) else 0)
            and (self.rules.manual or safety.is_newest(own, self.asked.terms.values(), knows_terms=self.knows_terms))
        )

    def status(self) -> MemberStatus:
        """Return what this member is now."""
        part, log = self.part, self.log
        ready, to, solo, trouble = False, "", False, ""
        if isinstance(part, Leading):
            to, solo = part.transfer.to if part.transfer else "", part.solo
            ready = part.first_end is not None and log.committed >= part.first_end and not to
        elif isinstance(part, Following):
            trouble = part.trouble
        return MemberStatus(
            part.role, self.hard.term, self.leader, ready, to, solo, log.members, trouble or self.disk_error
        )
