"""`rocketbox offsets ...`: where a group stands, and putting it elsewhere; 0 done, 1 failed."""

import argparse
from typing import Any

from appliance.commands.asking import FAILED, OK, Actions, known, run, show, stamp, time_ms
from appliance.commands.messaging.groups import show_group
from appliance.commands.tables import confirmed
from netstack.client import ClientError, MessageQueue
from netstack.client.admin import END_OF_QUEUE, RETRY, Admin
from uplink_spark.bounds import whole

__all__ = ["add_arguments", "run"]
EXAMPLES = """  rocketbox offsets show billing
  rocketbox offsets reset billing --topic readings --to first
  rocketbox offsets reset billing --topic readings --to '2026-11-21 06:00' --yes
  rocketbox offsets reset billing --topic readings --to 2h --dry-run
  rocketbox offsets clone billing --to billing-next
  rocketbox offsets set billing --topic readings --queue 3 --broker kiosk-7 --at 1200
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    actions = Actions(parser, EXAMPLES)
    actions.add("show", "consumer offset, end and lag of each queue", show_group).add_argument("group")
    reset = actions.add("reset", "move a group back or forward to a time", reset_group)
    reset.add_argument("group")
    reset.add_argument("--topic", required=True)
    reset.add_argument(
        "--to",
        required=True,
        type=place,
        metavar="first|last|TIME",
        help="TIME: 2026-11-21 06:00, or 2h for two hours ago",
    )
    reset.add_argument("--dry-run", action="store_true", help="only show what would change")
    reset.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    clone = actions.add("clone", "copy the offsets of a group to another group", clone_offsets)
    clone.add_argument("group")
    clone.add_argument("--to", required=True, metavar="GROUP", dest="other")
    clone.add_argument("--topic", help="only this topic")
    clone.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    put = actions.add("set", "set the offset of one queue while no member of the group is connected", set_offset)
    put.add_argument("group")
    put.add_argument("--topic", required=True)
    put.add_argument("--broker", metavar="NAME", help="needed if several brokers have the topic")
    put.add_argument("--queue", type=whole(0), required=True, metavar="N")
    put.add_argument("--at", type=whole(0), required=True, metavar="OFFSET")
    put.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def place(text: str) -> int:
    """Return the time that `first`, `last` or a time means to the brokers."""
    named = {"first": 0, "last": END_OF_QUEUE}
    return named[text] if text in named else time_ms(text)


async def reset_group(admin: Admin, arguments: argparse.Namespace) -> int:
    known(arguments.topic, await admin.topic_names(), "topic")
    before = await admin.progress(arguments.group, arguments.topic)
    if not before and arguments.group not in await admin.groups():
        known(arguments.group, await admin.groups(), "group")
    after = await admin.offsets_at(arguments.topic, arguments.to)
    rows = [_row(arguments, queue, before, offset) for queue, offset in sorted(after.items())]
    if not arguments.json or arguments.dry_run:
        _show(rows, as_json=arguments.json)
    if arguments.dry_run:
        return OK
    again = sum(max(0, -row["moves"]) for row in rows)
    skipped = sum(max(0, row["moves"]) for row in rows)
    when = stamp(arguments.to) or ("the first message" if arguments.to == 0 else "the end")
    what = f"{arguments.group} moves to {when}: {again:,} messages are consumed again, {skipped:,} are skipped."
    if not confirmed(what, arguments.yes):
        return FAILED
    await admin.reset(arguments.group, arguments.topic, arguments.to)
    if arguments.json:
        _show(rows, as_json=True)
    return OK


def _row(arguments: argparse.Namespace, queue: MessageQueue, before: Any, offset: int) -> dict[str, Any]:
    was = before[queue].consumer_offset if queue in before else 0
    said = {"group": arguments.group, "topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id}
    return {**said, "before": was, "after": offset, "moves": offset - was}


def _show(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    heads = {"broker": "BROKER", "queue": "QUEUE", "before": "BEFORE", "after": "AFTER", "moves": "MOVES"}
    show(rows, heads, as_json=as_json)


async def clone_offsets(admin: Admin, arguments: argparse.Namespace) -> int:
    progress = await admin.progress(arguments.group, arguments.topic)
    if not progress:
        known(arguments.group, await admin.groups(), "group")
        raise ClientError(f"{arguments.group} has no offsets" + (f" on {arguments.topic}" if arguments.topic else ""))
    if await admin.members(arguments.other) is not None:
        raise ClientError(
            f"{arguments.other} has connected members, which would overwrite the offsets: stop them first"
        )
    offsets = {queue: seen.consumer_offset for queue, seen in progress.items() if not queue.topic.startswith(RETRY)}
    if not confirmed(f"{arguments.other} will continue at the offsets of {arguments.group}.", arguments.yes):
        return FAILED
    await admin.store_offsets(arguments.other, {queue: offset for queue, offset in offsets.items() if offset >= 0})
    return OK


async def set_offset(admin: Admin, arguments: argparse.Namespace) -> int:
    known(arguments.topic, await admin.topic_names(), "topic")
    if await admin.members(arguments.group) is not None:
        raise ClientError(
            f"{arguments.group} has connected members, which would overwrite the offset: stop them, or use reset"
        )
    ends = await admin.topic_offsets(arguments.topic)
    fitting = [
        queue for queue in ends if queue.queue_id == arguments.queue and arguments.broker in (None, queue.broker_name)
    ]
    if len(fitting) != 1:
        places = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in sorted(ends))
        raise ClientError(f"{len(fitting)} queues match; the topic has {places}")
    seen = ends[fitting[0]]
    if not seen.min_offset <= arguments.at <= seen.max_offset:
        raise ClientError(
            f"{arguments.at} is outside of the queue, which has offsets {seen.min_offset} to {seen.max_offset}"
        )
    if not confirmed(f"{arguments.group} will continue at {arguments.at}.", arguments.yes):
        return FAILED
    await admin.store_offsets(arguments.group, {fitting[0]: arguments.at})
    return OK
