"""`rocketbox consume`: messages of a topic as a member of a group, one JSON object per line; offsets are committed."""

import argparse
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import trio

from appliance.commands.messaging.cluster import (
    NOTHING,
    OK,
    ProgressLine,
    add_cluster_arguments,
    message_row,
    open_instance,
    print_json,
    raise_refusal,
    run_command,
)
from appliance.commands.tables import near
from netstack.client import BrokerRefused, ClientError, ConsumerOptions, Instance, PushConsumer, Sql, StartFrom
from netstack.client.admin import Admin
from netstack.client.consume.offsets import RemoteOffsets
from netstack.wire.codes import ResponseCode
from uplink_spark.bounds import amount, whole

GROUP = "rocketbox_consume"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.epilog = (
        "Exit code 3: no message arrived within --timeout. A message is acknowledged after its line is printed."
    )
    parser.add_argument("topic")
    parser.add_argument("--group", default=GROUP, help=f"group to consume as (default: {GROUP})")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--tags", default="*", metavar="A||B", help="only these tags (default: all)")
    chosen.add_argument("--sql", metavar="EXPRESSION", help="only messages that a SQL92 expression selects")
    parser.add_argument(
        "--from",
        dest="start",
        choices=("last", "first"),
        default="first",
        help="where a new group begins (default: first)",
    )
    parser.add_argument("--max", type=whole(1), metavar="N", help="end after N messages")
    parser.add_argument("--timeout", type=amount(zero=True), metavar="S", help="end after S seconds without a message")
    parser.add_argument("--quiet", action="store_true", help="print only the count")
    add_cluster_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Consume until the count, the timeout or Ctrl-C; return 0, or 3 when nothing came."""
    return run_command(_main, arguments)


async def _main(arguments: argparse.Namespace) -> int:
    start = StartFrom.FIRST if arguments.start == "first" else StartFrom.LAST
    wanted = Sql(arguments.sql) if arguments.sql else arguments.tags
    progress = ProgressLine("messages consumed")
    options = ConsumerOptions(start_from=start)
    async with (
        open_instance(arguments) as instance,
        _allowed(instance, arguments),
        PushConsumer(arguments.group, instance=instance, options=options, topics={arguments.topic: wanted}) as consumer,
    ):
        wait_s = float("inf") if arguments.timeout is None else arguments.timeout
        if arguments.timeout is None:
            await _tell_missing(instance, arguments.topic)
        while arguments.max is None or progress.count < arguments.max:
            with trio.move_on_after(wait_s) as waited:
                message = await consumer.__anext__()
            if waited.cancelled_caught:
                break
            if not arguments.quiet:
                print_json(message_row(message))
            consumer.ack(message)
            progress.add()
        missing = "" if progress.count else await _missing(instance, arguments.topic)
    progress.end()
    if not progress.count:
        print(f"rocketbox: no message from {arguments.topic} within {wait_s:g} s{missing}", file=sys.stderr)
    return OK if progress.count else NOTHING


@asynccontextmanager
async def _allowed(instance: Instance, arguments: argparse.Namespace) -> AsyncIterator[None]:
    """A consumer that the key allows; of any other failure it logs the reason and tries again. Raises ClientError."""
    try:
        route = await instance.route(arguments.topic)
        for queue in route.subscribe[:1]:
            await RemoteOffsets(instance, arguments.group).read(queue)
    except BrokerRefused as refused:
        if "AclException" in (refused.remark or "") or refused.code == ResponseCode.NO_PERMISSION:
            raise_refusal(refused, arguments.group)
    except ClientError:  # there may be no such topic yet
        pass
    yield


async def _tell_missing(instance: Instance, topic: str) -> None:
    """Say at once what a consumer without --timeout would wait for in silence."""
    if missing := await _missing(instance, topic):
        print(f"rocketbox: waits for messages of {topic}{missing}", file=sys.stderr, flush=True)


async def _missing(instance: Instance, topic: str) -> str:
    """Return that there is no such topic, which may still come, and which names are near."""
    with suppress(ClientError):  # one that may read its topic alone is told nothing
        names = await Admin(instance).topic_names()
        return "" if topic in names else f": no broker has this topic{near(topic, names)}"
    return ""
