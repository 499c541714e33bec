"""Settings of topics and groups: what a command line asks for, whether it is there, how it is told. Sans-I/O."""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from netstack.wire.bodies_admin import SubscriptionGroup
from netstack.wire.bodies_route import TopicConfig
from uplink_spark.console import clean

ACKNOWLEDGE, TYPE = "acknowledge", "message.type"  # attributes of a topic
TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED")
PERMS = {2: "write", 4: "read", 6: "read, write"}
NEW_QUEUES = 8


def asked_topic(config: TopicConfig, arguments: argparse.Namespace) -> TopicConfig:
    """Return a topic's settings as the command line asks; what it does not name stays."""
    queues = arguments.queues
    attributes = dict(config.attributes or {})
    if arguments.acknowledge:
        attributes[ACKNOWLEDGE] = "" if arguments.acknowledge == "box" else arguments.acknowledge
    if arguments.type:
        attributes[TYPE] = arguments.type
    return replace(
        config,
        read_queue_count=queues or config.read_queue_count,
        write_queue_count=queues or config.write_queue_count,
        perm={"r": 4, "w": 2, "rw": 6}.get(arguments.perm, config.perm),
        attributes={name: value for name, value in attributes.items() if value} or None,
    )


def attribute_changes(before: TopicConfig, after: TopicConfig) -> str:
    """Return `+name=value,-name`, the form of a header."""
    had, has = before.attributes or {}, after.attributes or {}
    put = [f"+{name}={value}" for name, value in has.items() if had.get(name) != value]
    return ",".join([*put, *(f"-{name}" for name in had if name not in has)])


def topic_row(config: TopicConfig) -> dict[str, Any]:
    """Return the settings for a program."""
    attributes = config.attributes or {}
    return {
        "queues": config.read_queue_count,
        "write_queues": config.write_queue_count,
        "perm": PERMS.get(config.perm & 6, str(config.perm)),
        "type": attributes.get(TYPE, ""),
        "acknowledge": attributes.get(ACKNOWLEDGE, ""),
    }


def topic_text(config: TopicConfig) -> str:
    """Return the settings for people: `8 queues, type FIFO`."""
    row = topic_row(config)
    told = [_count(config.read_queue_count, "queue")]
    if row["write_queues"] != row["queues"]:
        told.append(f"of them {config.write_queue_count} for writing")
    if row["perm"] != PERMS[6]:
        told.append(f"permission {row['perm']}")
    told += [f"{name} {row[name]}" for name in ("type", ACKNOWLEDGE) if row[name]]
    return clean(", ".join(told))


def topic_told(configs: Mapping[str, TopicConfig]) -> tuple[str, dict[str, Any]]:
    """Return the settings by broker for people and for a program: once where all brokers have the same."""
    return _told(
        {broker: topic_row(config) for broker, config in configs.items()},
        {broker: topic_text(config) for broker, config in configs.items()},
    )


def group_told(groups: Mapping[str, SubscriptionGroup]) -> tuple[str, dict[str, Any]]:
    """Return what `topic_told` returns, of a group."""
    return _told(
        {broker: group_row(group) for broker, group in groups.items()},
        {broker: group_text(group) for broker, group in groups.items()},
    )


def _told(rows: dict[str, dict[str, Any]], texts: dict[str, str]) -> tuple[str, dict[str, Any]]:
    first = next(iter(rows))
    if all(row == rows[first] for row in rows.values()):
        return texts[first], rows[first]
    return "; ".join(f"{clean(broker)}: {text}" for broker, text in texts.items()), {"brokers": rows}


def left_queues(before: Mapping[str, TopicConfig], queues: int) -> range:
    """Return the numbers of the queues that consumers read before, with settings by broker, and not after."""
    return range(queues, max(each.read_queue_count for each in before.values()))


def left_text(topic: str, left: range, messages: int) -> str:
    """Return what an operator is to agree to."""
    which = f"queue {left[0]}" if len(left) == 1 else f"queues {left[0]} to {left[-1]}"
    return f"Consumers of {topic} will not read {which} any more, with {_count(messages, 'message')}."


def asked_group(group: SubscriptionGroup, arguments: argparse.Namespace) -> SubscriptionGroup:
    """Return a group's settings as the command line asks; what it does not name stays."""
    if arguments.retries is not None:
        group = replace(group, retry_max_times=arguments.retries)
    if arguments.consume:
        group = replace(group, consume_enable=arguments.consume == "on")
    if arguments.broadcast:
        group = replace(group, consume_broadcast_enable=arguments.broadcast == "on")
    if arguments.ordered is not None and arguments.ordered != bool(group.consume_message_orderly):
        group = replace(group, consume_message_orderly=arguments.ordered)
    return group


def group_row(group: SubscriptionGroup) -> dict[str, Any]:
    """Return the settings for a program."""
    return {
        "ordered": bool(group.consume_message_orderly),
        "retries": group.retry_max_times,
        "consume": group.consume_enable,
        "broadcast": group.consume_broadcast_enable,
    }


def group_text(group: SubscriptionGroup) -> str:
    """Return the settings for people: `16 retries, not ordered`."""
    told = [
        "1 retry" if group.retry_max_times == 1 else f"{group.retry_max_times:,} retries",
        "ordered" if group.consume_message_orderly else "not ordered",
        "" if group.consume_enable else "consumption off",
        "" if group.consume_broadcast_enable else "no broadcasting",
    ]
    return ", ".join(filter(None, told))


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
