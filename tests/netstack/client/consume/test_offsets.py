"""Where a group stands: what is kept in memory, what a broker is told, and where a queue without an offset begins."""

from collections.abc import Mapping

import pytest

from netstack.client.consume.consumer_options import ConsumerOptions, StartFrom
from netstack.client.consume.offsets import (
    UNKNOWN,
    RemoteOffsets,
    ask_offset,
    broker_address,
    max_offset,
    min_offset,
    starting_offset,
)
from netstack.client.errors import BrokerRefused, BrokerUnknown
from netstack.wire.codes import RequestCode as Code
from netstack.wire.headers import QueueHeader
from netstack.wire.json_body import MessageQueue
from tests.netstack.client.small_cluster import SmallCluster


async def test_memory_knows_only_what_it_was_told_and_rises_only() -> None:
    cluster = SmallCluster()
    async with cluster.instance() as instance:
        offsets, queue = RemoteOffsets(instance, "g"), cluster.queue(0)
        assert offsets.get(queue) == UNKNOWN
        for told, known in ((5, 5), (3, 5), (UNKNOWN, 5), (6, 6)):
            offsets.raise_to(queue, told)
            assert offsets.get(queue) == known
        offsets.set(queue, 2)
        assert offsets.get(queue) == 2
        offsets.forget(queue)
        offsets.forget(queue)
        assert offsets.get(queue) == UNKNOWN
        assert cluster.codes() == [], "memory asks nobody"


async def test_a_broker_is_told_of_known_offsets_alone_and_a_failure_costs_only_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = SmallCluster()
    async with cluster.instance() as instance:
        await instance.route("T")
        offsets = RemoteOffsets(instance, "g")
        elsewhere = MessageQueue("T", "gone", 0)
        for queue in (cluster.queue(0), cluster.queue(1), elsewhere):
            offsets.set(queue, 7 + queue.queue_id)
        await offsets.persist([elsewhere, cluster.queue(0), cluster.queue(1), cluster.queue(2)])
        assert cluster.offsets == {0: 7, 1: 8}
        assert caplog.text.count("event=offset_not_persisted") == 1
        cluster.failing = {Code.UPDATE_CONSUMER_OFFSET}
        await offsets.persist([cluster.queue(0)])
        assert "on purpose" in caplog.text
        assert offsets.get(cluster.queue(0)) == 7, "what was not persisted is persisted the next time"


async def test_what_a_broker_does_not_have_is_unknown_and_a_refusal_is_not() -> None:
    cluster = SmallCluster()
    async with cluster.instance() as instance:
        offsets = RemoteOffsets(instance, "g")
        assert await offsets.read(cluster.queue(1)) == UNKNOWN
        cluster.offsets[1] = 0
        assert await offsets.read(cluster.queue(1)) == 0
        cluster.failing = {Code.QUERY_CONSUMER_OFFSET}
        with pytest.raises(BrokerRefused, match="on purpose"):
            await offsets.read(cluster.queue(1))


async def test_a_broker_that_no_route_names_cannot_be_asked() -> None:
    cluster = SmallCluster()
    async with cluster.instance() as instance:
        gone = MessageQueue("T", "gone", 0)
        with pytest.raises(BrokerUnknown):
            broker_address(instance, gone)
        with pytest.raises(BrokerUnknown):
            await ask_offset(instance, gone, Code.GET_MAX_OFFSET, QueueHeader("T", 0))


STARTS: Mapping[StartFrom, int] = {StartFrom.LAST: 40, StartFrom.FIRST: 0, StartFrom.TIMESTAMP: 40}


@pytest.mark.parametrize("start", list(StartFrom))
async def test_a_stored_offset_always_wins_and_without_one_the_option_decides(start: StartFrom) -> None:
    cluster = SmallCluster()
    cluster.ends = {0: 40}
    options = ConsumerOptions(start_from=start, start_ms=1234)
    async with cluster.instance() as instance:
        offsets = RemoteOffsets(instance, "g")
        assert await starting_offset(instance, cluster.queue(0), offsets, options) == STARTS[start]
        searched = [ext["timestamp"] for code, ext in cluster.seen if code == Code.SEARCH_OFFSET_BY_TIMESTAMP]
        assert searched == (["1234"] if start is StartFrom.TIMESTAMP else [])
        cluster.offsets[0] = 7
        assert await starting_offset(instance, cluster.queue(0), offsets, options) == 7


@pytest.mark.parametrize(("start", "begins"), [(StartFrom.LAST, 0), (StartFrom.FIRST, 0), (StartFrom.TIMESTAMP, 40)])
async def test_a_retry_topic_begins_so_that_no_retry_is_missed(start: StartFrom, begins: int) -> None:
    cluster = SmallCluster()
    cluster.ends = {0: 40}
    async with cluster.instance() as instance:
        queue = MessageQueue("%RETRY%g", "b", 0)
        options = ConsumerOptions(start_from=start)
        assert await starting_offset(instance, queue, RemoteOffsets(instance, "g"), options) == begins


async def test_without_a_time_a_group_begins_half_an_hour_ago() -> None:
    cluster = SmallCluster()
    async with cluster.instance() as instance:
        options = ConsumerOptions(start_from=StartFrom.TIMESTAMP)
        before = instance.now_ms()
        await starting_offset(instance, cluster.queue(0), RemoteOffsets(instance, "g"), options)
        (asked,) = [int(ext["timestamp"]) for code, ext in cluster.seen if code == Code.SEARCH_OFFSET_BY_TIMESTAMP]
        assert 0 <= asked - (before - 1_800_000) <= instance.now_ms() - before


async def test_the_ends_of_a_queue_are_asked_of_its_broker() -> None:
    cluster = SmallCluster()
    cluster.ends = {2: 9}
    async with cluster.instance() as instance:
        assert await max_offset(instance, cluster.queue(2)) == 9
        cluster.failing = {Code.GET_MIN_OFFSET}
        with pytest.raises(BrokerRefused):
            await min_offset(instance, cluster.queue(2))
