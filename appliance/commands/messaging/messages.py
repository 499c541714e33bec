"""`rocketbox messages ...`: find messages by key, id or time, and look at one; 0 found, 3 nothing found."""

import argparse
import sys
from typing import Any

from appliance.commands.asking import Actions, run, show, stamp, time_ms
from appliance.commands.messaging.cluster import NOTHING, OK, message_row, print_json
from netstack.client import ClientError, MessageQueue, ReceivedMessage
from netstack.client.admin import Admin
from storage_driver.record import decode_host, parse_message_id
from uplink_spark.bounds import whole

__all__ = ["add_arguments", "run"]
EXAMPLES = """  rocketbox messages find readings --key press-7
  rocketbox messages find readings --since 15m --max 20
  rocketbox messages show C0A8070900012A139A5500000000 --topic readings
  rocketbox messages show 0A01000700002A9F00000000000004D2
"""
MOST = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    actions = Actions(parser, EXAMPLES)
    found = actions.add("find", "messages of a topic by key, by id or by time", find)
    found.add_argument("topic")
    by = found.add_mutually_exclusive_group(required=True)
    by.add_argument("--key", help="a key of the message")
    by.add_argument("--id", help="the message id")
    by.add_argument("--since", type=time_ms, metavar="TIME", help="stored since: 2026-11-21 14:00, 15m, 2h")
    found.add_argument("--until", type=time_ms, default=0, metavar="TIME", help="stored until")
    found.add_argument("--max", type=whole(1), default=MOST, metavar="N", help=f"at most N messages (default: {MOST})")
    shown = actions.add("show", "one message with body, properties and the groups that have consumed it", show_message)
    shown.add_argument("id", help="message id, or an offset id")
    shown.add_argument("--topic", help="needed for a message id")


async def find(admin: Admin, arguments: argparse.Namespace) -> int:
    if arguments.since is not None:
        found = await admin.since(arguments.topic, arguments.since, arguments.until, arguments.max)
    else:
        key, unique = arguments.key or arguments.id, arguments.id is not None
        found = await admin.find(arguments.topic, key, unique=unique, most=arguments.max, until_ms=arguments.until)
    if not found:
        print("rocketbox: no such message; the index may lag by a moment", file=sys.stderr)
        return NOTHING
    rows = [_row(message) for message in found]
    heads = {"stored": "STORED", "broker": "BROKER", "queue": "QUEUE", "offset": "OFFSET", "id": "ID"}
    return show(rows, {**heads, "tags": "TAGS", "keys": "KEYS", "bytes": "BYTES"}, as_json=arguments.json)


def _row(message: ReceivedMessage) -> dict[str, Any]:
    row = message_row(message)
    return {**row, "offset_id": message.offset_message_id, "stored": stamp(message.stored_ms), "bytes": message.size}


async def show_message(admin: Admin, arguments: argparse.Namespace) -> int:
    found = await admin.find(arguments.topic, arguments.id, unique=True) if arguments.topic else []
    found = found or await _by_offset_id(admin, arguments.id)
    if not found:
        hint = "" if arguments.topic else "; a message id needs --topic"
        print(f"rocketbox: no message {arguments.id}{hint}", file=sys.stderr)
        return NOTHING
    for message in found:
        consumers = await _consumers(admin, message)
        row = {
            **_row(message),
            "born": stamp(message.born_ms),
            "born_at": decode_host(message.born_host)[0],
            "consumers": consumers,
        }
        if arguments.json:
            print_json(row)
            continue
        for name, value in row.items():
            if value not in ("", None, {}, []):
                _print_field(name, value)
    return OK


def _print_field(name: str, value: object) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _print_field(f"{name}.{key}", inner)
    else:
        text = "".join(char if char.isprintable() or char in "\n\t" else "?" for char in str(value))
        print(f"{name:22} {text}")


async def _by_offset_id(admin: Admin, text: str) -> list[ReceivedMessage]:
    """Return the message at the place that an offset id names, if one of the brokers is meant."""
    try:
        host, log_offset = parse_message_id(text)
    except ValueError:
        return []
    _, port = decode_host(host)
    brokers = [each for each in await admin.brokers() if each.address.rpartition(":")[2] == str(port)]
    found = []
    for broker in brokers:
        try:
            message = await admin.at_log_offset(broker, log_offset)
        except ClientError:
            continue
        if message.offset_message_id == text.upper():
            found.append(message)
    return found


async def _consumers(admin: Admin, message: ReceivedMessage) -> dict[str, str]:
    """Return for each group of the topic whether it has passed this message."""
    queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
    told = {}
    for group in await admin.groups_of(message.topic):
        seen = (await admin.progress(group, message.topic)).get(queue)
        if seen is not None:
            ahead = message.queue_offset - seen.consumer_offset
            told[group] = "consumed" if ahead < 0 else f"not yet, {ahead + 1} to go"
    return told
