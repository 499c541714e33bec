"""What counts as behind, and how often a message is looked at."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from appliance.broker.tables.offsets import NOT_STORED
from appliance.health.lag import MOST_LOOKS, Ages, lag_of
from storage_driver.record import MessageQueue
from tests.appliance.admin_bench import Bench, bench

NOON = 1_700_000_000_000


def seen(made: Bench, clock: list[int]) -> Any:
    return SimpleNamespace(tables=made, store=made.store, now_ms=lambda: clock[0])


async def test_only_queues_in_which_a_group_stands_count_as_lag(tmp_path: Path) -> None:
    clock = [NOON]
    async with bench(tmp_path, clock) as made:
        for queue_id in range(4):
            await made.send(5, queue_id=queue_id)
        made.offsets.commit("g", "T", 0, 2)
        made.offsets.commit("g", "T", 1, 5)
        made.offsets.commit("g", "T", 2, 99)  # beyond the end
        lag = lag_of(seen(made, clock), "g", "T")
        assert lag.messages == 3
        assert lag.at == [(MessageQueue("T", 0), 2)]
        assert lag_of(seen(made, clock), "nobody", "T").messages == 0
        assert NOT_STORED < 0


async def test_a_message_is_looked_at_once_and_a_scrape_looks_at_so_many(tmp_path: Path) -> None:
    clock = [NOON]
    async with bench(tmp_path, clock) as made:
        await made.send(1)
        ages, place = Ages(made.store), (MessageQueue("T", 0), 0)
        assert await ages.oldest_ms([place]) == NOON
        assert await ages.oldest_ms([place]) == NOON
        assert ages.looks == 1
        assert await ages.oldest_ms([(MessageQueue("T", 0), 7)]) is None  # not there
        ages.looks = MOST_LOOKS
        assert await ages.oldest_ms([(MessageQueue("T", 1), 0), place]) == NOON  # what is known still counts
        assert await ages.oldest_ms([]) is None
