"""A whole group in one thread from one seed: time, network, members, invariants."""

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

from storage_driver.consensus.effects import MemberStatus, TermTable
from storage_driver.consensus.members import Members, MembersAt
from storage_driver.consensus.rules import Rules
from tests.group_sim.invariants import Invariants
from tests.group_sim.records import Envelope, Fault, SimRecord
from tests.group_sim.sim_disk import SimDisk
from tests.group_sim.sim_member import SimMember

MOST_STEPS = 20_000


class World:
    """One simulated group. `trace` collects what happens, for a seed that fails."""

    def __init__(self, seed: int, members: Members, rules: Rules, *, strict: bool = True, trace: bool = False) -> None:
        self.pick = Random(seed)
        self.now = 0.0
        self.rules = rules
        self.invariants = Invariants(strict=strict)
        self.trace: list[str] | None = [] if trace else None
        self.steps = self.writes = 0
        self.loss = self.doubled = self.slow = 0.0
        self.cut_chance = 0.0  # of a power cut at each effect
        self.cuts: set[tuple[str, str]] = set()  # directed
        self.calm = self.replaced = False
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = self._number = 0
        self.first_members = members
        self.members: dict[str, SimMember] = {}
        self.disks: dict[str, SimDisk] = {}
        self.roles: dict[str, MemberStatus] = {}
        self.leading = 0  # members that think so
        for name in members.all:
            self.add_member(name, members)

    def add_member(self, name: str, members: Members) -> SimMember:
        """Create a member with an empty disk; it is not started yet."""
        disk = SimDisk(TermTable((), (MembersAt(-1, members),)))
        self.disks[name] = disk
        member = self.members[name] = SimMember(self, name, self.rules, disk)
        return member

    def replace_disk(self, member: SimMember) -> None:
        """Give a member that is down an empty disk."""
        disk = SimDisk(TermTable((), (MembersAt(-1, self.first_members),)))
        self.disks[member.name] = member.disk = disk
        member.committed = 0

    # ---- time

    def at(self, time: float, call: Callable[..., None], *args: Any) -> None:
        """Call something at a time."""
        self._count += 1
        heappush(self._events, (time, self._count, call, args))

    def run_until(self, time: float) -> None:
        """Let everything happen up to a time."""
        events = self._events
        while events and events[0][0] <= time and self.steps <= MOST_STEPS:
            self.now, _, call, args = heappop(events)
            self.steps += 1
            call(*args)
        if self.steps > MOST_STEPS:
            raise Fault(f"{self.steps} steps in {self.now:.1f} s: messages without end")
        self.now = time

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.now:9.4f} {text}")

    # ---- network

    def send(self, envelope: Envelope) -> None:
        """Deliver later, twice, or never."""
        pick = self.pick
        if (envelope.sender, envelope.to) in self.cuts or envelope.to not in self.members:
            return
        if not self.calm:
            chance = pick.random()
            if chance < self.loss:
                return
            if chance < self.loss + self.doubled:
                self.at(self.now + pick.uniform(0.001, 2.0), self._deliver, envelope)
        delay = pick.expovariate(1 / 0.005)
        if not self.calm and self.slow and pick.random() < self.slow:
            delay += pick.expovariate(1.0)
        self.at(self.now + delay, self._deliver, envelope)

    def _deliver(self, envelope: Envelope) -> None:
        if (envelope.sender, envelope.to) in self.cuts:
            return
        if self.trace is not None:
            self.note(f"{envelope.sender} → {envelope.to} {envelope.message}")
        self.members[envelope.to].receive(envelope)

    # ---- members

    def new_record(self, disk: SimDisk, term: int) -> SimRecord:
        """Return a record that nobody has yet."""
        self._number += 1
        start, before = disk.end, disk.log[-1].number if disk.log else 0
        return SimRecord(self._number, term, start, start + self.pick.randrange(10, 100), before)

    def cut_here(self) -> bool:
        """Whether the power goes now."""
        return bool(self.cut_chance) and not self.calm and self.pick.random() < self.cut_chance

    def restart_later(self, member: SimMember, most_s: float = 4.0) -> None:
        """Start a member that is down after a while."""
        self.roles.pop(member.name, None)
        self.at(self.now + self.pick.uniform(0.01, most_s), self._restart, member, member.life)

    def _restart(self, member: SimMember, life: int) -> None:
        if member.core is None and member.life == life:
            self.note(f"{member.name} starts: {member.disk.hard} end {member.disk.end}")
            member.start()

    def status_changed(self, member: SimMember, status: MemberStatus) -> None:
        """A member is something else than before."""
        before = self.roles.get(member.name)
        self.roles[member.name] = status
        self.leading = sum(each.role == "leader" for each in self.roles.values())
        if self.trace is not None:
            self.note(f"{member.name} is {status}")
        if status.role == "leader" and (before is None or before.role != "leader" or before.term != status.term):
            self.invariants.check_leader(member.name, member.disk, status.term, forced=status.solo)

    def committed(self, member: SimMember, committed: int) -> None:
        """A member's mark moves."""
        assert member.core is not None
        status, invariants, known = member.core.status, self.invariants, len(self.invariants.committed)
        if self.trace is not None:
            self.note(f"{member.name} commits {committed}")
        invariants.check_commit(member.name, self.disks, status, member.committed, committed)
        member.committed = committed
        if self.pick.random() < 0.3:
            member.disk.committed = committed
        if len(invariants.committed) > known:
            if not status.solo and member.rules.counts_copies and not self.replaced:
                invariants.check_copies(self.disks, status, committed, member.rules.copies)
            for name, other in self.roles.items():
                if other.role == "leader" and other.term > status.term:
                    invariants.check_later_leaders(name, self.disks[name], other.term)

    def after(self, member: SimMember) -> None:
        """Check what concerns several members at once."""
        if self.leading < 2 or self.rules.manual:
            return
        leaders = [(status.term, name) for name, status in self.roles.items() if status.role == "leader"]
        holders, ready = [], []
        for term, name in leaders:
            other = self.members[name]
            if other.core is None or other.core.alone:  # a person vouches for it
                continue
            if other.core.lease_held(other.clock()):
                holders.append((term, name))
            if other.core.status.ready:
                ready.append((term, name))
        self.invariants.check_leases(holders, ready)

    def leader(self) -> SimMember | None:
        """Return the member that leads the highest term, if any does."""
        leading = [(status.term, name) for name, status in self.roles.items() if status.role == "leader"]
        return self.members[max(leading)[1]] if leading else None
