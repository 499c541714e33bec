"""Receivers that wait: one message wakes the first that it fits."""

from appliance.broker.pop.pop_waits import PopReceiver, PopWaits
from appliance.broker.tables.arrivals import Arrivals
from storage_driver.queues.dispatch import Arrival
from storage_driver.record import MessageQueue

ZERO, ONE = MessageQueue("T", 0), MessageQueue("T", 1)


def receiver(*queues: MessageQueue, tags: frozenset[int] | None = None, free: bool = True) -> PopReceiver:
    return PopReceiver(queues, lambda queue, arrived: free, "T", tags.__contains__ if tags is not None else None)


def arrival(queue: MessageQueue, tags_code: int = 0) -> Arrival:
    return Arrival(queue, 0, tags_code, 0, 0, 100)


def waiting(*receivers: PopReceiver) -> tuple[Arrivals, PopWaits]:
    arrivals = Arrivals(10, lambda queue: 0)
    waits = PopWaits(arrivals)
    for each in receivers:
        waits.enter("G", "T", each)
    return arrivals, waits


async def test_one_message_wakes_the_one_who_waits_for_longest() -> None:
    first, second = receiver(ZERO, ONE), receiver(ZERO, ONE)
    arrivals, _ = waiting(first, second)
    arrivals.arrived(arrival(ZERO))
    assert (first.event.is_set(), second.event.is_set()) == (True, False)
    arrivals.arrived(arrival(ONE))
    assert second.event.is_set()


async def test_a_message_passes_those_whose_queue_filter_or_room_it_does_not_fit() -> None:
    elsewhere, others, full, fits = receiver(ONE), receiver(ZERO, tags=frozenset({1})), receiver(ZERO, free=False), None
    fits = receiver(ZERO, tags=frozenset({2}))
    arrivals, _ = waiting(elsewhere, others, full, fits)
    arrivals.arrived(arrival(ZERO, 2))
    assert [each.event.is_set() for each in (elsewhere, others, full, fits)] == [False, False, False, True]


async def test_a_filter_counts_in_its_own_topic_alone() -> None:
    retry = MessageQueue("%RETRY%G_T", 0)
    waiter = receiver(ZERO, retry, tags=frozenset({1}))
    arrivals, _ = waiting(waiter)
    arrivals.arrived(arrival(retry, 5))
    assert waiter.event.is_set()


async def test_a_changed_topic_wakes_all() -> None:
    first, second = receiver(ZERO), receiver(ZERO)
    arrivals, _ = waiting(first, second)
    arrivals.release_topic("T")
    assert first.event.is_set()
    assert second.event.is_set()


async def test_who_left_is_forgotten() -> None:
    first, second = receiver(ZERO), receiver(ZERO, ONE)
    arrivals, waits = waiting(first, second)
    assert (waits.count("G", "T"), waits.count("G", "T", ONE)) == (2, 1)
    waits.leave("G", "T", second)
    assert ONE not in arrivals.watched
    waits.leave("G", "T", first)
    assert not waits.anybody("G", "T")
    assert ZERO not in arrivals.watched


async def test_receivers_of_a_topic_without_queues_leave_one_after_the_other() -> None:
    """Of a deleted topic, in order: the second one failed, and of gRPC stayed counted among the parked pulls."""
    first, second = receiver(), receiver()
    _, waits = waiting(first, second)
    waits.leave("G", "T", first)
    assert not waits.is_empty
    waits.leave("G", "T", second)
    assert waits.is_empty
