"""The checker finds what it is there to find."""

from __future__ import annotations

from tests.soak.history import History
from tests.soak.samples import Sample, growth


def history() -> History:
    made = History({"sync": ("a", "b")})
    for number in range(10):
        made.attempt("sync", number)
        made.acknowledge("sync", number)
        for group in ("a", "b"):
            made.deliver("sync", group, number)
    return made


def whats(made: History) -> list[tuple[str, str, int]]:
    return [(fault.what, fault.group, fault.count) for fault in made.faults()]


def test_a_good_history_has_no_faults_and_repeats_are_only_counted() -> None:
    made = history()
    assert not made.deliver("sync", "a", 3)
    assert (whats(made), made.streams["sync"].again["a"], made.waiting()) == ([], 1, {})


def test_an_acknowledged_message_that_one_group_never_got_is_lost() -> None:
    made = history()
    made.attempt("sync", 10)
    made.acknowledge("sync", 10)
    made.deliver("sync", "a", 10)
    assert whats(made) == [("acknowledged and lost", "b", 1)]
    assert made.waiting() == {("sync", "b"): 1}


def test_an_attempt_without_an_answer_may_come_or_not() -> None:
    made = history()
    made.attempt("sync", 10)
    made.fail("sync")
    assert whats(made) == []
    made.deliver("sync", "a", 10)
    assert whats(made) == []


def test_what_nobody_sent_what_was_rolled_back_and_what_came_early_are_faults() -> None:
    made = history()
    made.deliver("sync", "a", 99)
    made.attempt("sync", 11)
    made.take_back("sync", 11)
    made.deliver("sync", "b", 11)
    made.deliver("sync", "b", 4, early=True)
    assert whats(made) == [
        ("delivered though never sent", "a", 1),
        ("delivered though rolled back", "b", 1),
        ("delivered before its time", "", 1),
    ]


def test_first_deliveries_of_a_key_out_of_order_are_a_fault_repeats_are_not() -> None:
    made = History({"ordered": ("a",)})
    for number in (0, 1, 2, 1, 2, 4):  # 1 and 2 come again after a reconnect
        made.attempt("ordered", number)
        made.deliver_in_order("ordered", "a", "k", number)
    assert made.faults() == []
    made.attempt("ordered", 3)
    made.deliver_in_order("ordered", "a", "k", 3)
    assert whats(made) == [("after 4 of key k", "a", 1)]


def sample(at_s: float, memory: int) -> Sample:
    return Sample(at_s, memory, 40, 5, 0.0, 0, 0, 0, 0, 0.0)


def test_memory_that_grows_steadily_is_seen_and_memory_that_settles_is_not() -> None:
    leaking = [sample(second, (60 << 20) + second * 4096) for second in range(0, 3600, 5)]
    assert 13 < growth(leaking, "memory") * 3600 / (1 << 20) < 15  # MiB an hour
    settled = [sample(second, (60 << 20) + (5 << 20) * (second > 100)) for second in range(0, 3600, 5)]
    assert abs(growth(settled, "memory") * 3600) < 1 << 20
