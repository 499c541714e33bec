"""`both` waits for two disks on any box, `one` and `local` for this one."""

import trio
import trio.testing

from appliance.group.copies.acknowledging import Acknowledgements
from appliance.group.copies.topic_policies import MOST_AHEAD, CopiedMark, TopicPolicies
from storage_driver.consensus.rules import Rules
from storage_driver.log.marks import Mark, Wake


class Log:
    """The marks of a leader, moved by hand; two disks have it up to `two`."""

    def __init__(self) -> None:
        self.end = self.two = 0
        self.own, self.shared = Mark(0), Mark(0)
        self.there = True
        self.copied = CopiedMark(lambda: self.two)

    @property
    def synced(self) -> int:
        return self.own.at

    @property
    def committed(self) -> int:
        return self.shared.at

    def when_synced(self, log_offset: int, wake: Wake) -> None:
        self.own.when(log_offset, wake)

    def when_committed(self, log_offset: int, wake: Wake) -> None:
        self.shared.when(log_offset, wake)

    when_acknowledged = when_committed

    def copy_there(self) -> bool:
        return self.there

    def why_not_copied(self) -> str:
        return "b cannot be reached"


def policies(log: Log, rules: Rules) -> tuple[TopicPolicies, Acknowledgements]:
    waiting = Acknowledgements((log.shared, log.copied.waiting), wait_s=3.0, why=log.why_not_copied)
    return TopicPolicies(rules, log, log), waiting


async def test_on_a_box_that_waits_for_one_disk_a_topic_waits_for_two(autojump_clock: trio.testing.MockClock) -> None:
    log, told = Log(), list[tuple[str, str | None]]()
    made, waiting = policies(log, Rules(acknowledge="one"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting.run)
        made.when("both")(10, lambda reason: told.append(("both", reason)))
        made.when("one")(10, lambda reason: told.append(("one", reason)))
        log.own.move(10)
        log.shared.move(10)
        log.copied.look()
        assert [who for who, _ in told] == ["one"]
        assert [made.reached(policy) for policy in ("both", "one")] == [0, 10]
        log.two = 10
        log.copied.look()
        assert [who for who, _ in told] == ["one", "both"]
        made.when("both")(10, lambda reason: told.append(("again", reason)))
        assert (told[-1][0], told[-1][1] is None) == ("again", True), "a send that comes twice is answered at once"
        made.when("both")(20, lambda reason: told.append(("late", reason)))
        await trio.sleep(3.2)
        assert told[-1] == ("late", "no other disk has the message after 3000 ms: b cannot be reached")
        nursery.cancel_scope.cancel()
    assert made.why_not("both") == ""
    log.there = False
    assert made.why_not("both") == "no other disk has the message: b cannot be reached"
    assert made.why_not("one") == ""


async def test_on_a_box_that_waits_for_two_disks_a_topic_waits_for_one() -> None:
    log, told = Log(), list[str]()
    made, _ = policies(log, Rules(acknowledge="both"))
    made.when("local")(10, lambda reason: told.append("local"))
    made.when("both")(10, lambda reason: told.append("both"))
    log.own.move(10)
    assert told == ["local"]
    assert [made.reached(policy) for policy in ("both", "one", "local")] == [0, 10, 10]
    log.shared.move(10)
    assert told == ["local", "both"]
    log.there, log.end = False, 10 + MOST_AHEAD
    assert made.why_not("both") == "", "the box's own wait tells, as for all its topics"
    assert made.why_not("one") == ""
    log.end += 1
    assert f"{MOST_AHEAD + 1} bytes wait for it" in made.why_not("one")
    await trio.lowlevel.checkpoint()


async def test_one_copy_and_a_witness_are_not_two_disks() -> None:
    log, told = Log(), list[str]()
    made, _ = policies(log, Rules(acknowledge="both", copies=1))
    made.when("both")(10, lambda reason: told.append("both"))
    log.shared.move(10)
    assert not told
    log.two = 10
    log.copied.look()
    assert told == ["both"]
    await trio.lowlevel.checkpoint()


def test_who_leads_no_longer_answers_nothing_from_before() -> None:
    log, told = Log(), list[str | None]()
    log.two = 10
    log.copied.when(20, told.append)
    log.copied.fail("b leads this group")
    log.copied.look()
    log.two = 0
    log.copied.when(5, told.append)
    assert told == ["b leads this group"], "these bytes are others now"
    log.two = 5
    log.copied.look()
    assert told == ["b leads this group", None]


def test_a_topic_of_two_disks_takes_nothing_while_the_other_box_is_far_behind() -> None:
    log = Log()
    made, _ = policies(log, Rules(acknowledge="one"))
    log.end = MOST_AHEAD + 1
    assert "bytes behind" in made.why_not("both")
    log.two = 1
    assert made.why_not("both") == ""
    assert made.why_not("one") == ""
