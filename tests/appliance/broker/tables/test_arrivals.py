"""Parked pulls: woken by what they would take, hurried by what they would not, gone when they end."""

import trio
import trio.testing

from appliance.broker.tables.arrivals import UNMATCHED_S, Arrivals, QueuePosition
from storage_driver.queues.dispatch import Arrival
from storage_driver.record import MessageQueue

QUEUE = MessageQueue("T", 0)


def arrival(queue_offset: int, code: int = 0, queue: MessageQueue = QUEUE) -> Arrival:
    return Arrival(queue, queue_offset, code, 0, 0, 100)


class Parked:
    """One waiting pull; notes when it ended."""

    def __init__(self, arrivals: Arrivals, *, code: int | None = None, at: int = 5, group: str = "g") -> None:
        self.arrivals, self.at, self.group = arrivals, at, group
        self.accepts = None if code is None else {code}.__contains__
        self.ended_s: float | None = None

    async def run(self) -> None:
        await self.arrivals.wait_match([QueuePosition(QUEUE, self.at, self.accepts)], group=self.group, timeout_s=20)
        self.ended_s = trio.current_time()


async def ended(*parked: Parked) -> list[bool]:
    await trio.testing.wait_all_tasks_blocked()
    return [one.ended_s is not None for one in parked]


async def test_only_a_match_wakes(mock_clock: trio.testing.MockClock) -> None:
    arrivals = Arrivals(10, lambda queue: 5)
    everything, tagged = Parked(arrivals), Parked(arrivals, code=7)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(everything.run)
        nursery.start_soon(tagged.run)
        assert await ended(everything, tagged) == [False, False]
        arrivals.arrived(arrival(4))  # older than what they wait for
        arrivals.arrived(arrival(5, queue=MessageQueue("T", 1)))
        assert await ended(everything, tagged) == [False, False]
        arrivals.arrived(arrival(5, code=8))
        assert await ended(everything, tagged) == [True, False]
        arrivals.arrived(arrival(6, code=7))
        assert await ended(tagged) == [True]


async def test_what_does_not_match_ends_the_wait_five_seconds_later(autojump_clock: trio.testing.MockClock) -> None:
    arrivals = Arrivals(10, lambda queue: 5)
    parked = Parked(arrivals, code=7)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(parked.run)
        await trio.sleep(3)
        arrivals.arrived(arrival(5, code=8))
        await trio.sleep(3)
        arrivals.arrived(arrival(6, code=8))  # the first one counts
    assert parked.ended_s is not None
    assert abs(parked.ended_s - trio.current_time()) < 0.01
    assert UNMATCHED_S == 5.0


async def test_a_message_that_came_meanwhile_ends_the_wait_at_once() -> None:
    parked = Parked(Arrivals(10, lambda queue: 6))
    await parked.run()
    assert parked.ended_s is not None


async def test_one_wait_may_be_for_several_queues(mock_clock: trio.testing.MockClock) -> None:
    arrivals, other, ended_s = Arrivals(10, lambda queue: 5), MessageQueue("T", 1), list[float]()

    async def wait() -> None:
        await arrivals.wait_match(
            [QueuePosition(QUEUE, 5, {7}.__contains__), QueuePosition(other, 6, None)], group="g", timeout_s=20
        )
        ended_s.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        arrivals.arrived(arrival(5, code=8))
        arrivals.arrived(arrival(5, queue=other))
        await trio.testing.wait_all_tasks_blocked()
        assert ended_s == []
        arrivals.arrived(arrival(6, queue=other))
    assert len(ended_s) == 1
    assert arrivals._waiters == {}


async def test_a_group_or_a_topic_is_released_and_nothing_is_left_behind() -> None:
    arrivals = Arrivals(10, lambda queue: 5)
    one, other = Parked(arrivals, group="g"), Parked(arrivals, group="h")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        nursery.start_soon(other.run)
        await trio.testing.wait_all_tasks_blocked()
        arrivals.release("g")
        assert await ended(one, other) == [True, False]
        arrivals.release_topic("T")
        assert await ended(other) == [True]
    assert arrivals._waiters == {}


async def test_ten_thousand_waiting_pulls_cost_an_arrival_of_another_queue_nothing() -> None:
    arrivals = Arrivals(20_000, lambda queue: 5)
    async with trio.open_nursery() as nursery:
        for _ in range(2000):
            nursery.start_soon(Parked(arrivals).run)
        await trio.testing.wait_all_tasks_blocked()
        arrivals.arrived(arrival(5, queue=MessageQueue("U", 0)))
        assert len(arrivals._waiters[QUEUE]) == 2000
        nursery.cancel_scope.cancel()
    assert arrivals._waiters == {}


async def test_one_connection_parks_no_more_than_it_leaves_to_others_and_everybody_a_few() -> None:
    arrivals = Arrivals(100, lambda queue: 0)
    greedy, others = object(), [object() for _ in range(10)]
    while arrivals.may_park(greedy):
        arrivals.enter(greedy)
    assert arrivals.parked == 50
    for other in others:
        while arrivals.may_park(other):
            arrivals.enter(other)
    assert arrivals.parked == 100
    assert not arrivals.may_park(object())
    arrivals.leave(greedy)
    assert arrivals.may_park(others[-1])
    assert not arrivals.may_park(greedy)
    for _ in range(49):
        arrivals.leave(greedy)
    assert arrivals.may_park(greedy)
