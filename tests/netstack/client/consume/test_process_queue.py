"""The committed offset is the lowest unfinished message; ordered messages go forth and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netstack.client.consume.process_queue import ProcessQueue
from netstack.client.messages import ReceivedMessage


def message(queue_offset: int, size: int = 10) -> ReceivedMessage:
    made = ReceivedMessage.__new__(ReceivedMessage)
    made.queue_offset, made.stored_body = queue_offset, bytes(size)
    return made


def filled(*offsets: int) -> ProcessQueue:
    queue = ProcessQueue()
    queue.put([message(at) for at in offsets])
    return queue


def test_the_offset_stays_at_the_lowest_unfinished_message() -> None:
    queue = filled(3, 4, 5)
    assert queue.remove([4]) == 3
    assert queue.remove([5]) == 3
    assert queue.remove([3]) == 6
    assert queue.remove([3]) == -1  # it was empty before
    assert queue.size_bytes == 0


def test_what_is_there_already_is_not_added_twice() -> None:
    queue = filled(1, 2)
    added = queue.put([message(2), message(3)])
    assert [each.queue_offset for each in added] == [3]
    assert (queue.count, queue.span, queue.highest, queue.size_bytes) == (3, 2, 3, 30)


def test_taken_messages_are_committed_behind_the_last() -> None:
    queue = filled(7, 8, 9)
    assert [each.queue_offset for each in queue.take(2)] == [7, 8]
    assert (queue.count, queue.waiting_count, queue.lowest, queue.taken) == (3, 1, 7, [7, 8])
    assert queue.commit() == 9
    assert queue.commit() == -1
    assert (queue.count, queue.size_bytes) == (1, 10)


def test_taken_messages_come_again_first_and_in_order() -> None:
    queue = filled(1, 2, 3)
    queue.take(2)
    queue.rollback()
    assert [each.queue_offset for each in queue.take(3)] == [1, 2, 3]
    queue.take_back(queue.take(0))
    queue.rollback()
    assert [each.queue_offset for each in queue.first(2)] == [1, 2]


@pytest.mark.slow
@given(st.lists(st.integers(0, 60), unique=True, min_size=1), st.randoms(use_true_random=False))
def test_the_commit_position_never_passes_an_unfinished_message(offsets: list[int], chance: object) -> None:
    queue = filled(*offsets)
    left, order = set(offsets), list(offsets)
    chance.shuffle(order)  # type: ignore[attr-defined]
    for at in order:
        left.discard(at)
        assert queue.remove([at]) == (min(left) if left else max(offsets) + 1)
