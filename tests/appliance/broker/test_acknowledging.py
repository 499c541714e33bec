"""A topic's own policy decides when its sends are answered, and whether anything is taken at all."""

from pathlib import Path

import pytest

from appliance.broker.acknowledging import ACKNOWLEDGE, SendAcknowledging
from appliance.broker.tables.topics import Topic, TopicRules, TopicTable
from appliance.testing import MemoryStateFile, SmallStore, small_store, wall_ms
from netstack.errors import Refused
from netstack.wire.codes import ResponseCode
from storage_driver.log.marks import Wake

PLAIN, TWO, ONE = (
    Topic("plain"),
    Topic("two", attributes={ACKNOWLEDGE: "both"}),
    Topic("one", attributes={ACKNOWLEDGE: "one"}),
)


class Policies:
    """Of a group whose other disk is missing."""

    def when(self, policy: str) -> "Policies":
        return self

    def __call__(self, log_offset: int, wake: Wake) -> None:
        wake("no other disk has the message")

    def reached(self, policy: str) -> int:
        return 7

    def why_not(self, policy: str) -> str:
        return "b cannot be reached" if policy == "both" else ""


def made(small: SmallStore) -> SendAcknowledging:
    table = TopicTable(MemoryStateFile(), TopicRules("C", "box"), now_ms=wall_ms)
    for topic in (PLAIN, TWO, ONE):
        table.put(topic)
    return SendAcknowledging(small.store, table)


async def test_a_topic_without_a_policy_is_answered_as_the_box_says(tmp_path: Path) -> None:
    async with small_store(tmp_path) as small:
        small.store.policies, acknowledging = Policies(), made(small)
        acknowledging.check(PLAIN)
        assert acknowledging.when(PLAIN) == small.store.when_acknowledged
        assert acknowledging.topic_of("plain") == PLAIN
        assert acknowledging.topic_of("deleted meanwhile").attributes == {}
        assert acknowledging.when(ONE) is small.store.policies
        assert [acknowledging.reached(name) for name in ("one", "plain", "deleted meanwhile")] == [7, 0, 0]
        acknowledging.check(ONE)
        with pytest.raises(Refused, match="b cannot be reached: topic two has acknowledge=both") as refused:
            acknowledging.topic_of("two")
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_box_that_left_its_group_refuses_what_wants_two_disks(tmp_path: Path) -> None:
    async with small_store(tmp_path) as small:
        acknowledging = made(small)
        acknowledging.check(ONE)
        assert acknowledging.when(ONE) == small.store.when_acknowledged
        with pytest.raises(Refused, match="not in a group"):
            acknowledging.check(TWO)
