"""Which queues a member takes and gives back, against a broker whose answers the test decides."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from netstack.client import Averagely, PullConsumer, PushConsumer, StrategyFailed
from netstack.client.consume import assignment
from netstack.client.consume.assignment import STUCK_S, Assignment
from netstack.client.consume.consumer_options import ConsumerOptions
from netstack.client.consume.held import HeldQueue
from netstack.client.consume.offsets import RemoteOffsets
from netstack.client.consume.subscriptions import Subscriptions
from netstack.wire.codes import RequestCode as Code
from netstack.wire.json_body import MessageQueue
from tests.netstack.client.small_cluster import SmallCluster


class Bench:
    """One member of a group that subscribes to T, and what it began to pull."""

    def __init__(self, cluster: SmallCluster, instance: Any, options: ConsumerOptions) -> None:
        self.cluster, self.begun = cluster, list[HeldQueue]()
        self.subscriptions, self.offsets = Subscriptions(lambda: 1), RemoteOffsets(instance, "g")
        self.subscriptions.put("T", "*")
        self.changed: list[str] = []
        self.assignment = Assignment(
            instance,
            "g",
            self.subscriptions,
            self.offsets,
            options,
            begin=self.begun.append,
            changed=self.changed.append,
        )

    def held(self) -> list[int]:
        return sorted(queue.queue_id for queue in self.assignment.held)


@asynccontextmanager
async def bench(cluster: SmallCluster | None = None, **options: Any) -> AsyncIterator[Bench]:
    cluster = cluster or SmallCluster()
    async with cluster.instance() as instance:
        yield Bench(cluster, instance, ConsumerOptions(**options))


async def test_a_lone_member_takes_all_queues_from_where_the_group_stands_and_a_second_round_changes_nothing() -> None:
    cluster = SmallCluster()
    cluster.offsets, cluster.ends = {0: 5}, {1: 40, 2: 0, 3: 9}
    async with bench(cluster) as b:
        assert await b.assignment.rebalance()
        assert {each.queue.queue_id: each.next_offset for each in b.begun} == {0: 5, 1: 40, 2: 0, 3: 9}
        assert (b.changed, b.assignment.share("T"), b.assignment.share("U")) == (["T"], 4, 1)
        assert await b.assignment.rebalance()
        assert (len(b.begun), b.changed) == (4, ["T"])


async def test_queues_of_a_new_member_are_given_back_with_their_offsets_before_it_can_read_them() -> None:
    async with bench() as b:
        await b.assignment.rebalance()
        first = dict(b.assignment.held)
        for queue in first:
            b.offsets.set(queue, 100 + queue.queue_id)
        b.cluster.members.append("zz@other")  # sorts behind: it gets the upper half
        assert await b.assignment.rebalance()
        assert b.held() == [0, 1]
        assert {q: o for q, o in b.cluster.offsets.items() if q > 1} == {2: 102, 3: 103}
        lost = [held for queue, held in first.items() if queue.queue_id > 1]
        assert all(held.dropped and held.scope.cancel_called for held in lost)
        assert all(b.offsets.get(held.queue) == -1 for held in lost), "what it says is no longer ours to say"
        b.cluster.members.pop()
        b.cluster.offsets[3] = 150  # the other one went on
        await b.assignment.rebalance()
        assert b.held() == [0, 1, 2, 3]
        assert {each.queue.queue_id: each.next_offset for each in b.begun[4:]} == {2: 102, 3: 150}


async def test_a_member_that_the_broker_does_not_list_holds_nothing() -> None:
    async with bench() as b:
        b.cluster.members = ["other@1"]
        await b.assignment.rebalance()
        assert (b.held(), b.begun) == ([], [])


async def test_a_broker_that_does_not_answer_changes_nothing_and_is_asked_again_soon() -> None:
    async with bench() as b:
        await b.assignment.rebalance()
        b.cluster.failing = {Code.GET_CONSUMER_LIST_BY_GROUP}
        b.cluster.members.append("zz@other")
        assert not await b.assignment.rebalance()
        assert b.held() == [0, 1, 2, 3]
        assert b.cluster.codes()[-1] == Code.HEART_BEAT, "it may have been restarted"


async def test_a_queue_whose_offset_cannot_be_read_is_not_begun_until_it_can() -> None:
    async with bench() as b:
        b.cluster.failing = {Code.QUERY_CONSUMER_OFFSET}
        assert not await b.assignment.rebalance()
        assert b.begun == []
        b.cluster.failing = set()
        assert await b.assignment.rebalance()
        assert b.held() == [0, 1, 2, 3]


async def test_a_topic_no_longer_subscribed_is_given_back() -> None:
    async with bench() as b:
        await b.assignment.rebalance()
        b.subscriptions._table.clear()
        await b.assignment.rebalance()
        assert b.held() == []


@pytest.mark.parametrize("paused", [False, True])
async def test_a_queue_without_pulls_for_long_is_begun_anew_unless_it_is_paused(paused: bool) -> None:
    async with bench() as b:
        await b.assignment.rebalance()
        held = b.assignment.held[b.cluster.queue(1)]
        held.paused, held.pulled_at = paused, trio.current_time() - STUCK_S - 1
        b.offsets.set(held.queue, 33)
        await b.assignment.rebalance()
        again = b.assignment.held[b.cluster.queue(1)]
        assert (again is held, held.dropped) == (paused, not paused)
        assert paused or again.next_offset == 33


async def test_a_reset_drops_at_once_and_begins_where_it_says_also_for_the_broker() -> None:
    async with bench() as b:
        await b.assignment.rebalance()
        queue = b.cluster.queue(2)
        b.offsets.set(queue, 90)
        before = b.assignment.held[queue]
        b.assignment.reset({queue: 3, b.cluster.queue(9): 1})
        assert before.dropped
        assert await b.assignment.rebalance()
        assert (b.assignment.held[queue].next_offset, b.cluster.offsets[2]) == (3, 3)
        assert 9 not in b.cluster.offsets
        assert len(b.begun) == 5


async def test_a_queue_reset_during_a_round_is_pulled_once_and_from_where_the_reset_says() -> None:
    async with bench() as b:
        await b.assignment.rebalance()
        queue = b.cluster.queue(2)
        b.assignment.reset({queue: 3})
        await b.assignment._rebalance_topic(queue.topic)  # what was left of the round
        between = b.assignment.held[queue]
        assert await b.assignment.rebalance()
        assert between.dropped, "its pulls would go on beside those of the one that takes its place"
        assert b.assignment.held[queue].next_offset == 3


async def test_an_ordered_queue_is_begun_only_under_its_lock_and_unlocked_when_given_back() -> None:
    async with bench(orderly=True) as b:
        b.cluster.lockable = {0, 1}
        assert not await b.assignment.rebalance()
        assert b.held() == [0, 1]
        assert all(held.lock.held for held in b.begun)
        b.cluster.lockable = {0, 1, 2, 3}
        assert await b.assignment.rebalance()
        assert b.held() == [0, 1, 2, 3]
        b.cluster.members.append("zz@other")
        await b.assignment.rebalance()
        await b.offsets.read(b.cluster.queue(0))  # behind the unlocks, which nobody answers
        assert sorted(b.cluster.unlocked) == [2, 3]
        order = [code for code in b.cluster.codes() if code in (Code.UPDATE_CONSUMER_OFFSET, Code.UNLOCK_BATCH_MQ)]
        assert order[-1] == Code.UNLOCK_BATCH_MQ, "the next member must find the offset when it has the lock"


async def test_a_busy_listener_keeps_its_queue_until_it_ends_and_nothing_else_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(assignment, "BUSY_S", 0.01)
    async with bench() as b:
        await b.assignment.rebalance()
        busy = b.assignment.held[b.cluster.queue(3)]
        busy.busy = True
        b.cluster.members.append("zz@other")
        assert not await b.assignment.rebalance()
        assert (b.held(), busy.dropped) == ([0, 1, 3], True)
        busy.busy = False
        assert await b.assignment.rebalance()
        assert b.held() == [0, 1]


async def test_a_lock_that_is_not_renewed_stops_the_queue_and_a_new_one_starts_from_the_brokers_offset() -> None:
    async with bench(orderly=True) as b:
        await b.assignment.rebalance()
        b.cluster.lockable = {0, 1, 2}
        await b.assignment.lock_all()
        lost = b.assignment.held[b.cluster.queue(3)]
        assert (lost.lock.held, lost.lock.fresh) == (False, False)
        b.cluster.lockable = {0, 1, 2, 3}
        await b.assignment.lock_all()
        assert (lost.lock.held, lost.lock.fresh) == (True, True)
        kept = b.assignment.held[b.cluster.queue(0)]
        assert (kept.lock.held, kept.lock.fresh) == (True, False)


async def test_leaving_says_where_the_group_stands_and_frees_every_lock() -> None:
    async with bench(orderly=True) as b:
        await b.assignment.rebalance()
        for queue in b.assignment.held:
            b.offsets.set(queue, 70 + queue.queue_id)
        await b.assignment.leave()
        await b.offsets.read(b.cluster.queue(0))  # behind the unlocks, which nobody answers
        assert b.cluster.offsets == {0: 70, 1: 71, 2: 72, 3: 73}
        assert (sorted(b.cluster.unlocked), b.held()) == ([0, 1, 2, 3], [])
        assert all(held.dropped for held in b.begun)


async def test_in_broadcasting_everybody_holds_everything_and_nobody_is_asked_for_members() -> None:
    async with bench(broadcasting=True, orderly=True) as b:
        b.cluster.members = ["other@1"]
        await b.assignment.rebalance()
        assert b.held() == [0, 1, 2, 3]
        assert not {Code.GET_CONSUMER_LIST_BY_GROUP, Code.LOCK_BATCH_MQ} & set(b.cluster.codes())


class Fickle(Averagely):
    """A strategy of the application's own that raises while `broken` is set."""

    broken = False

    def __call__(self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        if self.broken:
            raise ValueError("no weight for this member")
        return super().__call__(me, queues, members)


async def test_a_strategy_that_raises_leaves_the_queues_as_they_were_and_is_told_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(strategy=Fickle()) as b:
        await b.assignment.rebalance()
        monkeypatch.setattr(Fickle, "broken", True)
        b.cluster.members.append("zz@other")
        assert await b.assignment.rebalance(), "a second later it would raise again"
        assert (b.held(), len(b.begun)) == ([0, 1, 2, 3], 4)
        (said,) = [each for each in caplog.records if each.levelname == "ERROR"]
        assert "strategy AVG does not assign the queues of T: ValueError: no weight for this" in said.getMessage()
        assert said.exc_info is not None, "the application's own line is in the log"
        monkeypatch.setattr(Fickle, "broken", False)
        assert await b.assignment.rebalance()
        assert b.held() == [0, 1]


async def test_whose_strategy_raises_from_the_beginning_learns_it_from_the_subscription(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = ConsumerOptions(strategy=Fickle())
    async with SmallCluster().instance() as instance:
        async with PushConsumer("g", instance=instance, options=options) as consumer:
            monkeypatch.setattr(Fickle, "broken", True)
            with pytest.raises(StrategyFailed, match="ValueError: no weight"):
                await consumer.subscribe("T")
            assert "T" not in consumer.topics
        with pytest.raises(StrategyFailed, match="ValueError: no weight"):
            await PushConsumer("g", instance=instance, options=options, topics={"T": "*"}).__aenter__()
        async with PullConsumer("g", instance=instance, options=options) as reader:
            with pytest.raises(StrategyFailed, match="ValueError: no weight"):
                await reader.subscribe("T")
            assert not reader.topics


async def test_a_reset_that_no_round_came_to_is_where_the_group_stands_after_leaving() -> None:
    async with bench() as b:
        await b.assignment.rebalance()
        for queue in b.assignment.held:
            b.offsets.set(queue, 90)
        b.assignment.reset({b.cluster.queue(1): 3, b.cluster.queue(2): 4})
        with trio.CancelScope() as scope:
            scope.cancel()  # in the middle of the round
            await b.assignment.rebalance()
        await b.assignment.leave()
        assert b.cluster.offsets == {0: 90, 1: 3, 2: 4, 3: 90}


async def test_a_lock_is_given_back_when_the_queue_cannot_be_begun() -> None:
    async with bench(orderly=True) as b:
        b.cluster.failing = {Code.QUERY_CONSUMER_OFFSET}
        assert not await b.assignment.rebalance()
        b.cluster.failing = set()
        await b.offsets.read(b.cluster.queue(0))  # behind the unlocks, which nobody answers
        assert sorted(b.cluster.unlocked) == [0, 1, 2, 3]
