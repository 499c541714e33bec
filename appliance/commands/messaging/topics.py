"""`rocketbox topics ...`: list, look at, make, change and delete topics; 0 done, 1 failed."""

import argparse
from typing import Any

from appliance.commands.asking import FAILED, OK, Actions, is_system_topic, known, legal, run, show, stamp
from appliance.commands.tables import confirmed
from netstack.client.admin import DEAD, RETRY, Admin
from uplink_spark.bounds import whole
from uplink_spark.console import clean

__all__ = ["add_arguments", "run"]
EXAMPLES = """  rocketbox topics list
  rocketbox topics show readings
  rocketbox topics create readings --queues 4
  rocketbox topics delete readings --yes
"""
ACKNOWLEDGE = "acknowledge"  # the attribute of a topic
PERMS = {2: "write", 4: "read", 6: "read, write"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    actions = Actions(parser, EXAMPLES)
    listed = actions.add("list", "all topics with queues, messages and the time of the newest", list_topics)
    listed.add_argument("--all", action="store_true", help="also system, retry and dead letter topics")
    actions.add("show", "the queues of a topic and its groups", show_topic).add_argument("topic")
    actions.add("route", "the route of a topic", show_route).add_argument("topic")
    for verb, purpose in (("create", "create a topic"), ("change", "change queues or permission of a topic")):
        made = actions.add(verb, purpose, put_topic)
        made.add_argument("topic")
        made.add_argument("--queues", type=whole(1, 16384), default=None if verb == "change" else 8, metavar="N")
        made.add_argument(
            "--perm", choices=("r", "w", "rw"), default=None, help="r: only reads, w: only writes, rw: both"
        )
        made.add_argument(
            "--acknowledge",
            choices=("local", "one", "both", "box"),
            default=None,
            help="of boxes with one log: when a send to this topic is answered; box: as group.acknowledge says",
        )
    deleted = actions.add("delete", "delete a topic with its messages", delete_topic)
    deleted.add_argument("topic")
    deleted.add_argument("--yes", action="store_true", help="do not ask for confirmation")


async def list_topics(admin: Admin, arguments: argparse.Namespace) -> int:
    rows = []
    for name, brokers in sorted((await admin.topics()).items()):
        if not arguments.all and (is_system_topic(name) or name.startswith((RETRY, DEAD))):
            continue
        offsets = (await admin.topic_offsets(name)).values() if brokers else ()
        newest_ms = max((each.last_update_ms for each in offsets), default=0)
        config = next(iter(brokers.values()))
        rows.append(
            {
                "topic": name,
                "brokers": len(brokers),
                "queues": sum(each.read_queue_count for each in brokers.values()),
                "perm": PERMS.get(config.perm & 6, str(config.perm)),
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
    rows: list[dict[str, Any]] = [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue": queue.queue_id,
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
        configs = (await admin.topics()).get(arguments.topic, {})
        if policies := sorted({(each.attributes or {}).get(ACKNOWLEDGE, "") for each in configs.values()} - {""}):
            print(f"\nacknowledge: {clean(', '.join(policies))}")
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


async def put_topic(admin: Admin, arguments: argparse.Namespace) -> int:
    queues, perm = arguments.queues, {"r": 4, "w": 2, "rw": 6, None: None}[arguments.perm]
    attributes = "" if arguments.acknowledge in (None, "box") else f"+{ACKNOWLEDGE}={arguments.acknowledge}"
    if arguments.action == "change":
        configs = await admin.topics()
        known(arguments.topic, configs, "topic")
        before = next(iter(configs[arguments.topic].values()))
        queues, perm = queues or before.write_queue_count, before.perm if perm is None else perm
        if arguments.acknowledge == "box" and ACKNOWLEDGE in (before.attributes or {}):
            attributes = f"-{ACKNOWLEDGE}"
    else:
        legal(arguments.topic, "topic")
    await admin.put_topic(arguments.topic, queues=queues, perm=6 if perm is None else perm, attributes=attributes)
    return OK


async def delete_topic(admin: Admin, arguments: argparse.Namespace) -> int:
    known(arguments.topic, await admin.topics(), "topic")
    messages = sum(each.max_offset - each.min_offset for each in (await admin.topic_offsets(arguments.topic)).values())
    if not confirmed(f"{arguments.topic} and its {messages:,} messages will be deleted.", arguments.yes):
        return FAILED
    await admin.delete_topic(arguments.topic)
    return OK
