"""What tools see of a running consumer: its options, its queues as they are, the tasks that run."""

import trio

from netstack.client.consume.consumer_options import ConsumerOptions
from netstack.client.consume.held import HeldQueue
from netstack.client.consume.offsets import RemoteOffsets
from netstack.client.consume.subscriptions import subscription
from netstack.client.instance import Instance
from netstack.client.introspection import running_info
from netstack.client.statistics import ConsumeCounts
from netstack.wire.bodies import ConsumerRunningInfo, ConsumeType
from netstack.wire.json_body import MessageQueue

QUEUE = MessageQueue("T", "b", 0)


def told(
    held: dict[MessageQueue, HeldQueue], offsets: RemoteOffsets, instance: Instance, tasks: bool
) -> ConsumerRunningInfo:
    counts = ConsumeCounts(lambda: 1.0)
    counts.pulled("T", 5)
    return running_info(
        instance,
        ConsumerOptions(pull_batch=7, orderly=True),
        offsets,
        held,
        subscriptions=(subscription("T", "a || b", 3),),
        kind=ConsumeType.CONSUME_PASSIVELY,
        started_ms=1234,
        status=counts.status(),
        with_tasks=tasks,
    )


async def test_a_tool_reads_what_the_consumer_is_after_the_way_over_the_wire() -> None:
    instance = Instance(["n:1", "n:2"], now_ms=lambda: 1_700_000_000_000)
    offsets, held = RemoteOffsets(instance, "g"), HeldQueue(QUEUE, 40)
    held.lock.taken_at = trio.current_time()
    info = told({QUEUE: held}, offsets, instance, tasks=False)
    assert info.mq_table[QUEUE].commit_offset == 0, "an offset nobody knows is none below zero"
    offsets.set(QUEUE, 33)
    found = ConsumerRunningInfo.from_bytes(told({QUEUE: held}, offsets, instance, tasks=False).to_bytes())
    assert found.properties["PROP_NAMESERVER_ADDR"] == "n:1;n:2"
    assert (found.properties["pull_batch"], found.properties["PROP_CONSUMEORDERLY"]) == ("7", "true")
    assert found.properties["PROP_CONSUMER_START_TIMESTAMP"] == "1234"
    assert [each.tags_set for each in found.subscription_set] == [("a", "b")]
    queue = found.mq_table[QUEUE]
    assert (queue.commit_offset, queue.locked, queue.dropped) == (33, True, False)
    assert abs(queue.last_pull_ms - 1_700_000_000_000) < 5000
    assert found.status_table["T"].pull_tps == 5.0
    assert found.jstack is None


async def test_the_tree_of_tasks_names_each_task_below_the_one_that_started_it() -> None:
    instance = Instance("n:1")

    async def a_task_of_mine() -> None:
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(a_task_of_mine)
        text = told({}, RemoteOffsets(instance, "g"), instance, tasks=True).jstack or ""
        lines = text.splitlines()
        (mine,) = [line for line in lines if "a_task_of_mine" in line]
        assert not lines[0].startswith(" ")
        assert mine.startswith("  ")
        assert "test_introspection.py:" in mine
        nursery.cancel_scope.cancel()
