"""Whose series there are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from appliance.configuration.settings import Config
from appliance.health.lag import Ages
from appliance.metrics.families import MOST_PAIRS
from appliance.metrics.topics import NAMES_PER_BREATH, read_topics
from tests.appliance.admin_bench import Bench, bench
from tests.waiting import turns_of_others

NOON = 1_700_000_000_000
Rows = list[tuple[str, float, dict[str, str]]]


def ignore(name: str, value: float, /, **labels: str) -> None:
    pass


def seen(made: Bench, clock: list[int]) -> Any:
    return SimpleNamespace(config=Config(), tables=made, store=made.store, now_ms=lambda: clock[0])


async def test_others_have_their_turns_while_the_pairs_of_many_groups_and_topics_are_counted(tmp_path: Path) -> None:
    clock, left_out = [NOON], dict[str, int]()
    async with bench(tmp_path, clock) as made:
        for number in range(20_000):
            made.offsets.commit(f"g{number}", "T", 0, 0)

        async def read() -> None:
            left_out.update(
                await read_topics(seen(made, clock), Ages(made.store), lambda name, value, /, **labels: None)
            )

        assert await turns_of_others(read) > 20_000 // NAMES_PER_BREATH
    assert left_out["pairs"] == 20_000 - MOST_PAIRS


async def test_series_are_those_of_topics_that_are_there(tmp_path: Path) -> None:
    clock, rows = [NOON], Rows()

    def add(name: str, value: float, /, **labels: str) -> None:
        rows.append((name, value, labels))

    async with bench(tmp_path, clock) as made:
        await made.send(3)
        made.offsets.commit("g", "T", 0, 1)
        made.offsets.commit("g", "gone", 0, 1)  # the topic was deleted
        made.consumer(1, group="g", language="JAVA")
        clock[0] = NOON + 500
        left_out = await read_topics(seen(made, clock), Ages(made.store), add)
    found = {(name, labels.get("topic", ""), labels.get("consumer_group", "")): value for name, value, labels in rows}
    assert found["rocketmq_consumer_lag_messages", "T", "g"] == 2
    assert found["rocketmq_consumer_lag_latency_milliseconds", "T", "g"] == 500
    assert found["rocketmq_consumer_connections", "", "g"] == 1
    (labels,) = [labels for name, _, labels in rows if name == "rocketmq_consumer_connections"]
    assert (labels["language"], labels["version"], labels["protocol_type"]) == ("java", "v4_9_8", "remoting")
    assert not any(labels.get("topic") == "gone" for _, _, labels in rows)
    assert left_out == {"topics": 0, "pairs": 0}
    systems = {labels["topic"]: labels["is_system"] for name, _, labels in rows if name == "rocketmq_messages_in_total"}
    assert (systems["T"], systems["TBW102"]) == ("false", "true")
