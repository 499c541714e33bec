"""The state of a running consumer, for tools. Source: RocketMQ 4.9.8 ConsumerRunningInfo, DefaultMQPushConsumerImpl."""

import dataclasses
from collections.abc import Iterator, Mapping

import trio

from netstack.client.consume.consumer_options import ConsumerOptions
from netstack.client.consume.held import HeldQueue
from netstack.client.consume.offsets import OffsetStore
from netstack.client.instance import Instance
from netstack.wire.bodies import ConsumerRunningInfo, ConsumeStatus, ConsumeType, SubscriptionData
from netstack.wire.json_body import MessageQueue

VERSION_TEXT = "V4_9_8"


def running_info(
    instance: Instance,
    options: ConsumerOptions,
    offsets: OffsetStore,
    held: Mapping[MessageQueue, HeldQueue],
    *,
    subscriptions: tuple[SubscriptionData, ...],
    kind: ConsumeType,
    started_ms: int,
    status: dict[str, ConsumeStatus],
    with_tasks: bool,
) -> ConsumerRunningInfo:
    """Return configuration, subscriptions, queues and rates; a tree of tasks when asked for."""
    wall_offset_s = instance.now_ms() / 1000 - trio.current_time()
    properties = {field.name: str(getattr(options, field.name)) for field in dataclasses.fields(options)}
    properties |= {
        "PROP_NAMESERVER_ADDR": ";".join(instance.name_servers),
        "PROP_CONSUME_TYPE": kind.value,
        "PROP_CLIENT_VERSION": VERSION_TEXT,
        "PROP_CONSUMEORDERLY": str(options.orderly).lower(),
        "PROP_THREADPOOL_CORE_SIZE": "1",
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
    }
    table = {queue: each.status(max(0, offsets.get(queue)), wall_offset_s) for queue, each in held.items()}
    tasks = "\n".join(_tree(trio.lowlevel.current_root_task(), 0)) if with_tasks else None
    return ConsumerRunningInfo(properties, subscriptions, table, status, tasks)


def _tree(task: trio.lowlevel.Task | None, depth: int) -> Iterator[str]:
    """Return the running tasks, indented by their nurseries."""
    if task is None:
        return
    coroutine = task.coro
    frame = getattr(coroutine, "cr_frame", None)
    place = f" {frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""
    yield f"{'  ' * depth}{task.name}{place}"
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _tree(child, depth + 1)
