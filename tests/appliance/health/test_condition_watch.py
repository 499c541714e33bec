"""What the conditions are decided from, looked up in real tables and a real store; how groups fare is in the walks."""

import logging
from pathlib import Path

import pytest
import trio

from appliance.broker.tables.groups import Group
from appliance.broker.tables.topics import Topic
from appliance.health.condition_rules import UNTRUSTED_S, GapSeen
from appliance.health.condition_watch import ConditionSources, ConditionWatch, gap_seen, is_watched
from appliance.health.group_watch import GroupLimits
from tests.appliance.admin_bench import Bench, bench

GIB, NOON = 1 << 30, 1_800_000_000_000
LIMITS = GroupLimits(gone_s=60, behind_s=60)


class Watch:
    """A watch over a bench; the test turns its time, fills its disk and says whether the clock is trusted."""

    def __init__(self, made: Bench) -> None:
        self.now_s, self.trusted = 0.0, True
        self.disk: tuple[float, int, float | None] | OSError = (0.1, GIB, None)
        looked = ConditionSources(made.store, made, None, lambda: NOON, lambda: self.trusted, LIMITS)  # type: ignore[arg-type]
        self.own = ConditionWatch(looked, disk=self._space, uptime_s=lambda: self.now_s)

    def _space(self) -> tuple[float, int, float | None]:
        if isinstance(self.disk, OSError):
            raise self.disk
        return self.disk

    async def after(self, seconds: float) -> list[str]:
        self.now_s += seconds
        await self.own.look()
        return [one.key for one in self.own.now()]


@pytest.mark.parametrize(
    ("group", "watched"),
    [("billing", True), ("TOOLS_CONSUMER", False), ("CID_RMQ_SYS_TRANS", False), ("rocketbox_tail", False)],
)
def test_groups_of_the_broker_and_of_the_boxs_commands_are_not_watched(group: str, watched: bool) -> None:
    assert is_watched(group) == watched


def test_a_gap_of_the_ledger_whose_facts_are_no_numbers_has_none() -> None:
    facts = {"class": "dropped", "reason": "quota", "records": 7, "declared": 5}
    assert gap_seen(facts, 100) == GapSeen("dropped", "quota", 100, 7, 5)
    assert gap_seen({"class": "missing", "reason": "r", "records": "7"}, 100) == GapSeen("missing", "r", 100, None, 0)


async def test_a_clock_is_told_once_it_was_untrusted_for_long_without_a_break(tmp_path: Path) -> None:
    async with bench(tmp_path, [NOON]) as made:
        watch = Watch(made)
        watch.trusted = False
        assert await watch.after(0) == []
        watch.trusted = True
        assert await watch.after(UNTRUSTED_S) == []
        watch.trusted = False
        assert await watch.after(10) == []
        assert await watch.after(UNTRUSTED_S - 1) == []
        assert await watch.after(2) == ["clock_untrusted"]


async def test_the_disk_is_told_with_what_fills_it(tmp_path: Path) -> None:
    async with bench(tmp_path, [NOON]) as made:
        watch = Watch(made)
        watch.disk = (0.87, 87 * GIB, 5.0)
        assert await watch.after(0) == ["disk_filling"]
        (one,) = watch.own.now()
        assert one.text == "disk 87% full, old segments are deleted, full in 5 h"


async def test_a_group_counts_only_while_it_and_its_topic_are_there_and_reads_what_others_do_not(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, [NOON]) as made:
        watch = Watch(made)
        peers = {}
        for number, group in enumerate(("billing", "gone-topic", "rocketbox_tail"), 1):
            made.groups.put(Group(group))
            peers[group] = made.consumer(number, group)
            made.offsets.commit(group, "T" if group != "gone-topic" else "Deleted", 0, 1)
        await made.send(3)
        assert await watch.after(0) == []
        for peer in peers.values():
            made.clients.closed(peer)
        assert await watch.after(61) == ["group_without_member:billing"]
        made.offsets.commit("billing", "T", 0, 3)
        assert await watch.after(1) == []


async def test_a_group_that_is_behind_names_its_worst_topic(tmp_path: Path) -> None:
    clock = [NOON - 1_000_000]
    async with bench(tmp_path, clock) as made:
        made.topics.put(Topic("Slow", 1, 1))
        watch = Watch(made)
        made.groups.put(Group("billing"))
        made.consumer(1, "billing")
        await made.send(2, topic="Slow")
        clock[0] += 990_000
        await made.send(5)
        for topic in ("T", "Slow"):
            made.offsets.commit("billing", topic, 0, 0)
        assert await watch.after(0) == []
        await watch.after(61)
        (one,) = watch.own.now()
        assert one.key == "group_behind:billing"
        assert "behind on Slow, 7 messages" in one.text


async def test_groups_that_were_seen_are_saved_when_they_change_and_known_after_a_restart(tmp_path: Path) -> None:
    async with bench(tmp_path, [NOON]) as made:
        made.groups.put(Group("billing"))
        peer = made.consumer(1, "billing")
        await made.send(1)
        made.offsets.commit("billing", "T", 0, 0)
        await Watch(made).after(0)
        saved = tmp_path / "store/rocketbox/groups_seen.json"
        before = saved.stat().st_mtime_ns
        made.clients.closed(peer)
        again = Watch(made)
        assert await again.after(0) == []
        assert await again.after(61) == ["group_without_member:billing"]
        assert saved.stat().st_mtime_ns == before, "nothing changed: a flash disk is not written every ten seconds"


async def test_dead_letters_are_counted_over_all_queues_from_where_anybody_has_read(tmp_path: Path) -> None:
    async with bench(tmp_path, [NOON]) as made:
        made.topics.put(Topic("%DLQ%billing", 2, 2))
        await made.send(3, topic="%DLQ%billing")
        await made.send(2, topic="%DLQ%billing", queue_id=1)
        watch = Watch(made)
        assert await watch.after(0) == ["dead_letters:billing"]
        assert watch.own.now()[0].text.startswith("5 messages")
        made.offsets.commit("ops", "%DLQ%billing", 0, 1)
        made.offsets.commit("audit", "%DLQ%billing", 0, 3)
        await watch.after(1)
        assert watch.own.now()[0].text.startswith("2 messages")


async def test_a_disk_that_cannot_be_read_leaves_the_last_look_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(tmp_path, [NOON]) as made, trio.open_nursery() as nursery:
        watch = Watch(made)
        watch.disk = (0.87, 87 * GIB, None)
        assert await watch.after(0) == ["disk_filling"]
        watch.disk = OSError(5, "Input/output error")
        with caplog.at_level(logging.WARNING):
            nursery.start_soon(watch.own.run)
            await trio.testing.wait_all_tasks_blocked()
        assert "event=conditions_not_checked" in caplog.text
        assert [one.key for one in watch.own.now()] == ["disk_filling"]
        nursery.cancel_scope.cancel()


async def test_the_health_object_is_told_of_the_scrub_and_of_an_uplink_only_where_there_is_one(tmp_path: Path) -> None:
    async with bench(tmp_path, [NOON]) as made:
        assert Watch(made).own.told() == {"scrub": {"passes": 0, "left_s": 0}}
