"""`rocketbox trace ID`: the way of one message from its trace records; 0 found, 3 nothing known."""

import argparse
import sys
from dataclasses import asdict

from appliance.commands.asking import add_action, add_examples, run, show, stamp
from appliance.commands.messaging.cluster import NOTHING
from netstack.client import TRACE_TOPIC
from netstack.client.admin import Admin
from netstack.client.produce.trace_records import read_steps, story
from storage_driver.record import decode_host

__all__ = ["add_arguments", "run"]
EXAMPLES = """  rocketbox trace C0A8070900012A139A5500000000
  rocketbox trace C0A8070900012A139A5500000000 --topic readings --json
"""
MOST = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add_examples(parser, EXAMPLES)
    parser.add_argument("id", help="message id, as `send`, `tail`, `messages` and Spark's msg_id show it")
    parser.add_argument("--topic", help="topic of the message: also show its queue and offset, and its traceparent")
    parser.add_argument("--trace-topic", default=TRACE_TOPIC, metavar="NAME", help=f"(default: {TRACE_TOPIC})")
    add_action(parser, tell)


async def tell(admin: Admin, arguments: argparse.Namespace) -> int:
    """Gather the records and print them in order."""
    rows = []
    for message in await admin.find(arguments.topic, arguments.id, unique=True) if arguments.topic else ():
        place = f"{message.broker_name} queue {message.queue_id} offset {message.queue_offset}"
        parent = message.properties.get("traceparent", "")
        detail = f"{place}, traceparent {parent}" if parent else place
        row = {"what": "stored", "message_id": arguments.id, "topic": message.topic, "result": "stored"}
        rows.append({**row, "began_ms": message.stored_ms, "detail": detail, "traceparent": parent})
    steps = [
        step
        for record in await admin.find(arguments.trace_topic, arguments.id, most=MOST)
        for step in read_steps(record.body, decode_host(record.born_host)[0], record.born_ms)
    ]
    rows += [asdict(step) for step in story(steps, arguments.id)]
    if not rows:
        hint = (
            "message trace must be on in producers and consumers"
            if arguments.topic
            else "pass --topic to search the topic too"
        )
        print(f"rocketbox: no trace of {arguments.id}; {hint}", file=sys.stderr)
        return NOTHING
    rows.sort(key=lambda row: int(str(row["began_ms"])))
    for row in rows:
        row["at"] = stamp(int(str(row["began_ms"])))
        row["took"] = f"{row['took_ms']} ms" if int(str(row.get("took_ms", -1))) >= 0 else ""
    heads = {"at": "WHEN", "what": "WHAT", "group": "GROUP", "client": "CLIENT", "result": "RESULT", "took": "TOOK"}
    return show(rows, {**heads, "detail": "DETAIL"}, as_json=arguments.json)
