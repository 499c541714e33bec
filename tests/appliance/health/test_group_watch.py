"""Groups that died or fall behind, and those that only look like it."""

from appliance.health.group_watch import DeadSeen, GroupLimits, GroupSeen, GroupWatch, dead_letter_conditions

DIED_S, BEHIND_S = GroupLimits()


def keys(watch: GroupWatch, now_s: float, *seen: GroupSeen) -> list[str]:
    return [one.key for one in watch.look(seen, now_s)]


def test_a_group_whose_last_member_went_is_told_after_ten_minutes() -> None:
    watch, gone = GroupWatch((), 0), GroupSeen("billing", 0, 4210)
    assert keys(watch, 0, GroupSeen("billing", 2, 0)) == []
    assert keys(watch, DIED_S - 1, gone) == []
    (one,) = watch.look([gone], 720)
    assert one.text == "the consumer group billing has had no member for 12 min, up to 4,210 messages wait for it"
    assert keys(watch, 730, GroupSeen("billing", 1, 4210)) == []  # it came back


def test_a_group_that_never_had_a_member_or_has_read_everything_or_was_deleted_is_none() -> None:
    watch = GroupWatch((), 0)
    assert keys(watch, 0, GroupSeen("committed-only", 0, 9), GroupSeen("done", 1, 0), GroupSeen("deleted", 1, 9)) == []
    assert keys(watch, 9999, GroupSeen("committed-only", 0, 9), GroupSeen("done", 0, 0)) == []
    assert watch.known == ["done"]


def test_a_group_known_before_a_restart_has_ten_minutes_to_come_back() -> None:
    watch = GroupWatch(["billing"], 100)
    assert keys(watch, 100 + DIED_S - 1, GroupSeen("billing", 0, 1)) == []
    assert keys(watch, 100 + DIED_S, GroupSeen("billing", 0, 1)) == ["group_without_member:billing"]


def test_a_group_that_does_not_catch_up_is_behind() -> None:
    watch, seen = GroupWatch((), 0), GroupSeen("billing", 1, 4210, "orders", 840.0)
    assert keys(watch, 0, seen) == []
    (one,) = watch.look([seen], BEHIND_S)
    assert one.text == "the consumer group billing is 14 min behind on orders, 4,210 messages, and does not catch up"
    assert keys(watch, BEHIND_S + 10, seen._replace(lag=4209)) == []  # it does
    assert keys(watch, 2 * BEHIND_S, seen._replace(lag=4209, oldest_s=599.0)) == []
    assert keys(watch, 9 * BEHIND_S, seen) == []  # counted anew


def test_how_long_a_group_may_be_gone_or_behind_is_a_setting() -> None:
    watch = GroupWatch((), 0, GroupLimits(gone_s=3600, behind_s=60))
    gone, behind = GroupSeen("nightly", 0, 9), GroupSeen("fast", 1, 9, "orders", 90.0)
    assert keys(watch, 0, gone._replace(members=1), behind) == []
    assert keys(watch, 60, gone, behind) == ["group_behind:fast"]
    assert keys(watch, 3599, gone) == []
    assert keys(watch, 3600, gone) == ["group_without_member:nightly"]


def test_dead_letters_count_until_somebody_reads_them() -> None:
    found = dead_letter_conditions([DeadSeen("billing", 12, 40), DeadSeen("read", 0, 7), DeadSeen("one", 1, 1)])
    assert [(one.key, one.mark) for one in found] == [("dead_letters:billing", 40), ("dead_letters:one", 1)]
    assert found[0].text == "12 messages of the consumer group billing are dead letters"
    assert found[1].text == "1 message of the consumer group one is a dead letter"


def test_of_many_groups_five_are_told_and_the_rest_counted() -> None:
    found = dead_letter_conditions([DeadSeen(f"g{number}", 1, 1) for number in range(12)])
    assert len(found) == 5
    assert found[-1].text.endswith("the same for 7 more groups")
