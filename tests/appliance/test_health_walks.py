"""What an operator met: data given up, a killed consumer, a damaged file, an expired certificate, a clock set back.

Each ends in a state that is not ok, with one sentence, within the time that docs/operate.md states.
"""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.access.certificate import make_certificate
from appliance.access.guard import certificate_conditions
from appliance.broker.tables.clients import ClientTable
from appliance.broker.tables.groups import Group, GroupTable
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.resent import Resent
from appliance.broker.tables.saving import load_table
from appliance.broker.tables.topics import Topic, TopicRules, TopicTable
from appliance.health.condition_watch import ConditionSources, ConditionWatch
from appliance.health.conditions import Condition, worst
from appliance.supervision import conditions_of_store
from appliance.testing import MemoryStateFile, wall_ms
from netstack.serving.tls import TlsConfig, TlsDoor, not_after_ms
from storage_driver.log.segment import segment_name
from tests.appliance.admin_bench import bench
from uplink_spark.testing_site import MIB, box, fill

NOON = 1_800_000_000_000
HOUR_MS = 3_600_000


class Walk:
    """A watch whose time the test turns."""

    def __init__(self, store: Any, tables: Any, uplink: Any = None, clock: list[int] | None = None) -> None:
        self.now_s = 0.0
        looked = ConditionSources(
            store,
            tables,
            uplink,
            (lambda: clock[0]) if clock else wall_ms,
            lambda: True,
        )
        self._watch = ConditionWatch(looked, disk=lambda: (0.4, 400 * MIB, None), uptime_s=lambda: self.now_s)

    async def after(self, seconds: float) -> dict[str, Condition]:
        self.now_s += seconds
        await self._watch.look()
        return {one.key: one for one in self._watch.now()}


def no_groups() -> Any:
    return SimpleNamespace(
        topics=TopicTable(MemoryStateFile(), TopicRules("Edge", "box"), now_ms=wall_ms),
        groups=GroupTable(MemoryStateFile(), now_ms=wall_ms),
        offsets=OffsetTable(MemoryStateFile()),
        clients=ClientTable(now_ms=wall_ms),
        resent=Resent(MemoryStateFile()),
    )


def state_of(found: dict[str, Condition]) -> str:
    return worst(one.kind.state for one in found.values())


def damage(folder: Path, name: str) -> None:
    with (folder / "store/commitlog" / name).open("r+b") as file:
        file.seek(5000)
        file.write(b"\xff" * 300)


@pytest.mark.slow
async def test_a_full_disk_without_a_gateway_says_what_it_gives_up(tmp_path: Path) -> None:
    async with box(tmp_path / "store", 1, max_lag_bytes=6 * MIB) as (store, uplink):
        walk = Walk(store, no_groups(), uplink)
        assert await walk.after(0) == {}
        await fill(store, 16_000)
        await uplink.shipper.quota.look()  # every ten seconds by itself
        found = await walk.after(10)
        assert state_of(found) == "degraded"
        assert "dropped before the gateway had them (quota_bytes)" in found["data_given_up"].text
        found = await walk.after(110)
        assert "no connection to the gateway 127.0.0.1:1 for 2 min" in found["uplink_down"].text


async def test_a_killed_consumer_is_told(tmp_path: Path) -> None:
    clock = [NOON]
    async with bench(tmp_path, clock) as made:
        walk = Walk(made.store, made, clock=clock)
        made.groups.put(Group("billing"))
        peer = made.consumer(1, "billing")
        await made.send(5)
        made.offsets.commit("billing", "T", 0, 1)
        assert await walk.after(0) == {}
        made.clients.closed(peer)
        assert await walk.after(590) == {}
        found = await walk.after(10)
        assert state_of(found) == "degraded"
        text = "the consumer group billing has had no member for 10 min, up to 4 messages wait for it"
        assert found["group_without_member:billing"].text == text
        again = Walk(made.store, made, clock=clock)  # the box is restarted: the group has its time again
        assert await again.after(0) == {}
        assert "group_without_member:billing" in await again.after(600)
        made.groups.delete("billing")
        assert await walk.after(10) == {}


async def test_dead_letters_that_nobody_reads_are_told(tmp_path: Path) -> None:
    async with bench(tmp_path, [NOON]) as made:
        walk = Walk(made.store, made, clock=[NOON])
        made.topics.put(Topic("%DLQ%billing", 1, 1))
        await made.send(3, topic="%DLQ%billing")
        found = await walk.after(0)
        assert found["dead_letters:billing"].text == "3 messages of the consumer group billing are dead letters"
        for offset in (2, 0):  # from the page, in any order
            made.resent.note("%DLQ%billing", 0, offset)
        found = await walk.after(10)
        assert found["dead_letters:billing"].text == "1 message of the consumer group billing is a dead letter"
        made.resent.note("%DLQ%billing", 0, 1)
        assert await walk.after(10) == {}
        await made.send(1, topic="%DLQ%billing")
        assert "dead_letters:billing" in await walk.after(10)
        made.offsets.commit("ops", "%DLQ%billing", 0, 4)
        assert await walk.after(10) == {}


@pytest.mark.slow
async def test_a_damaged_closed_segment_is_told(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        while len(made.store._log.segments) < 2:
            await made.send(200)
        damage(tmp_path, segment_name(made.store.first))
        assert conditions_of_store(made.store) == []
        await made.store.check_all()
        (found,) = conditions_of_store(made.store)
        assert (found.key, found.kind.state) == ("data_damaged:scrub", "degraded")
        assert "1 damaged range in the log" in found.text


async def test_topics_that_were_guessed_degrade_the_box_until_what_was_kept_is_removed(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        file = made.store.state_file("topics")
        folder = file.path.parent
        for name in ("topics.json", "topics.json.bak"):
            folder.mkdir(exist_ok=True)
            (folder / name).write_text("{")
        assert load_table(file, "topics") == {}
        (found,) = conditions_of_store(made.store)
        assert (found.key, found.kind.state) == ("table_damaged:config/topics.json", "degraded")
        assert f"then remove {folder}/topics.json.damaged" in found.next
        (folder / "topics.json.damaged").unlink()
        assert conditions_of_store(made.store) == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl: apt install openssl")
def test_an_expired_certificate_is_told(tmp_path: Path) -> None:
    cert, key = tmp_path / "box.crt", tmp_path / "box.key"
    make_certificate(cert, key, "box", [], now=datetime(2026, 11, 1, tzinfo=UTC))
    seen = TlsDoor(TlsConfig(cert, key)).statistics()
    (found,) = certificate_conditions(seen, not_after_ms(cert.read_text()) + 1, True)
    assert (found.id, found.kind.state, found.text) == (
        "certificate_ends",
        "degraded",
        "the TLS certificate has expired",
    )


async def test_a_clock_that_is_set_back_is_told(tmp_path: Path) -> None:
    clock = [NOON]
    async with bench(tmp_path, clock) as made:
        walk = Walk(made.store, made, clock=clock)
        await made.send(1)
        assert await walk.after(0) == {}
        clock[0] -= 3 * HOUR_MS
        found = await walk.after(10)
        assert state_of(found) == "degraded"
        assert found["clock_behind"].text == "the clock says 2027-01-15 05:00 UTC, 3.0 h before the newest message"
        clock[0] += 3 * HOUR_MS
        assert await walk.after(10) == {}
