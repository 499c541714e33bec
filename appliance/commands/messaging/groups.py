"""`rocketbox groups ...`: list, look at, make, change and delete consumer groups; 0 done, 1 failed."""

import argparse
from collections.abc import Mapping
from typing import Any

from appliance.commands.asking import FAILED, INNER_GROUPS, OK, Actions, known, legal, put_done, run, show, stamp
from appliance.commands.messaging.table_settings import asked_group, group_row, group_text, group_told
from appliance.commands.tables import confirmed
from netstack.client import ClientError, MessageQueue
from netstack.client.admin import RETRY, Admin
from netstack.wire.bodies_admin import OffsetWrapper, SubscriptionGroup
from netstack.wire.versions import version_text
from uplink_spark.bounds import whole
from uplink_spark.console import clean

__all__ = ["add_arguments", "run"]
EXAMPLES = """  rocketbox groups list
  rocketbox groups show billing
  rocketbox groups create billing --retries 5
  rocketbox groups create ledger --ordered
  rocketbox groups delete billing --yes
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    actions = Actions(parser, EXAMPLES)
    listed = actions.add("list", "all groups with members and lag", list_groups)
    listed.add_argument("--all", action="store_true", help="also groups of the brokers themselves")
    actions.add("show", "progress of each queue, members and subscriptions", show_group).add_argument("group")
    for verb, purpose, action in (
        ("create", "create a group; one that exists is never changed", create_group),
        ("change", "change a group's settings", change_group),
    ):
        made = actions.add(verb, purpose, action)
        made.add_argument("group")
        made.add_argument(
            "--retries", type=whole(0, 1 << 30), metavar="N", help="attempts before the dead letter topic (16)"
        )
        made.add_argument("--consume", choices=("on", "off"), help="off: its pulls are refused")
        made.add_argument("--broadcast", choices=("on", "off"), help="whether it may consume by broadcasting")
        made.add_argument(
            "--ordered",
            action=argparse.BooleanOptionalAction,
            help="whether clients over gRPC consume in order (consumeMessageOrderly)",
        )
    deleted = actions.add("delete", "delete a group, its offsets, retry and dead letter topic", delete_group)
    deleted.add_argument("group")
    deleted.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def lag_of(progress: dict[MessageQueue, OffsetWrapper]) -> int:
    """Return the messages a group has still to consume, retries included."""
    return sum(max(0, each.broker_offset - each.consumer_offset) for each in progress.values())


async def list_groups(admin: Admin, arguments: argparse.Namespace) -> int:
    rows = []
    for name, there in sorted((await admin.groups()).items()):
        if not arguments.all and name.startswith(INNER_GROUPS):
            continue
        progress, members = await admin.progress(name), await admin.members(name)
        topics = sorted({queue.topic for queue in progress if not queue.topic.startswith(RETRY)})
        rows.append(
            {
                "group": name,
                "members": len(members.connection_set) if members else 0,
                "model": members.message_model.value.lower() if members else "",
                "lag": lag_of(progress),
                "ordered": any(group_row(config)["ordered"] for config in there.values()),
                "topics": topics,
                "consumed": ", ".join(topics),
            }
        )
    heads = {"group": "GROUP", "members": "MEMBERS", "model": "MODEL", "lag": "LAG", "consumed": "TOPICS"}
    return show(rows, heads, as_json=arguments.json)


async def show_group(admin: Admin, arguments: argparse.Namespace) -> int:
    progress, members = await admin.progress(arguments.group), await admin.members(arguments.group)
    groups = await admin.groups()
    if not progress and members is None:
        known(arguments.group, groups, "group")
    there = groups.get(arguments.group, {})
    rows: list[dict[str, Any]] = [
        {
            "group": arguments.group,
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "ordered": queue.broker_name in there and group_row(there[queue.broker_name])["ordered"],
            "committed": seen.consumer_offset,
            "end": seen.broker_offset,
            "lag": max(0, seen.broker_offset - seen.consumer_offset),
            "newest_consumed_ms": seen.last_ms,
            "consumed": stamp(seen.last_ms),
        }
        for queue, seen in sorted(progress.items())
    ]
    heads = {"topic": "TOPIC", "broker": "BROKER", "queue": "QUEUE", "committed": "COMMITTED", "end": "END"}
    show(rows, {**heads, "lag": "LAG", "consumed": "NEWEST CONSUMED"}, as_json=arguments.json)
    if not arguments.json:
        if there:
            print(f"\n{group_told(there)[0]}")
        print(f"\nlag {lag_of(progress):,}; ", end="")
        if members is None:
            print("no member is connected")
        else:
            print(f"{len(members.connection_set)} connected, {members.message_model.value.lower()}:")
            for each in members.connection_set:
                print(clean(f"  {each.client_id}  {each.client_addr}  {each.language} {version_text(each.version)}"))
            for topic, subscription in sorted(members.subscription_table.items()):
                print(clean(f"  subscribes {topic}: {subscription.sub_string}"))
    return OK


async def create_group(admin: Admin, arguments: argparse.Namespace) -> int:
    name = legal(arguments.group, "group")
    there = (await admin.groups()).get(name, {})
    for config in there.values():
        if asked_group(config, arguments) != config:
            change = f"`rocketbox groups change {name} …` changes it"
            raise ClientError(f"{name} exists already: {group_text(config)}; {change}")
    if there:
        return put_done(name, "exists already", *group_told(there), arguments)
    wanted = asked_group(SubscriptionGroup(group_name=name), arguments)
    await admin.put_group(wanted)
    return await _checked(admin, "created", {"": wanted}, arguments)


async def change_group(admin: Admin, arguments: argparse.Namespace) -> int:
    name, groups = arguments.group, await admin.groups()
    before = groups[known(name, groups, "group")]
    wanted = {
        broker.name: asked_group(before.get(broker.name, SubscriptionGroup(group_name=name)), arguments)
        for broker in await admin.brokers()  # one that has not met the group would make it with its defaults
    }
    for broker, config in wanted.items():  # each from its own settings: brokers may differ in what is not asked
        await admin.put_group(config, at=broker)
    return await _checked(admin, "changed", wanted, arguments)


async def _checked(
    admin: Admin, done: str, wanted: Mapping[str, SubscriptionGroup], arguments: argparse.Namespace
) -> int:
    """Tell what the brokers have once they were asked for `wanted`. Raises ClientError where one has something else."""
    there = (await admin.groups()).get(arguments.group) or wanted
    for broker, config in there.items():
        if asked_group(config, arguments) != config:
            told = group_text(config)
            raise ClientError(f"{broker} has {arguments.group} with {told}: brokers before 5.0 take no --ordered")
    return put_done(arguments.group, done, *group_told(there), arguments)


async def delete_group(admin: Admin, arguments: argparse.Namespace) -> int:
    known(arguments.group, await admin.groups(), "group")
    lag = lag_of(await admin.progress(arguments.group))
    if not confirmed(
        f"{arguments.group}: offsets, retries and dead letters will be deleted; {lag:,} unread.", arguments.yes
    ):
        return FAILED
    await admin.delete_group(arguments.group)
    return OK
