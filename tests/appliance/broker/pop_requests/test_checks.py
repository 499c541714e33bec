"""Checks that all requests of POP share."""

import pytest

from appliance.broker.pop_requests.checks import NO_FILTER, PopChecks, PopRules
from appliance.broker.tables.compile_pace import CompilePace
from appliance.broker.tables.groups import Group, GroupTable
from appliance.broker.tables.topics import TopicRules, TopicTable
from appliance.testing import FakePeer, MemoryStateFile
from netstack.errors import Refused
from netstack.wire.headers_pop import PollingInfoHeader


def checks(**of_group: object) -> PopChecks:
    topics = TopicTable(MemoryStateFile(), TopicRules("cluster", "box"), now_ms=lambda: 0)
    groups = GroupTable(MemoryStateFile(), now_ms=lambda: 0)
    topics.ensure("T", queues=2)
    topics.ensure("Closed", queues=2, perm=2)
    groups.put(Group("G", **of_group))  # type: ignore[arg-type]
    return PopChecks(PopRules("address", "box"), topics, groups, CompilePace(lambda: 0.0))


def refused(found: PopChecks, topic: str, queue_id: int = 0) -> int:
    with pytest.raises(Refused) as info:
        found.receiver(PollingInfoHeader("G", topic, queue_id), FakePeer())
    return info.value.code


def test_topic_queue_and_group_are_looked_at_in_this_order() -> None:
    assert checks().receiver(PollingInfoHeader("G", "T", 1), FakePeer()).name == "T"
    closed = checks(consume_enable=False)
    assert refused(closed, "Unknown", 9) == 17
    assert refused(closed, "Closed", 9) == 16
    assert refused(closed, "T", 9) == 29
    assert refused(closed, "T", 1) == 16


def test_a_group_that_is_forbidden_a_topic_does_not_receive_from_it() -> None:
    found = checks()
    found._groups.forbid("G", "T", read=True)
    assert refused(found, "T") == 16


def test_no_expression_is_no_filter() -> None:
    assert checks().filter("T", "", None, "10.0.0.1") is NO_FILTER
    accepts, record = checks().filter("T", "A", "TAG", "10.0.0.1").accepts
    assert record is None
    assert accepts is not None
    assert accepts(ord("A"))
