"""What a start puts together for the health object: looks that run by themselves, mutes, and what the guard says."""

import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from appliance.admin import Action, AdminRequest
from appliance.broker.tables.topics import Topic
from appliance.health.condition_watch import ConditionSources
from appliance.health.conditions import Condition
from appliance.health.telling import begin_telling
from appliance.supervision import HealthParts
from tests.appliance.admin_bench import Bench, bench
from tests.waiting import until

EXPIRED = Condition("certificate_ends", "the TLS certificate has expired", "renew it", "", 1)


def guarded() -> Iterable[Condition]:
    return [EXPIRED]


@asynccontextmanager
async def telling(folder: Path) -> AsyncGenerator[tuple[Bench, HealthParts, dict[str, Action]]]:
    async with bench(folder) as made, trio.open_nursery() as nursery:
        looked = ConditionSources(made.store, made, None, lambda: 1, lambda: True)  # type: ignore[arg-type]
        parts, actions = begin_telling(nursery, looked, guarded)
        yield made, parts, actions
        nursery.cancel_scope.cancel()


def found(parts: HealthParts) -> list[str]:
    return [one.key for source in parts.sources for one in source()]


async def test_what_the_guard_says_and_what_the_looks_find_are_told_together(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        made.topics.put(Topic("%DLQ%billing", 1, 1))
        await made.send(3, topic="%DLQ%billing")
        async with trio.open_nursery() as nursery:
            looked = ConditionSources(made.store, made, None, lambda: 1, lambda: True)  # type: ignore[arg-type]
            parts, _ = begin_telling(nursery, looked, guarded)
            assert found(parts) == [EXPIRED.key], "nothing was looked at yet"
            await until(lambda: "dead_letters:billing" in found(parts))
            assert found(parts)[0] == EXPIRED.key
            nursery.cancel_scope.cancel()


async def test_a_mute_holds_back_a_condition_and_is_there_after_a_restart(tmp_path: Path) -> None:
    async with telling(tmp_path) as (_, parts, actions):
        assert parts.split([EXPIRED]) == ([EXPIRED], [])
        await actions["conditions.mute"](AdminRequest({"key": EXPIRED.key}, None))
        assert parts.split([EXPIRED]) == ([], [EXPIRED])
    assert EXPIRED.key in json.loads((tmp_path / "store/rocketbox/conditions.json").read_text())["muted"]
    async with telling(tmp_path) as (_, parts, actions):
        assert parts.split([EXPIRED]) == ([], [EXPIRED])
        await actions["conditions.unmute"](AdminRequest({"key": EXPIRED.key}, None))
        assert parts.split([EXPIRED]) == ([EXPIRED], [])


async def test_the_trend_is_that_of_the_disk_with_the_store_and_counts_its_messages(tmp_path: Path) -> None:
    async with telling(tmp_path) as (made, parts, _):
        await made.send(2)
        used, used_bytes, _ = parts.trend.space()
        assert 0 < used < 1
        assert used_bytes > 0
        assert parts.trend.rate() == 0.0, "one look tells no rate"


async def test_the_health_object_has_the_scrub(tmp_path: Path) -> None:
    async with telling(tmp_path) as (_, parts, _):
        assert set(parts.more()) == {"scrub"}
