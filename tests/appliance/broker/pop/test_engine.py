"""What a receiver is promised: nothing before its time, nothing acknowledged again, handles that outlive a restart."""

import errno
import math
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from appliance.broker.pop import pop_waits
from appliance.broker.pop.engine import PollingFull
from appliance.broker.pop.retry_topics import TopicKind
from appliance.broker.pop.taking import PopRequest
from appliance.broker.tables.groups import Group
from appliance.testing import FakePeer, MemoryStateFile
from netstack.errors import Refused
from storage_driver import journal
from storage_driver.files.disk import RealDisk
from storage_driver.record import MessageQueue
from storage_driver.testing import MemoryDisk
from tests.appliance.broker.pop.bench import GROUP, TOPIC, PopBench, bodies, handles, messages, pop_bench
from tests.waiting import Clock, turns_of_others, until

RETRY = "%RETRY%G_T"


async def test_messages_are_taken_once_and_acknowledged_one_by_one(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"1", b"2", b"3")
        first, second = await bench.receive(2), await bench.receive(2)
        assert (bodies(first), bodies(second)) == ([b"1", b"2"], [b"3"])
        assert bodies(await bench.receive()) == []
        one, two = handles(first)
        assert await bench.acknowledge(two) == [True]
        assert bench.offsets.get(GROUP, TOPIC, 0) == 0  # the first one is still out
        assert await bench.acknowledge(one, one, *handles(second)) == [True, False, True]
        assert bench.offsets.get(GROUP, TOPIC, 0) == 3


async def test_all_queues_of_a_topic_are_received_from_or_the_one_that_was_asked_for(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"0", queue_id=0)
        await bench.send(b"1", queue_id=1)
        assert bodies(await bench.receive(queue_id=1)) == [b"1"]
        await bench.send(b"11", queue_id=1)
        assert sorted(bodies(await bench.receive())) == [b"0", b"11"]


async def test_what_is_not_acknowledged_comes_again_in_the_retry_topic_when_its_time_is_over(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"1", b"2")
        began_s = trio.current_time()
        first = await bench.receive(invisible_ms=1000)
        await bench.acknowledge(handles(first)[0])
        again = await bench.receive(poll_s=10)
        assert trio.current_time() - began_s >= 1
        (message,) = messages(again)
        assert (message.body, message.topic, message.reconsume_times, message.born_ms) == (b"2", RETRY, 1, 123)
        added = {"1ST_POP_TIME": str(first.pop_ms), "ORIGIN_GROUP": GROUP, "RBX_POP_FROM": "T 0 1"}
        assert message.property_map == added
        assert again.slices[0].kind is TopicKind.RETRY
        assert bench.offsets.get(GROUP, TOPIC, 0) == 2
        assert await bench.acknowledge(handles(first)[1]) == [False]  # it has another handle now
        assert await bench.acknowledge(*handles(again)) == [True]


async def test_a_message_that_is_never_acknowledged_becomes_a_dead_letter(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"1")
        times = []
        for _ in range(3):  # retry_max_times = 2
            answer = await bench.receive(invisible_ms=1, poll_s=10)
            times += [message.reconsume_times for message in messages(answer)]
        (dead,) = await bench.small.wait_for("%DLQ%G", 1)
        assert times == [0, 1, 2]
        assert (dead.body, dead.property_map["RETRY_TOPIC"]) == (b"1", TOPIC)
        assert bodies(await bench.receive()) == []


async def test_a_renewal_moves_the_time_and_keeps_the_handle(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"1", b"2")
        answer = await bench.receive(invisible_ms=1000)
        began_s = trio.current_time()
        for handle in handles(answer):
            renewed = bench.engine.renew(handle, 150)
            assert renewed is not None
            assert renewed.pop_ms == answer.pop_ms
        await bench.acknowledge(handles(answer)[0])
        again = await bench.receive(poll_s=10)
        assert bodies(again) == [b"2"]
        assert trio.current_time() - began_s >= 0.15
        assert bench.engine.renew(handles(answer)[0], 1) is None


async def test_a_message_that_is_given_back_comes_again_at_once(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"1")
        answer = await bench.receive()
        assert bench.engine.renew(handles(answer)[0], 0) is not None
        assert bodies(await bench.receive(poll_s=10)) == [b"1"]


async def test_a_message_is_given_up_among_the_dead_letters_and_never_comes_again(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"1")
        (handle,) = handles(await bench.receive())
        assert await bench.engine.dead_letter(handle)
        assert not await bench.engine.dead_letter(handle)
        assert [dead.body for dead in await bench.small.all("%DLQ%G")] == [b"1"]
        assert bench.offsets.get(GROUP, TOPIC, 0) == 1


async def test_handles_outlive_a_restart_and_nothing_comes_before_its_time(tmp_path: Path) -> None:
    offsets, clock = MemoryStateFile(), Clock()
    async with pop_bench(tmp_path, offsets=offsets, now_ms=clock) as bench:
        await bench.send(b"1", b"2", b"3", b"4")
        answer = await bench.receive(3, invisible_ms=60_000)
        one, two, three = handles(answer)
        await bench.acknowledge(two)
        bench.engine.renew(three, 120_000)
        await bench.acknowledge(one)
    clock.ms += 59_900
    async with pop_bench(tmp_path, offsets=offsets, now_ms=clock) as bench:
        assert bodies(await bench.receive()) == [b"4"]
        assert await bench.acknowledge(two, one, three) == [False, False, True]
        assert bench.offsets.get(GROUP, TOPIC, 0) == 3
    async with pop_bench(tmp_path, offsets=offsets, now_ms=clock) as bench:
        assert bodies(await bench.receive()) == []
        assert bench.table.in_flight == 1


async def test_what_was_due_while_the_box_was_off_comes_again_at_the_start(tmp_path: Path) -> None:
    clock = Clock()
    async with pop_bench(tmp_path, now_ms=clock) as bench:
        await bench.send(b"1")
        await bench.receive(invisible_ms=60_000)
    clock.ms += 60_000
    async with pop_bench(tmp_path, now_ms=clock) as bench:
        assert bodies(await bench.receive(poll_s=10)) == [b"1"]


async def test_a_receiver_waits_for_the_first_message_and_others_for_the_next(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench, trio.open_nursery() as nursery:
        got: list[bytes] = []

        async def wait() -> None:
            got.extend(bodies(await bench.receive(1, poll_s=60)))

        for _ in range(3):
            nursery.start_soon(wait)
        await until(lambda: bench.engine.waits.count(GROUP, TOPIC) == 3)
        await bench.send(b"1", b"2")
        await until(lambda: len(got) == 2)
        assert bench.engine.waits.count(GROUP, TOPIC) == 1
        await bench.send(b"3", queue_id=1)
        await until(lambda: sorted(got) == [b"1", b"2", b"3"])


async def test_a_receiver_that_goes_away_passes_its_turn_on(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench, trio.open_nursery() as nursery:
        got: list[bytes] = []
        first = trio.CancelScope()

        async def wait(scope: trio.CancelScope) -> None:
            with scope:
                got.extend(bodies(await bench.receive(1, poll_s=60)))

        nursery.start_soon(wait, first)
        await until(lambda: bench.engine.waits.count(GROUP, TOPIC) == 1)
        nursery.start_soon(wait, trio.CancelScope())
        await until(lambda: bench.engine.waits.count(GROUP, TOPIC) == 2)
        bench.engine.waits.wake_one(GROUP, TOPIC, next(iter(bench.small.arrivals.watched)))  # type: ignore[call-overload]
        first.cancel()
        await bench.send(b"1")
        await until(lambda: got == [b"1"])


async def test_a_receiver_gets_what_its_filter_accepts_and_the_offset_passes_the_rest(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"a", tags="A")
        await bench.send(b"b", tags="B")
        await bench.send(b"c", tags="A")
        only_b = frozenset({ord("B")}).__contains__
        answer = await bench.receive(accepts=only_b)
        assert bodies(answer) == [b"b"]
        await bench.acknowledge(*handles(answer))
        assert bodies(await bench.receive(accepts=only_b)) == []
        assert bench.offsets.get(GROUP, TOPIC, 0) == 3


@pytest.mark.parametrize(("from_end", "expected"), [(True, []), (False, [b"1"])])
async def test_a_new_group_begins_where_it_asks(tmp_path: Path, from_end: bool, expected: list[bytes]) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"1")
        bench.offsets.commit("other", TOPIC, 0, 1)
        stored = bench.offsets.get("other", TOPIC, 0)
        answer = await bench.receive(group="other" if from_end else GROUP)
        assert (stored, bodies(answer)) == (1, expected)


async def test_a_reset_brings_messages_again_and_makes_handles_invalid(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"1", b"2")
        answer = await bench.receive()
        bench.offsets.reset(GROUP, TOPIC, 0, 1)
        assert await bench.acknowledge(*handles(answer)) == [False, False]
        again = await bench.receive()
        assert bodies(again) == [b"2"]
        await bench.acknowledge(*handles(again))
    async with pop_bench(tmp_path) as bench:
        assert bodies(await bench.receive()) == []


async def test_members_that_pull_move_the_group_on(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"1", b"2", b"3")
        answer = await bench.receive(1)
        bench.offsets.commit(GROUP, TOPIC, 0, 2)
        assert bodies(await bench.receive()) == [b"3"]
        assert await bench.acknowledge(*handles(answer)) == [False]


async def test_a_deleted_topic_is_forgotten(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"1")
        await bench.receive()
        bench.offsets.drop_topic(TOPIC)
        assert (bench.table.in_flight, [queue.key.queue.topic for queue in bench.table.all()]) == (0, [])


async def delete_topic(bench: PopBench) -> None:
    bench.topics.delete(TOPIC)
    await bench.small.store.delete_topic(TOPIC)
    bench.offsets.drop_topic(TOPIC)


def delete_after(bench: PopBench, monkeypatch: pytest.MonkeyPatch, part: object, method: str) -> None:
    """Have the topic deleted just after the next call of a method, before its caller goes on."""
    call = getattr(part, method)

    async def call_and_delete(*asked: Any) -> Any:
        answer = await call(*asked)
        monkeypatch.undo()
        await delete_topic(bench)
        return answer

    monkeypatch.setattr(part, method, call_and_delete)


@pytest.mark.pure
async def test_a_topic_that_is_deleted_while_it_is_read_ends_the_read_and_leaves_no_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"1", b"2")
        delete_after(bench, monkeypatch, bench.engine._taking._reader, "read")
        with trio.fail_after(30):
            assert bodies(await bench.receive(queue_id=0, accepts=lambda code: False)) == []
        assert (bench.offsets.table(), len(bench.table)) == ({}, 0)


async def test_a_topic_that_is_deleted_while_its_messages_are_stored_again_leaves_no_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next topic of that name began behind its first messages."""
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"1", b"2")
        delete_after(bench, monkeypatch, bench.engine._copies, "again")
        await bench.receive(invisible_ms=1)
        await until(lambda: bench.engine._revival.copied)
        assert bench.offsets.table() == {}
        bench.topics.ensure(TOPIC, queues=1)
        await bench.send(b"3")
        assert b"3" in bodies(await bench.receive(queue_id=0)), "beside the copy that is there"


async def test_no_more_than_the_limit_is_in_flight(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        bench.table.limits = bench.table.limits._replace(queue=3, owner=5, all=6)
        for queue_id in (0, 1):
            await bench.send(*[b"x"] * 8, queue_id=queue_id)
        one = await bench.receive(queue_id=0, owner="a")
        two = await bench.receive(queue_id=1, owner="a")
        three = await bench.receive(owner="b")
        assert [len(bodies(each)) for each in (one, two, three)] == [3, 2, 1]
        assert bodies(await bench.receive(owner="c")) == []
        await bench.acknowledge(handles(one)[0])
        assert len(bodies(await bench.receive(owner="c"))) == 1


async def test_what_was_taken_is_told_where_the_next_queue_is_refused(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        bench.table.limits = bench.table.limits._replace(queues=1)
        for queue_id in (0, 1):
            await bench.send(b"%d" % queue_id, queue_id=queue_id)
        [first] = bodies(await bench.receive())
        await bench.send(b"more", queue_id=int(first))
        got = list[bytes]()
        for _ in range(10):  # each begins at one of both queues
            with suppress(Refused):
                got += bodies(await bench.receive())
        assert got == [b"more"]


async def test_a_receiver_that_waits_for_room_gets_it_with_an_acknowledgement(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench, trio.open_nursery() as nursery:
        bench.table.limits = bench.table.limits._replace(queue=1)
        await bench.send(b"1", b"2")
        got: list[bytes] = []
        first = await bench.receive()

        async def wait() -> None:
            got.extend(bodies(await bench.receive(poll_s=60)))

        nursery.start_soon(wait)
        await until(lambda: bench.engine.waits.count(GROUP, TOPIC) == 1)
        await bench.acknowledge(*handles(first))
        await until(lambda: got == [b"2"])


async def test_too_many_that_wait_are_refused(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        bench.small.arrivals.most_parked = 0
        with pytest.raises(PollingFull):
            await bench.receive(poll_s=1)


async def test_receivers_of_a_topic_of_many_queues_let_others_have_their_turn(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        bench.topics.ensure("Wide", queues=320)
        assert await turns_of_others(partial(bench.receive, topic="Wide")) >= 8
        peer = FakePeer()
        wanted = PopRequest(GROUP, "Wide", -1, 1, 0)
        assert await turns_of_others(partial(bench.engine.peek, wanted, peer)) >= 8


async def test_a_receiver_that_has_some_messages_waits_for_no_other_that_looks_at_many_queues(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        bench.topics.ensure("Wide", queues=100)
        for queue_id in range(100):
            await bench.send(b"x", topic="Wide", queue_id=queue_id)
        await bench.engine._wide.acquire()
        with trio.fail_after(30):
            assert len(bodies(await bench.receive(topic="Wide"))) == 32
        bench.engine._wide.release()


@pytest.mark.pure
async def test_who_waits_is_asked_about_no_queue_that_has_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hundred receivers of a topic of 1,024 queues took five seconds of everybody for each message."""
    async with pop_bench(tmp_path) as bench, trio.open_nursery() as nursery:
        bench.topics.ensure("Wide", queues=40)
        for _ in range(3):
            nursery.start_soon(partial(bench.receive, topic="Wide", poll_s=60))
        await until(lambda: bench.engine.waits.count(GROUP, "Wide") == 3)
        asked = list[MessageQueue]()
        monkeypatch.setattr(bench.engine.waits, "wake_one", lambda group, topic, queue: asked.append(queue))
        await bench.receive(topic="Wide")
        assert asked == []
        nursery.cancel_scope.cancel()


async def test_receivers_wait_for_so_many_queues_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pop_waits, "MOST_QUEUES", 11)
    async with pop_bench(tmp_path) as bench, trio.open_nursery() as nursery:
        for _ in range(2):  # four queues, and that of retries
            nursery.start_soon(partial(bench.receive, poll_s=60))
        await until(lambda: bench.engine.waits.count(GROUP, TOPIC) == 2)
        with pytest.raises(PollingFull):
            await bench.receive(poll_s=60)
        await bench.send(b"1")
        await until(lambda: bench.engine.waits.count(GROUP, TOPIC) == 1)
        await bench.receive(poll_s=0.01)  # there is room
        nursery.cancel_scope.cancel()


async def test_a_retry_topic_of_the_second_naming_is_consumed_and_goes_on_being_used(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        bench.topics.ensure("%RETRY%G+T", queues=1)
        await bench.send(b"old", topic="%RETRY%G+T")
        answer = await bench.receive(invisible_ms=1)
        assert [found.kind for found in answer.slices] == [TopicKind.RETRY_V2]
        await bench.send(b"new")
        await bench.receive(invisible_ms=1)
        found = await bench.small.wait_for("%RETRY%G+T", 3)
        assert {message.body for message in found} == {b"new", b"old"}
        assert bench.topics.get(RETRY) is None


async def test_a_message_whose_retry_topic_would_have_too_long_a_name_comes_again_in_its_place(tmp_path: Path) -> None:
    group = "g" * 125
    async with pop_bench(tmp_path) as bench:
        bench.groups.put(Group(group))
        await bench.send(b"1")
        first = await bench.receive(group=group, invisible_ms=1)
        again = await bench.receive(group=group, poll_s=10)
        assert [(each.body, each.reconsume_times) for each in messages(again)] == [(b"1", 1)]
        assert await bench.acknowledge(*handles(first, group)) == [False]
        assert await bench.acknowledge(*handles(again, group)) == [True]
        assert bench.offsets.get(group, TOPIC, 0) == 1


async def test_what_comes_again_in_its_place_has_room_where_nothing_new_has(tmp_path: Path) -> None:
    group = "g" * 125  # the name of its retry topic is too long
    async with pop_bench(tmp_path) as bench:
        bench.groups.put(Group(group))
        bench.table.limits = bench.table.limits._replace(queue=2)
        await bench.send(b"1", b"2", b"3")
        await bench.receive(group=group, invisible_ms=1)
        again = await bench.receive(group=group, poll_s=10)
        assert bodies(again) == [b"1", b"2"]
        await bench.acknowledge(*handles(again, group))
        assert bodies(await bench.receive(group=group)) == [b"3"]


async def test_a_receiver_without_room_rests_beside_what_comes_again_in_its_place(tmp_path: Path) -> None:
    """It looked again and again until its poll was over, in which nobody else had a turn."""
    async with pop_bench(tmp_path) as bench, trio.open_nursery() as nursery:
        bench.table.limits = bench.table.limits._replace(owner=1)
        for queue_id in (0, 1):
            await bench.send(b"%d" % queue_id, queue_id=queue_id)
        await bench.receive(queue_id=1, order=True, invisible_ms=0, owner="a")
        await until(lambda: any(queue.again for queue in bench.table.all()))
        (handle,) = handles(await bench.receive(queue_id=0, owner="a"))
        got: list[bytes] = []

        async def wait() -> None:
            got.extend(bodies(await bench.receive(queue_id=1, order=True, owner="a", poll_s=5)))

        began_s = trio.current_time()
        nursery.start_soon(wait)
        await until(lambda: bench.engine.waits.count(GROUP, TOPIC) == 1)
        assert trio.current_time() - began_s < 4
        await bench.acknowledge(handle)
        assert bodies(await bench.receive(queue_id=1, order=True, owner="b")) == [b"1"]
        nursery.cancel_scope.cancel()


async def test_by_priority_the_highest_queue_comes_first_and_what_comes_again_last(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        topic = bench.topics.get(TOPIC)
        assert topic is not None
        bench.topics.put(topic._replace(read_queues=4, write_queues=4, attributes={"message.type": "PRIORITY"}))
        for body in (b"0", b"1", b"2", b"3", b"3 too"):
            await bench.send(body, queue_id=int(body[:1]))
        first = await bench.receive(1, invisible_ms=1)
        await bench.small.wait_for(RETRY, 1)
        assert bodies(first) == [b"3"]
        assert [bodies(await bench.receive(1)) for _ in range(6)] == [[b"3 too"], [b"2"], [b"1"], [b"0"], [b"3"], []]


async def test_a_group_may_leave_priorities_alone(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        topic = bench.topics.get(TOPIC)
        assert topic is not None
        bench.topics.put(topic._replace(read_queues=4, write_queues=4, attributes={"message.type": "PRIORITY"}))
        bench.groups.put(Group(GROUP, attributes={"priority.factor": "0"}))
        for n in range(40):
            await bench.send(b"%d" % (n % 4), queue_id=n % 4)
        assert len({bodies(await bench.receive(1))[0] for _ in range(10)}) > 1  # all of one queue: one in 260,000


async def ordered(bench: PopBench, most: int = 32, **more: object) -> list[bytes]:
    return bodies(await bench.receive(most, queue_id=0, order=True, **more))  # type: ignore[arg-type]


@pytest.mark.slow
async def test_of_message_groups_nothing_acknowledged_comes_again(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"1", b"2", b"3", b"4")
        in_groups = {"queue_id": 0, "order": True, "in_groups": True}
        answer = await bench.receive(3, invisible_ms=1000, **in_groups)
        await bench.acknowledge(handles(answer)[1])
        again = await bench.receive(poll_s=10, **in_groups)
        assert (bodies(again), again.slices[0].deliveries) == ([b"1", b"3", b"4"], [1, 1, 0])
        await bench.acknowledge(*handles(again))
        assert bench.offsets.get(GROUP, TOPIC, 0) == 4


async def test_an_ordered_queue_is_blocked_until_all_of_a_batch_is_acknowledged(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"1", b"2", b"3")
        answer = await bench.receive(2, queue_id=0, order=True)
        assert await ordered(bench) == []
        await bench.acknowledge(handles(answer)[1])
        assert await ordered(bench) == []
        await bench.acknowledge(handles(answer)[0])
        assert await ordered(bench) == [b"3"]


@pytest.mark.slow
async def test_an_ordered_batch_that_nobody_finishes_does_not_grow_beyond_an_answer(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(*[bytes(60_000)] * 12)
        sizes = []
        for _ in range(4):
            answer = await bench.receive(32, invisible_ms=100, queue_id=0, order=True, poll_s=10)
            sizes.append(len(bodies(answer)))
        assert sizes == [4, 5, 5, 5], "the one that is more than fits is the last one"


@pytest.mark.slow
async def test_an_ordered_batch_comes_again_from_the_first_message_that_was_not_acknowledged(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"1", b"2", b"3", b"4", b"5")
        answer = await bench.receive(4, invisible_ms=1000, queue_id=0, order=True)
        await bench.acknowledge(handles(answer)[0], handles(answer)[2])
        again = await bench.receive(queue_id=0, order=True, poll_s=10)
        assert (bodies(again), again.slices[0].deliveries) == ([b"2", b"3", b"4", b"5"], [1, 1, 1, 0])
        assert bodies(await bench.receive(queue_id=0, order=True)) == []
        await bench.acknowledge(*handles(again))
        assert bench.offsets.get(GROUP, TOPIC, 0) == 5
        assert await ordered(bench) == []


async def test_an_ordered_receiver_that_lost_its_answer_gets_the_same_batch(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench:
        await bench.send(b"1", b"2", b"3")
        lost = await bench.receive(2, queue_id=0, order=True, attempt_id="a")
        again = await bench.receive(2, queue_id=0, order=True, attempt_id="a")
        assert (bodies(again), again.slices[0].deliveries) == (bodies(lost), [0, 0])
        assert await ordered(bench, attempt_id="b") == []


async def test_receivers_that_wait_for_an_ordered_queue_rest_until_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pop_bench(tmp_path) as bench, trio.open_nursery() as nursery:
        await bench.send(b"1", b"2")
        first = await bench.receive(1, queue_id=0, order=True)
        looks = 0
        collect = bench.engine._collect

        async def counted(*arguments: object) -> object:
            nonlocal looks
            looks += 1
            return await collect(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(bench.engine, "_collect", counted)
        got: list[bytes] = []

        async def wait() -> None:
            got.extend(await ordered(bench, poll_s=60))

        for _ in range(2):
            nursery.start_soon(wait)
        await until(lambda: bench.engine.waits.count(GROUP, TOPIC) == 2)
        await trio.testing.wait_all_tasks_blocked()
        assert looks == 2
        await bench.acknowledge(*handles(first))
        await until(lambda: got == [b"2"])
        nursery.cancel_scope.cancel()


async def test_an_answer_leaves_only_after_the_take_is_durable(tmp_path: Path) -> None:
    async with pop_bench(tmp_path, run=False) as bench, trio.open_nursery() as nursery:
        await bench.send(b"1")
        answered = trio.Event()

        async def receive() -> None:
            await bench.receive()
            answered.set()

        nursery.start_soon(receive)
        await until(lambda: bench.table.in_flight == 1)
        await trio.testing.wait_all_tasks_blocked()
        assert not answered.is_set()
        nursery.start_soon(bench.engine.run)
        await answered.wait()
        nursery.cancel_scope.cancel()


async def test_waiting_receivers_count_as_parked_pulls_of_their_connection(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench, trio.open_nursery() as nursery:
        nursery.start_soon(bench.receive, 1)
        peer = FakePeer()
        wanted = PopRequest(GROUP, TOPIC, -1, 1, 1000, poll_s=math.inf)
        nursery.start_soon(partial(bench.engine.receive, wanted, peer, parked=peer))
        await until(lambda: bench.small.arrivals.parked == 1)
        nursery.cancel_scope.cancel()
    assert bench.small.arrivals.parked == 0


async def test_what_happened_is_counted(tmp_path: Path) -> None:
    async with pop_bench(tmp_path) as bench, trio.open_nursery() as nursery:
        await bench.send(b"1", b"2")
        first = await bench.receive(1)
        await bench.receive(1, invisible_ms=1)
        await bench.small.wait_for(RETRY, 1)
        await bench.acknowledge(*handles(first))
        await bench.receive()
        nursery.start_soon(partial(bench.receive, poll_s=60))
        await until(lambda: bench.engine.counts().waiting == 1)
        counts = bench.engine.counts()
        assert (counts.in_flight, counts.copied, counts.gone) == (1, 1, 0)
        assert counts.journal_bytes > 100
        assert 3 <= counts.journal_syncs <= 6
        assert bench.offsets.given(GROUP, TOPIC, 0) == 2
        nursery.cancel_scope.cancel()


async def test_after_damage_of_the_journal_a_group_begins_at_its_offset_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    offsets = MemoryStateFile()
    async with pop_bench(tmp_path, offsets=offsets) as bench:
        await bench.send(b"1", b"2", b"3", b"4")
        first = await bench.receive(1)
        await bench.acknowledge(*handles(first))
        for _ in range(3):
            await bench.receive(1)
        await bench.offsets.flush()
    file = RealDisk().open(tmp_path / "pop.journal")
    raw = file.read(4096, 0)
    last = raw.rfind(b"RBJ1")
    before = raw.rfind(b"RBJ1", 0, last)
    file.write([b"\xff" * 8], before + 30)
    async with pop_bench(tmp_path, offsets=offsets) as bench:
        assert "event=pop_journal_damaged" in caplog.text
        again = await bench.receive()
        assert bodies(again) == [b"2", b"3", b"4"]
        assert await bench.acknowledge(*handles(again)) == [True, True, True]
        assert bench.offsets.get(GROUP, TOPIC, 0) == 4


async def test_while_the_journal_cannot_be_written_nothing_is_answered_as_if_it_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "RETRY_S", 0.01)
    disk = MemoryDisk(folders=("/", *map(str, reversed(tmp_path.parents)), str(tmp_path)))
    async with pop_bench(tmp_path, disk=disk) as bench:
        await bench.send(b"1", b"2")
        first = await bench.receive(1)
        disk.fail_at, disk.fail_with, disk.keep_failing = len(disk.steps), errno.ENOSPC, True
        with pytest.raises(Refused, match="No space left"):
            await bench.acknowledge(*handles(first))
        with pytest.raises(Refused, match="No space left"):
            await bench.receive()
        disk.fail_at, disk.keep_failing = None, False
        await until(lambda: bench.engine.journal.failure is None)
        await bench.send(b"3")
        assert bodies(await bench.receive()) == [b"3"]
        assert bench.table.in_flight == 2
