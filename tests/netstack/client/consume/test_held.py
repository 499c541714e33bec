"""Flow control of one queue, and who waits for it."""

import pytest
import trio

from netstack.client.consume.consumer_options import ConsumerOptions
from netstack.client.consume.held import LOCK_S, HeldQueue
from netstack.client.messages import ReceivedMessage
from netstack.wire.json_body import MessageQueue

QUEUE = MessageQueue("T", "b", 0)


def message(queue_offset: int, size: int = 1) -> ReceivedMessage:
    made = ReceivedMessage.__new__(ReceivedMessage)
    made.queue_offset, made.stored_body = queue_offset, bytes(size)
    return made


@pytest.mark.parametrize(
    ("options", "offsets", "size", "share", "room"),
    [
        (ConsumerOptions(queue_messages=2), (0, 1), 1, 1, True),
        (ConsumerOptions(queue_messages=2), (0, 1, 2), 1, 1, False),
        (ConsumerOptions(queue_mib=1), (0,), 2 << 20, 1, False),
        (ConsumerOptions(queue_mib=1), (0,), (2 << 20) - 1, 1, True),
        (ConsumerOptions(max_span=10), (0, 10), 1, 1, True),
        (ConsumerOptions(max_span=10), (0, 11), 1, 1, False),
        (ConsumerOptions(max_span=10, orderly=True), (0, 11), 1, 1, True),
        (ConsumerOptions(topic_messages=8), (0, 1, 2), 1, 4, False),
        (ConsumerOptions(topic_messages=8), (0, 1, 2), 1, 2, True),
        (ConsumerOptions(topic_mib=4), (0,), 2 << 20, 4, False),
    ],
)
async def test_a_queue_has_room_below_every_limit(
    options: ConsumerOptions, offsets: tuple[int, ...], size: int, share: int, room: bool
) -> None:
    held = HeldQueue(QUEUE, 0)
    held.messages.put([message(at, size) for at in offsets])
    assert held.has_room(options, share) is room


async def test_waiting_ends_with_the_change_that_was_waited_for() -> None:
    held, options = HeldQueue(QUEUE, 0), ConsumerOptions(queue_messages=1)
    held.messages.put([message(0), message(1), message(2)])
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            with trio.fail_after(60):
                await held.wait_until(lambda: held.has_room(options))
            assert held.messages.count == 1

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert held.finish(message(1)) == 0
        assert held.finish(message(0)) == 2


async def test_a_lock_counts_for_half_a_minute(mock_clock: trio.testing.MockClock) -> None:
    held = HeldQueue(QUEUE, 0)
    assert not held.lock.held
    held.lock.taken_at = trio.current_time()
    mock_clock.jump(LOCK_S - 1)
    assert held.lock.held
    mock_clock.jump(1)
    assert not held.lock.held
    status = held.status(7, 0.0)
    assert (status.commit_offset, status.locked, status.dropped) == (7, False, False)


async def test_a_lock_is_fresh_when_it_had_ended_or_was_lost_and_not_when_it_is_renewed(
    mock_clock: trio.testing.MockClock,
) -> None:
    lock, seen = HeldQueue(QUEUE, 0).lock, []
    for jump_s, lost in ((0, False), (LOCK_S - 1, False), (LOCK_S, False), (1, True)):
        lock.fresh = False
        mock_clock.jump(jump_s)
        if lost:
            lock.lose()
            assert not lock.held
        lock.take()
        seen.append((lock.held, lock.fresh))
    assert seen == [(True, True), (True, False), (True, True), (True, True)]


async def test_dropping_ends_the_pull_and_wakes_everybody() -> None:
    held = HeldQueue(QUEUE, 0)
    async with trio.open_nursery() as nursery:

        async def pull() -> None:
            with held.scope:
                await trio.sleep_forever()

        nursery.start_soon(pull)
        nursery.start_soon(held.wait_until, lambda: held.dropped)
        await trio.testing.wait_all_tasks_blocked()
        held.drop()
