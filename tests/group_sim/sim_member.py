"""One simulated member: the core, its disk, its clock, and a driver that may lose the power at every effect."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from storage_driver.consensus.core import Core
from storage_driver.consensus.effects import Effects
from storage_driver.consensus.messages import Append
from storage_driver.consensus.rules import Rules
from storage_driver.errors import ConsensusRefused
from tests.group_sim.records import Envelope, SimRecord
from tests.group_sim.sim_disk import SimDisk

if TYPE_CHECKING:
    from tests.group_sim.world import World

MOST_SHIPPED = 4
UNSYNCED_S = 0.05  # between two looks whether the disk has what a cut leaves


class PowerCut(Exception):
    """This member lost its power in the middle of something."""


class SimMember:
    """A member that runs, or is down. All times are the world's; the core sees this member's own clock."""

    def __init__(self, world: "World", name: str, rules: Rules, disk: SimDisk) -> None:
        self.world, self.name, self.rules, self.disk = world, name, rules, disk
        self.rate, self.offset = world.pick.uniform(0.9, 1.11), world.pick.uniform(0, 1000)
        self.core: Core | None = None
        self.life = 0  # number of this start; events of earlier ones are void
        self.committed = disk.committed
        self.busy_until = 0.0  # the process does not run: suspended, or starved
        self.stall_until = 0.0  # the disk answers no sync
        self.full_until = 0.0  # the disk takes no records of others
        self.syncing = False
        self.tick_at = float("inf")

    # ---- time and life

    def clock(self) -> float:
        """This member's monotonic clock."""
        return self.offset + self.rate * self.world.now

    def start(self) -> None:
        """Recover and run."""
        self.life += 1
        start = self.disk.recover()
        self.committed = start.committed
        self.syncing, self.tick_at = False, float("inf")
        self.core = Core(self.name, self.rules, start, self.clock())
        self.note_full()

    def crash(self) -> None:
        """Lose the power."""
        self.core = None
        self.life += 1
        self.disk.power_cut(self.world.pick)

    def schedule_tick(self) -> None:
        """See to it that the core's next tick comes."""
        if self.core is None:
            return
        due = self.core.next_tick_s()
        if due == float("inf"):
            return
        at = max((due - self.offset) / self.rate, self.world.now) + 0.001
        if at < self.tick_at:
            self.tick_at = at
            self.world.at(at, self._tick, self.life)

    def _tick(self, life: int) -> None:
        if life != self.life or self.core is None:
            return
        self.tick_at = float("inf")
        if self.world.now < self.busy_until:
            self.tick_at = self.busy_until
            self.world.at(self.busy_until, self._tick, life)
        elif self.clock() >= self.core.next_tick_s():
            core = self.core
            self.act(lambda: core.tick(self.clock(), self.world.pick.random()))
            if self._runs(core) and (to := core.wanted_leader(self.clock())):
                self.order(lambda core: core.transfer(self.clock(), to))
        else:
            self.schedule_tick()

    def _runs(self, core: Core) -> bool:
        """Whether this life of the core still runs: what it was asked may have ended it."""
        return self.core is core

    def fill(self, until: float) -> None:
        """Let the disk be full up to a time of the world."""
        self.full_until = until
        self.note_full()
        self.world.at(until, self.note_full)

    def note_full(self) -> None:
        """Let the core stand back while the disk is full, as the driver does."""
        if self.core is not None:
            self.core.stand_back(self.world.now < self.full_until)
            self.schedule_tick()

    # ---- events

    def act(self, event: Callable[[], Effects], records: tuple[SimRecord, ...] = ()) -> None:
        """Let the core handle an event and do what it wants; a power cut may end that anywhere."""
        try:
            self._carry_out(event(), records)
            self._pump()
            self.schedule_tick()
        except PowerCut:
            self.world.note(f"{self.name} loses its power in the middle")
            self.crash()
            self.world.restart_later(self)
        self.world.after(self)

    def receive(self, envelope: Envelope) -> None:
        """A message arrives."""
        core = self.core
        if core is None:
            return
        if self.world.now < self.busy_until:
            self.world.at(self.busy_until, self.receive, envelope)
            return
        self.act(lambda: core.step(self.clock(), envelope.sender, envelope.message), envelope.records)

    def write(self, count: int) -> None:
        """Clients send records; refused when this member does not serve."""
        core = self.core
        if core is None or self.world.now < self.busy_until or not core.status.ready:
            return
        self.act(lambda: self._append_new(core, count))

    def _append_new(self, core: Core, count: int) -> Effects:
        term = core.status.term
        for _ in range(count):
            self.disk.append(self.world.new_record(self.disk, term))
        self.world.writes += count
        self._sync()
        return core.appended(self.clock(), self.disk.end)

    def order(self, event: Callable[[Core], Effects]) -> bool:
        """A person wants something; return whether it was accepted."""
        core = self.core
        if core is None or self.world.now < self.busy_until:
            return False
        try:
            effects = event(core)
        except ConsensusRefused:
            return False
        self.act(lambda: effects)
        return True

    # ---- the driver

    def _carry_out(self, effects: Effects, records: tuple[SimRecord, ...] = ()) -> None:
        disk, core, world = self.disk, self.core, self.world
        assert core is not None
        if effects.hard_state is not None:
            if world.cut_here():
                disk.tear_vote(effects.hard_state, world.pick)
                raise PowerCut
            disk.save_vote(effects.hard_state)
        if effects.table is not None:
            self._may_cut()
            disk.table = effects.table
        self._may_cut()
        if effects.status is not None:
            world.status_changed(self, effects.status)
        if effects.cut is not None:
            self._begin_cut(effects.cut.log_offset)
        if effects.accepted is not None and world.now >= self.full_until:
            self._accept(core, effects.accepted, records)
        if effects.begin_term is not None or effects.members is not None:
            self._carry_out(self._append_new(core, 1))
        for to, message in effects.send:
            self._may_cut()
            world.invariants.check_sent(disk, self.name, to, message)
            world.send(Envelope(self.name, to, message))
        if effects.committed is not None:
            world.committed(self, effects.committed)

    def _may_cut(self) -> None:
        if self.world.cut_here():
            raise PowerCut

    def _accept(self, core: Core, message: Append, records: tuple[SimRecord, ...]) -> None:
        for record in records:
            self.disk.append(record)
        self._sync()
        self._carry_out(core.appended(self.clock(), message.end))

    def _begin_cut(self, log_offset: int) -> None:
        assert self.core is not None
        self.world.invariants.check_cut(self.name, self.core.status.role, self.disk, log_offset, self.committed)
        self._cut_when_synced(self.life, log_offset)

    def _cut_when_synced(self, life: int, log_offset: int) -> None:
        """Begin a cut when what it leaves is on the disk, as the driver does (LogCopy.cut)."""
        if life != self.life:
            return
        if self.disk.synced_end() < log_offset:
            self.world.at(self.world.now + UNSYNCED_S, self._cut_when_synced, life, log_offset)
            return
        self.disk.cut_to = log_offset
        self.world.at(self.world.now + self.world.pick.uniform(0, 0.3), self._finish_cut, life, log_offset)

    def _finish_cut(self, life: int, log_offset: int) -> None:
        core = self.core
        if life != self.life or core is None:
            return
        if self.world.cut_here():
            self.crash()
            self.world.restart_later(self)
            return
        self.disk.cut(log_offset)
        self.disk.cut_to = None
        self.committed = min(self.committed, log_offset)
        self.act(lambda: core.cut_done(self.clock(), log_offset))

    def _sync(self) -> None:
        if not self.syncing and self.disk.synced < len(self.disk.log):
            self.syncing = True
            at = max(self.world.now, self.stall_until) + self.world.pick.expovariate(1 / 0.005)
            self.world.at(at, self._synced, self.life, len(self.disk.log))

    def _synced(self, life: int, count: int) -> None:
        core = self.core
        if life != self.life or core is None:
            return
        if self.world.now < self.busy_until:
            self.world.at(self.busy_until, self._synced, life, count)
            return
        self.syncing = False
        self.disk.synced = max(self.disk.synced, min(count, len(self.disk.log)))
        self._sync()
        self.act(lambda: core.synced(self.clock(), self.disk.synced_end()))

    def _pump(self) -> None:
        """Ship what followers may have; several appends ahead."""
        core = self.core
        status = self.world.roles.get(self.name)
        if core is None or status is None or status.role != "leader":
            return
        for member in status.members.all:
            for _ in range(2):
                start, end = core.to_ship(member)
                records = self.disk.slice(start, end, MOST_SHIPPED) if start < end else ()
                if not records:
                    break
                message = core.ship(member, records[-1].end - start, 0)
                self.world.invariants.check_sent(self.disk, self.name, member, message)
                self.world.send(Envelope(self.name, member, message, records))
