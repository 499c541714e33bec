"""What the core hears: in order, no more than fits, and its clock in between."""

import pytest
import trio
import trio.testing

from appliance.group.event_queue import MOST_BYTES, MOST_EVENTS, DriverEvent, EventQueue, needs_turn
from storage_driver.consensus.effects import Effects
from storage_driver.consensus.hard_state import HardState
from storage_driver.consensus.messages import Match, Synced


def event(name: str, data: bytes = b"") -> DriverEvent:
    return DriverEvent(lambda now_s: Effects(), data, name)


async def served(queue: EventQueue, rest_s: float = 1.0) -> str | None:
    """Return the name of the next event."""
    found = await queue.next(rest_s)
    return found.sender if found is not None else None


async def test_events_come_in_order_and_what_belongs_to_the_one_before_comes_first(
    autojump_clock: trio.testing.MockClock,
) -> None:
    queue = EventQueue()
    queue.add(event("a"))
    queue.add(event("b"))
    queue.add_first(event("a's"))
    assert [await served(queue) for _ in range(4)] == ["a's", "a", "b", None]


async def test_a_clock_that_is_due_waits_for_no_member_that_sends_without_end() -> None:
    queue = EventQueue()
    queue.add(event("a"))
    assert await served(queue, rest_s=0.0) is None, "time is up, although something waits"
    queue.add_first(event("belongs to the last one"))
    assert await served(queue, rest_s=0.0) == "belongs to the last one"
    assert await served(queue, rest_s=0.0) is None
    assert await served(queue) == "a"


@pytest.mark.parametrize("size", [0, 1 << 20])
async def test_who_adds_much_waits_for_room(size: int) -> None:
    queue, added, data = EventQueue(), 0, bytes(size)
    most = MOST_BYTES // size if size else MOST_EVENTS

    async def add_all() -> None:
        nonlocal added
        for _ in range(1000):
            await queue.wait_room()
            queue.add(event("a", data))
            added += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(add_all)
        await trio.testing.wait_all_tasks_blocked()
        assert added == most
        await served(queue)
        await trio.testing.wait_all_tasks_blocked()
        assert added == most + 1
        nursery.cancel_scope.cancel()


async def test_the_core_rests_while_it_hears_nothing_and_nothing_waits() -> None:
    queue = EventQueue()
    assert not queue.rests, "nobody listens yet"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(served, queue)
        await trio.testing.wait_all_tasks_blocked()
        assert queue.rests
        queue.add(event("a"))
        assert not queue.rests, "what waits comes first"
    assert not queue.rests, "what it heard is being carried out"


def test_what_needs_the_disk_or_changes_the_role_has_its_turn() -> None:
    synced, match = Synced(1, 10), Match(1, 1, 10, 5, (), (), 20)
    assert not needs_turn(Effects(send=(("b", synced),), committed=10))
    assert needs_turn(Effects(hard_state=HardState(1, "a")))
    assert needs_turn(Effects(send=(("b", synced), ("b", match)))), "the bytes below the cut are read first"
