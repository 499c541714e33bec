"""`rocketbox request`: send a request and print the reply of whoever consumes the topic; exit 3 when none came."""

import argparse
import sys

from appliance.commands.messaging.cluster import (
    NOTHING,
    OK,
    add_cluster_arguments,
    message_row,
    open_instance,
    print_json,
    run_command,
)
from netstack.client import Message, NoReply, Producer
from uplink_spark.bounds import amount


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("topic")
    parser.add_argument("body", help="text of the request")
    parser.add_argument("--tags", default="")
    parser.add_argument("--keys", default="")
    parser.add_argument("--group", default="rocketbox_request")
    parser.add_argument("--timeout", type=amount(), default=5.0, metavar="S", help="for the reply (default: 5)")
    add_cluster_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask; return 0 with the reply on stdout, 3 without one."""
    return run_command(_main, arguments)


async def _main(arguments: argparse.Namespace) -> int:
    async with open_instance(arguments) as instance, Producer(arguments.group, instance=instance) as producer:
        asked = Message(arguments.topic, arguments.body.encode(), tags=arguments.tags, keys=arguments.keys)
        try:
            print_json(message_row(await producer.request(asked, timeout_s=arguments.timeout)))
        except NoReply as error:
            print(f"rocketbox: {error}", file=sys.stderr)
            return NOTHING
    return OK
