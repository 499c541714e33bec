"""What lasts is told as one condition over all standings of a member of a group."""

from pathlib import Path
from typing import Any

from appliance.broker.tables.groups import Group
from appliance.health.condition_memory import FORGET_S, ConditionMemory
from appliance.health.condition_watch import ConditionSources, ConditionWatch
from appliance.health.group_watch import GroupLimits
from tests.appliance.admin_bench import Bench, bench

NOON = 1_800_000_000_000
AWAY = {"connected": False, "behind_bytes": 0, "behind_s": 0.0, "refuses": "", "clock_drift_s": None}


class Role:
    """A member that leads or follows; neither the other box nor the witness is there."""

    def __init__(self, *, leads: bool) -> None:
        self._leads = self.serves = leads
        self.asked = 0

    def told(self) -> dict[str, Any]:
        self.asked += 1
        others = [{**AWAY, "member": "b", "witness": False}, {**AWAY, "member": "w", "witness": True}]
        leader = {"leader": "a" if self._leads else "b", "serves": self.serves}
        certificates = {"own_ends_ms": 2 * NOON, "ends_ms": {}, "failure": ""}
        told = {"role": "member", "member": "a", "members": others, "diverged": None, "certificates": certificates}
        told["alone_since_ms"] = None
        return {**told, **leader}


class Standings:
    """One box; each standing has a watch of its own."""

    def __init__(self, made: Bench) -> None:
        self.now_s, self._made, self._memory = 0.0, made, ConditionMemory()
        self.begin(leads=True)

    def begin(self, *, leads: bool) -> None:
        now_ms, trusted, limits = (lambda: NOON), (lambda: True), GroupLimits(gone_s=60, behind_s=60)
        self.role = Role(leads=leads)
        looked = ConditionSources(self._made.store, self._made, None, now_ms, trusted, limits, self.role)  # type: ignore[arg-type]
        space = lambda: (0.1, 1 << 30, None)  # noqa: E731
        self._watch = ConditionWatch(looked, disk=space, memory=self._memory, uptime_s=lambda: self.now_s)

    def now(self) -> list[str]:
        return [one.key for one in self._watch.now()]

    async def after(self, seconds: float) -> list[str]:
        self.now_s += seconds
        await self._watch.look()
        return [one.key for one in self._watch.now()]


async def test_what_has_begun_in_one_standing_goes_on_in_the_next(tmp_path: Path) -> None:
    async with bench(tmp_path, [NOON]) as made:
        box = Standings(made)
        assert await box.after(0) == []
        assert await box.after(120) == ["one_copy", "witness_lost:w"]
        box.begin(leads=True)  # another term
        assert await box.after(1) == ["one_copy", "witness_lost:w"]
        box.begin(leads=False)
        assert await box.after(1) == []
        box.begin(leads=True)
        assert await box.after(1) == ["one_copy", "witness_lost:w"]


async def test_what_was_not_looked_at_for_long_has_its_time_again(tmp_path: Path) -> None:
    async with bench(tmp_path, [NOON]) as made:
        box = Standings(made)
        made.groups.put(Group("billing"))
        peer = made.consumer(1, "billing")
        await made.send(1)
        made.offsets.commit("billing", "T", 0, 0)
        assert await box.after(0) == []
        made.clients.closed(peer)
        assert await box.after(120) == ["one_copy", "witness_lost:w", "group_without_member:billing"]
        box.begin(leads=False)
        assert await box.after(0) == await box.after(FORGET_S + 31) == [], "its clients are at the leader"
        box.begin(leads=True)
        assert await box.after(1) == await box.after(58) == []
        assert await box.after(1) == ["group_without_member:billing"]
        box.begin(leads=True)
        assert await box.after(1) == ["group_without_member:billing"]


async def test_a_look_asks_once_how_the_group_stands(tmp_path: Path) -> None:
    async with bench(tmp_path, [NOON]) as made:
        box = Standings(made)
        await box._watch.look()
        assert box.role.asked == 1


async def test_a_leader_that_takes_no_messages_is_told_without_a_look(tmp_path: Path) -> None:
    async with bench(tmp_path, [NOON]) as made:
        box = Standings(made)
        assert await box.after(0) == []
        box.role.serves = False
        assert box.now() == []
        box.now_s += 2
        assert box.now() == ["no_quorum"]
        box.role.serves = True
        assert box.now() == []
