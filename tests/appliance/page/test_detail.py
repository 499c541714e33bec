"""One topic and one group: figures of the queues, offsets that were never written, names nobody knows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from appliance.page.detail import MOST_SHOWN, group_values, topic_values
from tests.appliance.admin_bench import Bench, bench

NOON = 1_700_000_000_000


def seen(made: Bench, clock: list[int]) -> Any:
    return SimpleNamespace(tables=made, store=made.store, now_ms=lambda: clock[0])


async def test_nothing_is_known_of_what_is_not_there(tmp_path: Path) -> None:
    clock = [NOON]
    async with bench(tmp_path, clock) as made:
        assert await topic_values(seen(made, clock), "V") is None
        assert await group_values(seen(made, clock), "nobody") is None


async def test_a_topic_has_its_queues_with_their_newest_message_and_the_groups_that_read_it(tmp_path: Path) -> None:
    clock = [NOON]
    async with bench(tmp_path, clock) as made:
        await made.send(5, queue_id=1)
        made.consumer(group="g")
        made.offsets.commit("g", "T", 1, 2)
        values = await topic_values(seen(made, clock), "T")
        assert values is not None
        assert [(queue["id"], queue["low"], queue["high"]) for queue in values["queues"]] == [
            (0, 0, 0), (1, 0, 5), (2, 0, 0), (3, 0, 0)
        ]  # fmt: skip
        assert [queue["last_ms"] for queue in values["queues"]] == [None, NOON, None, None]
        assert values["held"] == 5
        assert values["groups"] == [{"name": "g", "lag": 3, "members": 1}]


async def test_of_a_group_with_thousands_of_topics_and_members_the_first_are_shown(tmp_path: Path) -> None:
    clock = [NOON]
    async with bench(tmp_path, clock) as made:
        for number in range(1500):
            made.offsets.commit("g", f"topic{number:04d}", 0, 0)
            made.offsets.commit("g", f"topic{number:04d}", 1, 0)
            made.consumer(number, group="g")
        values = await group_values(seen(made, clock), "g")
    assert values is not None
    assert (len(values["places"]), values["more_places"], len(values["members"])) == (MOST_SHOWN, 1250, MOST_SHOWN)
    assert values["places"][-1]["queue"].topic == "topic0249"


async def test_a_group_has_its_place_in_each_queue_and_how_old_the_next_message_is(tmp_path: Path) -> None:
    clock = [NOON]
    async with bench(tmp_path, clock) as made:
        await made.send(5, queue_id=1)
        made.consumer(1, group="g")
        made.offsets.commit("g", "T", 0, 0)
        made.offsets.commit("g", "T", 1, 2)
        made.offsets.commit("g", "T", 2, 77)  # beyond the end: of a store that was restored
        clock[0] = NOON + 10_000
        values = await group_values(seen(made, clock), "g")
        assert values is not None
        places = {place["queue"].queue_id: place for place in values["places"]}
        assert [(places[at]["offset"], places[at]["high"], places[at]["behind"]) for at in (0, 1, 2)] == [
            (0, 0, 0), (2, 5, 3), (77, 0, 0)
        ]  # fmt: skip
        assert (places[0]["age_s"], places[1]["age_s"], places[2]["age_s"]) == (None, 10.0, None)
        (member,) = values["members"]
        assert (member["id"], member["address"]) == ("c1", "10.0.0.1:1")
        assert member["seen_s"] == (clock[0] - 5) / 1000
        assert [each.topic for each in values["subscriptions"]] == ["T"]
