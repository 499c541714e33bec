"""A plan says who a member is, and who belongs to a group that has just begun."""

from appliance.group.member_plan import boottime_s
from appliance.group.witness import witness_plan
from storage_driver.consensus.members import Members


def test_the_clock_of_leases_goes_on() -> None:
    assert boottime_s() <= boottime_s()


def test_a_plan_says_who_belongs_to_the_group_at_first_and_what_its_driver_needs() -> None:
    plan = witness_plan("press", "w", ["a=127.0.0.1:1", "b=127.0.0.1:2", "w=127.0.0.1:3 witness"], 0.5)
    assert plan.first_members() == Members(("a", "b"), ("w",))
    rules = plan.of_member()
    assert (rules.group, rules.member, rules.consensus.scale, rules.accounts, rules.slaves) == (
        "press",
        "w",
        0.5,
        None,
        None,
    )
