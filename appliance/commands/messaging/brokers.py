"""`rocketbox brokers`: the brokers of the cluster and their state, by their own figures."""

import argparse
from typing import Any

from appliance.commands.asking import add_action, add_examples, run, show, stamp
from netstack.client.admin import Admin

__all__ = ["add_arguments", "run"]
EXAMPLES = """  rocketbox brokers
  rocketbox brokers --all --json        every number a broker gives
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add_examples(parser, EXAMPLES)
    parser.add_argument("--all", action="store_true", help="every number")
    add_action(parser, list_brokers)


async def list_brokers(admin: Admin, arguments: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = []
    for broker in await admin.brokers():
        told = await admin.runtime(broker)
        row = {"broker": broker.name, "cluster": broker.cluster, "address": broker.address}
        row |= {"version": told.get("brokerVersionDesc", ""), "started": stamp(int(told.get("bootTimestamp", 0) or 0))}
        put, got = (told.get(name, "").partition(" ")[0] for name in ("putTps", "getTransferredTps"))
        today = _number(told, "msgPutTotalTodayNow") - _number(told, "msgPutTotalTodayMorning")
        rows.append({**row, "in": put, "out": got, "today": today, **({"numbers": told} if arguments.all else {})})
        if arguments.all and not arguments.json:
            for name, value in sorted(told.items()):
                print(f"{name:40} {value}")
    heads = {"broker": "BROKER", "cluster": "CLUSTER", "address": "ADDRESS", "version": "VERSION"}
    return show(
        rows, {**heads, "started": "STARTED", "in": "IN/S", "out": "OUT/S", "today": "TODAY"}, as_json=arguments.json
    )


def _number(told: dict[str, str], name: str) -> int:
    return int(told[name]) if told.get(name, "").isdigit() else 0
