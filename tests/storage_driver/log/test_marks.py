from storage_driver.log.marks import Mark


class Told:
    """Who waits for a mark, and what each was told, in order."""

    def __init__(self, at: int = 0) -> None:
        self.mark, self.events = Mark(at), list[tuple[str, str | None]]()

    def wait(self, name: str, log_offset: int) -> bool:
        return self.mark.when(log_offset, lambda reason: self.events.append((name, reason)))


def test_who_asks_for_what_is_reached_is_told_at_once() -> None:
    told = Told(100)
    assert not told.wait("reached", 100)
    assert told.wait("above", 101)
    assert told.events == [("reached", None)]


def test_a_move_wakes_a_prefix_of_those_who_wait() -> None:
    told = Told()
    for name, log_offset in (("a", 10), ("b", 20), ("c", 30)):
        told.wait(name, log_offset)
    told.mark.move(20)
    assert (told.mark.at, told.events) == (20, [("a", None), ("b", None)])
    told.mark.move(29)
    assert len(told.events) == 2
    told.mark.move(30)
    assert told.events[2:] == [("c", None)]


def test_a_late_asker_for_an_early_offset_waits_for_those_before_it() -> None:
    told = Told()
    told.wait("late", 30)
    told.wait("early", 10)
    told.mark.move(10)
    assert told.events == []
    told.mark.move(30)
    assert told.events == [("late", None), ("early", None)]


def test_a_failure_tells_those_above_an_offset_and_lets_the_others_wait() -> None:
    told = Told()
    for name, log_offset in (("kept", 10), ("gone", 20)):
        told.wait(name, log_offset)
    told.mark.fail("the log was cut", above=10)
    assert told.events == [("gone", "the log was cut")]
    told.mark.move(10)
    assert told.events[1:] == [("kept", None)]


def test_who_asks_again_when_told_of_a_failure_is_kept() -> None:
    mark, again = Mark(0), list[str | None]()

    def ask_again(reason: str | None) -> None:
        mark.when(20, again.append)

    mark.when(10, ask_again)
    mark.fail("no")
    assert again == []
    mark.move(20)
    assert again == [None]


def test_a_wait_that_lasts_too_long_ends_for_the_first_who_asked() -> None:
    mark, told = Mark(0), list[tuple[str, str | None]]()
    for number, name in enumerate("abcd"):
        mark.when(10 * number + 10, lambda reason, name=name: told.append((name, reason)))  # type: ignore[misc]
    mark.move(10)
    assert (mark.asked, mark.told) == (4, 1)
    mark.expire(2, "too long")
    assert told == [("a", None), ("b", "too long")]
    mark.fail("cut", above=30)
    mark.expire(2, "again")
    assert told[2:] == [("d", "cut")], "of the first two nobody waits"
    mark.move(30)
    assert told[3:] == [("c", None)]
    assert mark.asked == mark.told == 4
