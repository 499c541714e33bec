"""`rocketbox tail`: the newest messages of a topic, then those that come; joins no group, moves no offset."""

import argparse

import trio

from appliance.commands.messaging.cluster import (
    NOTHING,
    OK,
    add_cluster_arguments,
    message_row,
    open_instance,
    print_json,
    raise_refusal,
    run_command,
)
from netstack.client import BrokerRefused, MessageQueue
from netstack.client.consume.pulling import Pulled
from netstack.client.consume.queue_reader import TOOLS_GROUP, QueueReader
from netstack.wire.codes import ResponseCode
from uplink_spark.bounds import whole

BUSY_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("topic")
    parser.add_argument(
        "-n", "--lines", type=whole(0), default=10, metavar="N", help="messages to begin with (default: 10)"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="wait for more until Ctrl-C")
    parser.add_argument("--tags", default="*", metavar="A||B", help="only these tags (default: all)")
    parser.add_argument(
        "--group", default=TOOLS_GROUP, help=f"group to read as, which is not joined (default: {TOOLS_GROUP})"
    )
    parser.add_argument("--since-ms", type=whole(0), metavar="EPOCH_MS", help="begin with messages stored at this time")
    add_cluster_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print; return 0, or 3 when the topic holds nothing."""
    return run_command(_main, arguments)


async def _main(arguments: argparse.Namespace) -> int:
    async with open_instance(arguments) as instance:
        reader = QueueReader(instance, arguments.group)
        rows = []
        ends: dict[MessageQueue, int] = {}
        for queue in await reader.queues(arguments.topic):
            at, ends[queue] = await reader.ends(queue)
            if arguments.since_ms is not None:
                at = await reader.offset_at(queue, arguments.since_ms)
            else:
                at = max(at, ends[queue] - arguments.lines)
            while at < ends[queue]:
                pulled = await _pull(reader, queue, at, arguments.tags)
                rows += [message_row(message) for message in pulled.messages if message.queue_offset < ends[queue]]
                at = max(pulled.next_offset, at + 1)
        if arguments.since_ms is not None:  # brokers of 4.9 begin at the nearest message, which may be an older one
            rows = [row for row in rows if row["stored_ms"] >= arguments.since_ms]
        rows.sort(key=lambda row: (row["stored_ms"], row["broker"], row["queue"], row["offset"]))
        for row in rows if arguments.since_ms is not None else rows[-arguments.lines :]:
            print_json(row)
        if arguments.follow:
            await _follow(reader, ends, arguments.tags)
        return OK if rows else NOTHING


async def _pull(reader: QueueReader, queue: MessageQueue, at: int, tags: str, *, hold_s: float = 0.0) -> Pulled:
    """Return what a queue holds from an offset on. Raises ClientError, which names --group where that helps."""
    try:
        return await reader.pull(queue, at, expression=tags, hold_s=hold_s)
    except BrokerRefused as refused:
        raise_refusal(refused, reader.group)


async def _follow(reader: QueueReader, ends: dict[MessageQueue, int], tags: str) -> None:
    """Print what comes after the ends, until interrupted."""

    async def follow(queue: MessageQueue, at: int) -> None:
        while True:
            try:
                pulled = await _pull(reader, queue, at, tags, hold_s=15.0)
            except BrokerRefused as refused:
                if refused.code != ResponseCode.SYSTEM_BUSY:  # no room for one more pull that waits: ask again
                    raise
                await trio.sleep(BUSY_S)
                continue
            for message in pulled.messages:
                print_json(message_row(message))
            at = pulled.next_offset

    async with trio.open_nursery() as nursery:
        for queue, end in ends.items():
            nursery.start_soon(follow, queue, end)
