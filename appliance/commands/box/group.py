"""`rocketbox group ...`: the files of a new group; who leads, who belongs to it: asks the running box."""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from appliance.admin import NAME, AdminRefused, AdminSilent, ask
from appliance.commands.box.group_files import write_group
from appliance.commands.box.replica import COULD_NOT_ASK, ORDER_S, PURPOSES, REFUSED, add_order, show
from appliance.commands.box.status import health_path
from appliance.commands.tables import confirmed
from appliance.errors import ConfigError

ORDERS = {
    **{name: PURPOSES[name] for name in ("status", "transfer")},
    "init": "write certificates and a configuration for each member of a new group",
    "join": "on the leader: let a member in; a box copies the log first, then votes",
    "leave": "on the box that goes: take it out of its group",
    "remove": "on the leader: take another member out, also one that is gone for good",
}
CAREFUL = {
    "leave": "This box will follow nobody and take no messages.",
    "remove": "The member's copy will count no more; it comes back with an empty store only.",
}
LOOK_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, purpose in ORDERS.items():
        if name == "init":
            _add_init_arguments(actions.add_parser(name, help=purpose, description=purpose))
            continue
        made = add_order(actions, name, purpose)
        if name == "join":
            made.add_argument("member", metavar="NAME=HOST:PORT", help="as in group.members, a witness with ' witness'")
        if name == "remove":
            made.add_argument("member", metavar="MEMBER", help="its name")
        if name in CAREFUL:
            made.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def _add_init_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", help="name of the group: box.name of its boxes")
    parser.add_argument("member", nargs="+", metavar="NAME=HOST:PORT", help="as in group.members; two to four")
    parser.add_argument("--dir", type=Path, required=True, help="folder for the files; a CA in it is used again")
    parser.add_argument("--here", action="store_true", help="certificates stay where they are written, for a trial")


def run(arguments: argparse.Namespace) -> int:
    """Do what is wanted; return the exit code."""
    try:
        return _init(arguments) if arguments.action == "init" else _order(arguments)
    except AdminSilent as exc:
        print(f"rocketbox: {exc}", file=sys.stderr)
        return COULD_NOT_ASK
    except (AdminRefused, ConfigError) as exc:
        print(f"rocketbox: {exc}", file=sys.stderr)
        return REFUSED


def _init(arguments: argparse.Namespace) -> int:
    for line in write_group(arguments.dir, arguments.group, arguments.member, here=arguments.here):
        print(line)
    return 0


def _order(arguments: argparse.Namespace) -> int:
    action = arguments.action
    if action in CAREFUL and not confirmed(CAREFUL[action], arguments.yes):
        print("nothing was changed", file=sys.stderr)
        return COULD_NOT_ASK
    values = {name: getattr(arguments, name) for name in ("to", "member") if hasattr(arguments, name)}
    answer: Mapping[str, Any] = {}
    said = ""
    for answer in _asked(health_path(arguments).with_name(NAME), action, values):
        if (waits := answer.get("waits", "")) and waits != said:
            print(waits, file=sys.stderr, flush=True)
        said = waits
    if arguments.json:
        print(json.dumps(answer), flush=True)
    elif action == "leave":
        print(f"{answer['member']} is out of its group: stop it")
    else:
        show(answer)
    return 0


def _asked(path: Path, action: str, values: Mapping[str, object]) -> Iterator[Mapping[str, Any]]:
    """Yield what the box answers, again and again as long as that is to wait. Raises AdminRefused, AdminSilent."""
    while True:
        answer: Mapping[str, Any] = ask(path, f"group.{action}", dict(values), timeout_s=ORDER_S)
        yield answer
        if not answer.get("waits"):
            return
        time.sleep(LOOK_S)
