"""A reset counts where it crosses the end of an answer: soon, and for so many calls."""

from netstack.grpc.ended_calls import KEPT_S, MOST_KEPT, EndedCalls


def nothing() -> None:
    """What one handler wants done."""


def test_a_reset_that_crosses_the_end_of_its_answer_is_told_once() -> None:
    ended = EndedCalls()
    ended.note(1, nothing, 10.0)
    assert ended.reset(1, 10.0 + KEPT_S) is nothing
    assert ended.reset(1, 10.0 + KEPT_S) is None


def test_one_that_comes_later_says_nothing() -> None:
    ended = EndedCalls()
    ended.note(1, nothing, 10.0)
    assert ended.reset(1, 10.1 + KEPT_S) is None


def test_so_many_are_kept_and_none_for_long() -> None:
    ended = EndedCalls()
    for number in range(MOST_KEPT + 1):
        ended.note(number, nothing, 10.0)
    assert (ended.reset(0, 10.0), ended.reset(1, 10.0)) == (None, nothing)
    ended.forget(10.1 + KEPT_S)
    assert ended.reset(2, 10.0) is None
