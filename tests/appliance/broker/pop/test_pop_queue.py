"""One queue of one group: where its floor is, what is in flight, what comes again."""

from appliance.broker.pop.pop_queue import STEPS, PopKey, PopQueue, Take
from storage_driver.record import MessageQueue

KEY = PopKey("G", MessageQueue("T", 0))


def queue_with(*offsets: int, following: int, start: int = 0, pop_ms: int = 7) -> tuple[PopQueue, Take]:
    queue = PopQueue(KEY, 1, start)
    take = Take(queue, offsets, pop_ms, (100, 1.0))
    queue.take(take, following)
    return queue, take


def test_the_floor_is_below_all_that_is_out() -> None:
    queue, _ = queue_with(0, 1, 2, following=3)
    queue.done(1)
    assert queue.floor == 0
    queue.done(0)
    assert queue.floor == 2
    queue.done(2)
    assert (queue.floor, queue.next) == (3, 3)


def test_what_a_filter_left_out_is_below_the_floor_at_once() -> None:
    queue, _ = queue_with(5, 9, following=20)
    assert queue.floor == 5
    queue.done(5)
    assert queue.floor == 9
    queue.done(9)
    assert queue.floor == 20


def test_a_long_stretch_that_was_left_out_is_passed_in_one_step() -> None:
    queue, _ = queue_with(0, STEPS * 1000, following=STEPS * 2000)
    queue.done(0)
    assert queue.floor == STEPS * 1000


def test_a_handle_names_one_delivery() -> None:
    queue, take = queue_with(0, following=1)
    assert queue.find(0, 7) is take
    assert queue.find(0, 8) is None
    assert queue.find(1, 7) is None
    assert queue.expire(take) == [0]
    assert queue.find(0, 7) is None


def test_a_renewed_message_does_not_expire_with_its_first_take() -> None:
    queue, take = queue_with(0, 1, following=2)
    renewed = Take(queue, (1,), 7, (200, 2.0))
    queue.renew(renewed)
    assert queue.expire(take) == [0]
    assert queue.find(1, 7) is renewed


def test_an_expired_message_holds_the_floor_until_it_is_stored_again() -> None:
    queue, take = queue_with(0, following=1)
    queue.expire(take)
    assert queue.floor == 0
    queue.done(0)
    assert queue.floor == 1


def test_an_ordered_queue_is_blocked_while_something_is_out_and_does_not_come_again() -> None:
    queue, take = queue_with(0, 1, following=2)
    assert queue.blocked
    for offset in queue.expire(take):
        queue.bring_again(offset, 1)
    assert not queue.blocked
    queue.take(Take(queue, (0, 1), 8, (300, 3.0)), 2)
    assert (queue.blocked, queue.again) == (True, {})


def test_what_was_acknowledged_in_order_behind_one_that_comes_again_comes_again_too() -> None:
    queue, take = queue_with(0, 1, 2, 3, following=4)
    for offset in (0, 2, 3):
        queue.done_in_order(offset, take.deliveries)
    assert (queue.floor, queue.behind) == (1, {2: 1, 3: 1})
    (left,) = queue.expire(take)
    queue.bring_again(left, 1)
    queue.repeat_behind()
    assert (queue.again, queue.behind, queue.blocked) == ({1: 1, 2: 1, 3: 1}, {}, False)


def test_what_was_acknowledged_in_order_is_forgotten_once_all_before_it_is() -> None:
    queue, take = queue_with(0, 1, 2, 3, following=4)
    for offset in (1, 0, 3):
        queue.done_in_order(offset, take.deliveries)
    queue.done_in_order(2, take.deliveries)
    queue.repeat_behind()
    assert (queue.floor, queue.again, queue.behind) == (4, {}, {})


def test_others_of_the_group_may_move_on_or_a_tool_back() -> None:
    queue, _ = queue_with(0, 1, 2, following=3)
    assert queue.move_floor(2) == [0, 1]
    assert (queue.floor, queue.next, list(queue.in_flight)) == (2, 3, [2])
    assert queue.reset(1) == [2]
    assert (queue.floor, queue.next, queue.in_flight) == (1, 1, {})
