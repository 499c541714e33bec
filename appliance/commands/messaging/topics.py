"""`rocketbox topics ...`: list, look at, make, change and delete topics; 0 done, 1 failed."""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from appliance.commands.asking import FAILED, OK, Actions, is_system_topic, known, legal, put_done, run, show, stamp
from appliance.commands.messaging.table_settings import (
    NEW_QUEUES,
    PERMS,
    TYPES,
    asked_topic,
    attribute_changes,
    left_queues,
    left_text,
    topic_row,
    topic_text,
    topic_told,
)
from appliance.commands.tables import confirmed
from netstack.client import ClientError
from netstack.client.admin import DEAD, RETRY, Admin
from netstack.wire.bodies_route import TopicConfig
from uplink_spark.bounds import whole
from uplink_spark.console import clean

__all__ = ["add_arguments", "run"]
EXAMPLES = """  rocketbox topics list
  rocketbox topics show readings
  rocketbox topics create readings --queues 4
  rocketbox topics create orders --type FIFO
  rocketbox topics delete readings --yes
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    actions = Actions(parser, EXAMPLES)
    listed = actions.add("list", "all topics with queues, messages and the time of the newest", list_topics)
    listed.add_argument("--all", action="store_true", help="also system, retry and dead letter topics")
    actions.add("show", "the queues of a topic and its groups", show_topic).add_argument("topic")
    actions.add("route", "the route of a topic", show_route).add_argument("topic")
    _add_settings(actions.add("create", "create a topic; one that exists is never changed", create_topic))
    changed = actions.add("change", "change queues, permission or type of a topic", change_topic)
    _add_settings(changed)
    changed.add_argument("--yes", action="store_true", help="do not ask before consumers lose queues")
    deleted = actions.add("delete", "delete a topic with its messages", delete_topic)
    deleted.add_argument("topic")
    deleted.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("--queues", type=whole(1, 16384), metavar="N", help=f"queues (of a new topic {NEW_QUEUES})")
    parser.add_argument("--perm", choices=("r", "w", "rw"), help="r: only reads, w: only writes, rw: both")
    parser.add_argument("--type", choices=TYPES, help="which messages clients of 5.x send to it (message.type)")
    parser.add_argument(
        "--acknowledge",
        choices=("local", "one", "both", "box"),
        help="of boxes with one log: when a send to this topic is answered; box: as group.acknowledge says",
    )


async def list_topics(admin: Admin, arguments: argparse.Namespace) -> int:
    rows = []
    for name, brokers in sorted((await admin.topics()).items()):
        if not arguments.all and (is_system_topic(name) or name.startswith((RETRY, DEAD))):
            continue
        offsets = (await admin.topic_offsets(name)).values() if brokers else ()
        newest_ms = max((each.last_update_ms for each in offsets), default=0)
        said = topic_row(next(iter(brokers.values())))
        rows.append(
            {
                "topic": name,
                "brokers": len(brokers),
                "queues": sum(each.read_queue_count for each in brokers.values()),
                "perm": said["perm"],
                "type": said["type"],
                "messages": sum(each.max_offset - each.min_offset for each in offsets),
                "newest_ms": newest_ms,
                "newest": stamp(newest_ms),
            }
        )
    heads = {"topic": "TOPIC", "brokers": "BROKERS", "queues": "QUEUES", "perm": "PERMISSION"}
    return show(rows, {**heads, "messages": "MESSAGES", "newest": "NEWEST"}, as_json=arguments.json)


async def show_topic(admin: Admin, arguments: argparse.Namespace) -> int:
    known(arguments.topic, await admin.topic_names(), "topic")
    offsets = await admin.topic_offsets(arguments.topic)
    configs = (await admin.topics()).get(arguments.topic, {})
    types = {broker: topic_row(config)["type"] for broker, config in configs.items()}
    rows: list[dict[str, Any]] = [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "type": types.get(queue.broker_name, ""),
            "first": seen.min_offset,
            "end": seen.max_offset,
            "messages": seen.max_offset - seen.min_offset,
            "newest_ms": seen.last_update_ms,
            "newest": stamp(seen.last_update_ms),
        }
        for queue, seen in sorted(offsets.items())
    ]
    heads = {"broker": "BROKER", "queue": "QUEUE", "first": "FIRST", "end": "END", "messages": "MESSAGES"}
    show(rows, {**heads, "newest": "NEWEST"}, as_json=arguments.json)
    if not arguments.json:
        for name in ("type", "acknowledge"):
            if values := sorted({topic_row(config)[name] for config in configs.values()} - {""}):
                print(f"\n{name}: {clean(', '.join(values))}")
        groups = await admin.groups_of(arguments.topic)
        print(f"\nconsumed by: {clean(', '.join(groups)) or 'no group yet'}")
    return OK


async def show_route(admin: Admin, arguments: argparse.Namespace) -> int:
    known(arguments.topic, await admin.topic_names(), "topic")
    route = await admin.route(arguments.topic)
    brokers = {row.broker_name: row for row in route.broker_datas}
    rows: list[dict[str, Any]] = []
    for row in route.queue_datas:
        broker = brokers.get(row.broker_name)
        said = {"topic": arguments.topic, "broker": row.broker_name, "cluster": broker.cluster if broker else ""}
        address = (
            ", ".join(f"{number}: {text}" for number, text in sorted(broker.broker_addrs.items())) if broker else ""
        )
        queues = {"read_queues": row.read_queue_count, "write_queues": row.write_queue_count}
        rows.append({**said, "address": address, **queues, "perm": PERMS.get(row.perm & 6, str(row.perm))})
    heads = {
        "broker": "BROKER",
        "cluster": "CLUSTER",
        "address": "ADDRESS",
        "read_queues": "READ",
        "write_queues": "WRITE",
    }
    return show(rows, {**heads, "perm": "PERMISSION"}, as_json=arguments.json)


async def create_topic(admin: Admin, arguments: argparse.Namespace) -> int:
    name = legal(arguments.topic, "topic")
    there = (await admin.topics()).get(name, {})
    for config in there.values():
        if asked_topic(config, arguments) != _plain(config):
            change = f"`rocketbox topics change {name} …` changes it"
            raise ClientError(f"{name} exists already: {topic_text(config)}; {change}")
    if there:
        return put_done(name, "exists already", *topic_told(there), arguments)
    wanted = asked_topic(TopicConfig(name, NEW_QUEUES, NEW_QUEUES), arguments)
    await admin.put_topic_config(wanted, attribute_changes(TopicConfig(name), wanted))
    return await _checked(admin, "created", {"": wanted}, arguments)


async def change_topic(admin: Admin, arguments: argparse.Namespace) -> int:
    name, configs = arguments.topic, await admin.topics()
    before = configs[known(name, configs, "topic")]
    wanted = {broker: asked_topic(config, arguments) for broker, config in before.items()}
    if left := left_queues(before, arguments.queues) if arguments.queues else range(0):
        offsets = await admin.topic_offsets(name)
        messages = sum(seen.max_offset - seen.min_offset for queue, seen in offsets.items() if queue.queue_id in left)
        if not confirmed(left_text(name, left, messages), arguments.yes):
            return FAILED
    for broker, config in wanted.items():  # each from its own settings: brokers may differ in what is not asked
        await admin.put_topic_config(config, attribute_changes(before[broker], config), at=broker)
    return await _checked(admin, "changed", wanted, arguments)


async def _checked(admin: Admin, done: str, wanted: Mapping[str, TopicConfig], arguments: argparse.Namespace) -> int:
    """Tell what the brokers have once they were asked for `wanted`. Raises ClientError where one has something else."""
    name = arguments.topic
    there = (await admin.topics()).get(name) or wanted
    for broker, config in there.items():
        if asked_topic(config, arguments) != _plain(config):
            why = "brokers before 5.0 take neither --type nor --acknowledge"
            raise ClientError(f"{broker} has {name} with {topic_text(config)}: {why}")
    return put_done(name, done, *topic_told(there), arguments)


def _plain(config: TopicConfig) -> TopicConfig:
    """Return it with no attributes as one value."""
    return replace(config, attributes=config.attributes or None)


async def delete_topic(admin: Admin, arguments: argparse.Namespace) -> int:
    known(arguments.topic, await admin.topics(), "topic")
    messages = sum(each.max_offset - each.min_offset for each in (await admin.topic_offsets(arguments.topic)).values())
    if not confirmed(f"{arguments.topic} and its {messages:,} messages will be deleted.", arguments.yes):
        return FAILED
    await admin.delete_topic(arguments.topic)
    return OK
