"""Events about corrected offsets: one a second for each group and queue, and never a burden for the consumer."""

import json
from pathlib import Path

import pytest
import trio.testing

from appliance.broker.consume import moved
from appliance.broker.consume.moved import MovedEvents
from appliance.broker.intake import Intake
from appliance.broker.tables.topics import OFFSET_MOVED_TOPIC
from appliance.testing import small_store
from storage_driver.record import MessageQueue

QUEUE = MessageQueue("T", 3)


async def test_an_event_says_who_asked_for_what_in_the_form_of_apache(tmp_path: Path) -> None:
    async with small_store(tmp_path) as small:
        MovedEvents(Intake(small.store), "box", lambda: 77).note("g", QUEUE, 900, 5)
        (found,) = await small.wait_for(OFFSET_MOVED_TOPIC, 1)
    assert found.body == (
        b'{"consumerGroup":"g","messageQueue":{"brokerName":"box","queueId":3,"topic":"T"},"offsetNew":5,"offsetRequest":900}'
    )
    assert (found.property_map, found.born_ms) == ({"TAGS": "g", "KEYS": "g"}, 77)


async def test_a_consumer_that_keeps_asking_leaves_one_event_a_second(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with small_store(tmp_path) as small:
        events = MovedEvents(Intake(small.store), "box", lambda: 1)
        for elapsed_s in (0.0, 0.5, 0.499, 0.002, 0.998):
            mock_clock.jump(elapsed_s)
            events.note("g", QUEUE, 900, 5)
        events.note("g", MessageQueue("T", 4), 1, 0)
        events.note("h", QUEUE, 1, 0)
        appended = small.store._queues[MessageQueue(OFFSET_MOVED_TOPIC, 0)].next_offset
    assert appended == 2 + 2


async def test_a_full_or_failed_disk_costs_the_event_and_not_the_pull(tmp_path: Path) -> None:
    async with small_store(tmp_path) as small:
        events = MovedEvents(Intake(small.store), "box", lambda: 1)
        small.store.full = "no room"
        events.note("g", QUEUE, 900, 5)
        small.store.seal("gone")
        events.note("h", QUEUE, 900, 5)
        assert small.store.end == 0


async def test_what_is_remembered_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved, "REMEMBERED", 5)
    async with small_store(tmp_path) as small:
        events = MovedEvents(Intake(small.store), "box", lambda: 1)
        for number in range(23):
            events.note(f"g{number}", QUEUE, 1, 0)
            assert len(events._last_s) <= 5
        (first, *_) = await small.wait_for(OFFSET_MOVED_TOPIC, 23)
        assert json.loads(first.body)["consumerGroup"] == "g0"
