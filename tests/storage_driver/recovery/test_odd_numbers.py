"""Which number of a record is believed: the next one of its queue decides."""

import pytest

from storage_driver.record import DispatchEntry, MessageQueue
from storage_driver.recovery.odd_numbers import MOST_NUMBER, MOST_SKIPPED, HeldRecord, OddNumbers, is_right


def entry(number: int, log_offset: int = 9000) -> DispatchEntry:
    return DispatchEntry(log_offset, 100, "T", 0, number, 0, 5, b"")


@pytest.mark.parametrize(
    ("number", "expected", "following", "right"),
    [
        (9, 5, 10, True),  # numbers were lost
        (9, 5, 12, True),
        (9, 5, 6, False),  # one wrong bit
        (9, 5, 0, True),  # the topic was made again after it
        (9, 5, None, True),
        (1 << 40, 5, (1 << 40) + 1, True),  # of a salvaged log
        (1 << 40, 5, 1 << 41, False),
        (MOST_SKIPPED + 6, 5, None, False),
        (0, 5, 1, True),  # the topic was deleted and made again
        (0, 5, None, True),
        (0, 4, 5, False),
        (1, 5, 2, True),
        (1, 5, 6, False),
        (1, 5, None, False),
        (-3, 5, -2, False),
        (7, None, 8, True),  # the log begins with it
        (7, None, None, True),
        (7, None, 3, False),
        (MOST_NUMBER + 1, None, None, False),
        (-1, None, 0, False),
    ],
)
def test_a_number_counts_when_what_follows_agrees(
    number: int, expected: int | None, following: int | None, right: bool
) -> None:
    assert is_right(entry(number), expected, following) is right


def test_a_long_log_may_have_lost_as_many_numbers_as_fit() -> None:
    far = entry(MOST_SKIPPED * 2, log_offset=91 * MOST_SKIPPED * 2)
    assert is_right(far, 5, None)


def test_each_queue_has_one_record_held() -> None:
    odd, key, other = OddNumbers(), MessageQueue("T", 0), MessageQueue("T", 1)
    held = HeldRecord(entry(9), 100, 0)
    odd.hold(key, held)
    assert (odd.queues(), odd.take(other), odd.take(key), odd.take(key)) == ([key], None, held, None)
