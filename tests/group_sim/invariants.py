"""What must hold after every step: the five properties of the Raft paper, and ours."""

from collections.abc import Mapping

from storage_driver.consensus.effects import MemberStatus
from storage_driver.consensus.messages import (
    FollowerReply,
    Message,
    PreVote,
    Synced,
    Vote,
    VoteReply,
    WitnessSynced,
)
from storage_driver.consensus.quorum import kth_largest, majority
from tests.group_sim.records import Fault, SimRecord
from tests.group_sim.sim_disk import SimDisk


class Invariants:
    """What the whole group has promised so far. `strict`: nobody said that acknowledged records may go."""

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self.leaders: dict[int, str] = {}
        self.committed: list[SimRecord] = []  # acknowledged, in order
        self.commit_terms: list[int] = []  # of the leader that committed each
        self.checks = 0

    # ---- before a message leaves

    def check_sent(self, disk: SimDisk, sender: str, to: str, message: Message) -> None:
        """Hard state and bytes are on disk before what depends on them leaves."""
        hard, kind = disk.hard, type(message)
        if kind is PreVote:
            return
        if message.term > hard.term:
            raise Fault(f"{sender} sends {message} with a term that is not synced: {hard}")
        if kind is Vote and message.term == hard.term and hard.voted_for != sender:
            raise Fault(f"{sender} campaigns and its own vote is not synced: {hard}")
        if isinstance(message, VoteReply) and message.granted and (hard.term, hard.voted_for) != (message.term, to):
            raise Fault(f"{sender} votes for {to} and has not synced it: {hard}")
        if isinstance(message, Synced) and message.log_offset > disk.synced_end():
            raise Fault(f"{sender} reports {message.log_offset}, its disk has {disk.synced_end()}")
        if isinstance(message, FollowerReply) and message.synced > disk.synced_end():
            raise Fault(f"{sender} reports {message.synced}, its disk has {disk.synced_end()}")
        if isinstance(message, WitnessSynced) and (hard.row_term, hard.row_end) < (message.last_term, message.end):
            raise Fault(f"{sender} reports a row that is not synced: {message}, {hard}")

    # ---- roles

    def check_leader(self, member: str, disk: SimDisk, term: int, *, forced: bool) -> None:
        """Election safety, and leader completeness."""
        if self.leaders.setdefault(term, member) != member:
            raise Fault(f"election safety: {member} and {self.leaders[term]} lead term {term}")
        if self.strict and not forced:
            self._check_complete(member, disk, term)

    def _check_complete(self, member: str, disk: SimDisk, term: int) -> None:
        for at in range(len(self.committed) - 1, -1, -1):
            if self.commit_terms[at] < term:
                if len(disk.log) <= at or disk.log[at] != self.committed[at]:
                    raise Fault(f"leader completeness: {member} leads term {term} without {self.committed[at]}")
                return

    def check_leases(self, holders: list[tuple[int, str]], ready: list[tuple[int, str]]) -> None:
        """While a leader holds its lease no later one serves."""
        if len(holders) > 1:
            raise Fault(f"two leases: {holders}")
        if holders and ready and max(ready)[0] > holders[0][0]:
            raise Fault(f"{max(ready)} serves while {holders[0]} holds a lease")

    # ---- what is committed

    def check_commit(
        self, member: str, disks: Mapping[str, SimDisk], status: MemberStatus, before: int, committed: int
    ) -> None:
        """Committed never falls, is on this disk, and is the same for everybody."""
        disk = disks[member]
        if committed <= before:
            raise Fault(f"{member}: committed goes from {before} to {committed}")
        count = disk.index(committed)
        if count > disk.synced:
            raise Fault(f"{member} shows {committed}, its disk has {disk.synced_end()}")
        if not self.strict:
            return
        known = min(count, len(self.committed))
        if known and self.committed[known - 1] != disk.log[known - 1]:
            raise Fault(f"state machine safety: {member} {disk.log[known - 1]}, before {self.committed[known - 1]}")
        if count > known:
            if status.role != "leader":
                raise Fault(f"{member} is no leader and commits {committed} first")
            self.committed += disk.log[known:count]
            self.commit_terms += [status.term] * (count - known)

    def check_later_leaders(self, member: str, disk: SimDisk, term: int) -> None:
        """A leader of a later term has what an earlier one commits only now."""
        if self.strict:
            self._check_complete(member, disk, term)

    def check_copies(self, disks: Mapping[str, SimDisk], status: MemberStatus, committed: int, copies: int) -> None:
        """Enough disks really have what was just committed."""
        members, record = status.members, self.committed[-1]
        if not self.strict or record.end != committed:
            return
        at, have = len(self.committed) - 1, {}
        for name in members.boxes:
            disk = disks[name]
            have[name] = int(disk.synced > at and disk.log[at] == record)
        row = (status.term, committed)
        rows = {name: int((disks[name].hard.row_term, disks[name].hard.row_end) >= row) for name in members.witnesses}
        voters = [*have.values(), *rows.values()]
        if not kth_largest(voters, majority(len(voters))):
            raise Fault(f"{committed} is committed, its voters have {have} {rows}")
        if sum(have.values()) < min(copies, len(have)):
            raise Fault(f"{committed} is committed, boxes have {have}, wanted {copies}")

    def check_cut(self, member: str, role: str, disk: SimDisk, log_offset: int, committed: int) -> None:
        """Leader append-only, and no cut below committed, nor of anything that was acknowledged anywhere."""
        count = disk.index(log_offset)
        if self.strict and count < len(disk.log) and disk.log[count] in self.committed[count : count + 1]:
            raise Fault(f"{member} cuts to {log_offset}, which takes the acknowledged {disk.log[count]}")
        if role == "leader":
            raise Fault(f"leader append-only: {member} cuts to {log_offset}")
        if self.strict and log_offset < committed:
            raise Fault(f"{member} cuts to {log_offset}, committed is {committed}")
