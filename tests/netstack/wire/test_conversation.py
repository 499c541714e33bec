"""Our requests on one connection: numbers are ours, free and never zero."""

from netstack.wire.conversation import PendingRequests


def test_an_answer_is_given_to_who_asked_and_only_once() -> None:
    asked: PendingRequests[str] = PendingRequests()
    first, second = asked.open("a"), asked.open("b")
    assert (first, second) == (1, 2)
    assert (asked.take(second), asked.take(second), asked.take(99)) == ("b", None, None)
    assert len(asked) == 1
    assert asked.drain() == ["a"]
    assert len(asked) == 0


def test_numbers_wrap_within_31_bits_and_skip_what_still_waits() -> None:
    asked: PendingRequests[str] = PendingRequests(first=0x7FFFFFFE)
    assert [asked.open("x") for _ in range(3)] == [0x7FFFFFFE, 0x7FFFFFFF, 1]
    again: PendingRequests[str] = PendingRequests()
    again.open("waits")
    again._next = 1
    assert again.open("y") == 2
    assert again.skip() == 3
