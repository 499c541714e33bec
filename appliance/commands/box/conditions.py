"""`rocketbox conditions`: what is wrong now, and muting what is known; 0 done, 1 no box runs here."""

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from appliance.admin import NAME, AdminRefused, AdminSilent, ask
from appliance.commands.box.status import health_path
from appliance.commands.settings import add_config_arguments
from appliance.health.conditions import documentation
from appliance.health.health_file import DOWN, read_health
from uplink_spark.bounds import whole
from uplink_spark.console import print_table

COULD_NOT_ASK, WRONG_WORDS = 1, 2
VERBS = ("list", "mute", "unmute")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add_config_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object per condition")
    parser.add_argument("--docs", action="store_true", help="print the table of all conditions")
    parser.add_argument(
        "verb", nargs="?", choices=VERBS, default="list", help="list them (default), mute or unmute one"
    )
    parser.add_argument("key", nargs="?", metavar="ID", help="as listed; without :NAME: all conditions of this kind")
    parser.add_argument("--hours", type=whole(1, 87_600), metavar="N", help="mute for at most N hours")


def run(arguments: argparse.Namespace) -> int:
    """List, or ask the running box."""
    if arguments.docs:
        print(documentation(), end="")
        return 0
    path = health_path(arguments)
    if arguments.verb == "list":
        health = read_health(path)
        show(health, as_json=arguments.json)
        return COULD_NOT_ASK if any(row["code"] == DOWN for row in health.get("reasons", ())) else 0
    if arguments.key is None:
        print(f"rocketbox: {arguments.verb} needs an ID; `rocketbox conditions` lists them", file=sys.stderr)
        return WRONG_WORDS
    values = {"key": arguments.key, "hours": arguments.hours}
    try:
        answer = ask(path.with_name(NAME), f"conditions.{arguments.verb}", values)
    except (AdminSilent, AdminRefused) as exc:
        print(f"rocketbox: {exc}", file=sys.stderr)
        return COULD_NOT_ASK
    print(answer["text"])
    return int(answer["code"])


def show(health: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what holds now, the weightiest first."""
    rows = [{"id": each["code"], **each} for each in health.get("reasons", ())]
    rows += [{**each, "state": "muted"} for each in health.get("muted", ())]
    if as_json:
        for row in rows:
            print(json.dumps(row))
    elif rows:
        print_table(("ID", "STATE", "WHAT"), [(row["id"], row.get("state", ""), row["text"]) for row in rows])
    else:
        print("nothing is wrong")
