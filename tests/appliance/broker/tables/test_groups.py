"""Subscription groups: which exist and what is refused."""

import math

import pytest

from appliance.broker.tables.creations import Creations
from appliance.broker.tables.groups import FIRST_GROUPS, Group, GroupTable
from appliance.testing import MemoryStateFile
from netstack.errors import Refused


def test_groups_are_made_when_that_is_allowed() -> None:
    table = GroupTable(MemoryStateFile(), now_ms=lambda: 1)
    assert {group.name for group in table.all()} == set(FIRST_GROUPS)
    assert table.find("g") == Group("g")
    closed = GroupTable(MemoryStateFile(), auto_create=False, now_ms=lambda: 1)
    assert (closed.find("g"), closed.find("CID_RMQ_SYS_TRANS")) == (None, Group("CID_RMQ_SYS_TRANS"))
    assert closed.find("") is None
    small = GroupTable(MemoryStateFile(), most=7, now_ms=lambda: 1)
    with pytest.raises(Refused, match=r"limits\.groups"):
        small.find("g")


def test_a_group_with_a_retry_policy_that_is_refused_here_stays_without_it() -> None:
    file = MemoryStateFile()
    absurd = {"customizedRetryPolicy": {"next": [1 << 50]}, "type": "CUSTOMIZED"}
    file.content = {"subscriptionGroupTable": {"g": {"groupName": "g", "retryMaxTimes": 3, "groupRetryPolicy": absurd}}}
    assert GroupTable(file, now_ms=lambda: 1).get("g") == Group("g", retry_max_times=3)


def test_names_of_groups_have_an_end() -> None:
    table = GroupTable(MemoryStateFile(), now_ms=lambda: 1)
    assert table.find("g" * 255)
    assert table.find("g" * 256) is None
    with pytest.raises(Refused, match="256 characters"):
        table.put(Group("g" * 256))


def test_all_of_a_list_fit_or_none() -> None:
    table = GroupTable(MemoryStateFile(), most=len(FIRST_GROUPS) + 2, now_ms=lambda: 1)
    table.check_room(["a", "b", "a", FIRST_GROUPS[0]])
    with pytest.raises(Refused, match=r"limits\.groups allows 9"):
        table.check_room(["a", "b", "c"])


async def test_a_group_and_what_it_is_forbidden_outlive_a_restart_and_its_deletion_ends_both() -> None:
    file = MemoryStateFile()
    table = GroupTable(file, now_ms=lambda: 1)
    table.put(Group("g", consume_enable=False, retry_max_times=-1, attributes={"a": "b"}))
    table.forbid("g", "T", read=True)
    table.forbid("g", "U", read=True)
    table.forbid("g", "U", read=False)
    await table.flush()
    again = GroupTable(file, now_ms=lambda: 2)
    assert (again.get("g"), again.version) == (table.get("g"), table.version)
    assert [again.forbidden("g", topic) for topic in ("T", "U", "V")] == [True, False, False]
    again.delete("g")
    await again.flush()
    third = GroupTable(file, now_ms=lambda: 3)
    assert (third.get("g"), third.forbidden("g", "T")) == (None, False)
    assert third.version.counter > table.version.counter


def test_deleting_what_is_not_there_changes_nothing() -> None:
    table = GroupTable(MemoryStateFile(), now_ms=lambda: 1)
    version = table.version
    mark = table.delete("nobody")
    told: list[str | None] = []
    table.when_saved(mark, told.append)
    assert (table.version, told) == (version, [None])


def test_a_first_group_that_an_operator_changed_stays_changed() -> None:
    rows = {"TOOLS_CONSUMER": {"groupName": "TOOLS_CONSUMER", "consumeEnable": False}}
    table = GroupTable(MemoryStateFile({"subscriptionGroupTable": rows}), now_ms=lambda: 1)
    assert table.get("TOOLS_CONSUMER") == Group("TOOLS_CONSUMER", consume_enable=False)


def test_attributes_that_were_kept_with_signs_or_are_no_texts_are_read() -> None:
    rows = {"g": {"groupName": "g", "attributes": {"+priority.factor": 50, "-x": ""}}}
    table = GroupTable(MemoryStateFile({"subscriptionGroupTable": rows}), now_ms=lambda: 1)
    group = table.get("g")
    assert group is not None
    assert (group.attributes, group.priority_factor) == ({"priority.factor": "50"}, 50)


@pytest.mark.parametrize("bits", [math.inf, "x", None, [1], {"T": "y"}])
def test_damaged_bits_forbid_nothing_and_prevent_no_start(bits: object) -> None:
    stored = {"forbiddenTable": {"g": bits if isinstance(bits, dict) else {"T": bits}, "h": {"T": 4}}}
    table = GroupTable(MemoryStateFile(stored), now_ms=lambda: 1)
    assert (table.forbidden("g", "T"), table.forbidden("h", "T")) == (False, True)


def test_only_the_inner_groups_are_made_where_creation_is_off_and_asking_makes_none() -> None:
    table = GroupTable(MemoryStateFile(), auto_create=False, now_ms=lambda: 1)
    assert (table.get("CID_RMQ_SYS_X"), table.find("cid_rmq_sys_x")) == (None, None)
    assert len(table) == len(FIRST_GROUPS)


def test_who_has_caused_enough_groups_gets_no_more_by_consuming() -> None:
    table = GroupTable(MemoryStateFile(), now_ms=lambda: 1)
    table.creations = Creations(MemoryStateFile(), per_hour=2, now_ms=lambda: 1)
    for name in ("A", "B"):
        assert table.find(name, "10.0.0.1") is not None
    with pytest.raises(Refused, match=r"limits\.created_per_hour") as refused:
        table.find("C", "10.0.0.1")
    assert (refused.value.code, table.get("C")) == (26, None)
    assert table.find("A", "10.0.0.1") is not None
    assert table.find("C", "127.0.0.1") is not None


@pytest.mark.parametrize("name", ["g\n", "g\x1b[2J", "a b", "g/..", "gr\u00fcppe", "<g>", '"'])
def test_no_heartbeat_makes_a_group_whose_name_is_not_legal(name: str) -> None:
    table = GroupTable(MemoryStateFile(), now_ms=lambda: 1)
    assert table.find(name) is None
    table.put(Group(name))  # a table from before has it
    assert table.find(name) == Group(name)
