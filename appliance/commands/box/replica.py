"""`rocketbox replica ...`: how this box and the others of its group stand, and who leads; asks the running box."""

import argparse
import json
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from appliance.admin import NAME, AdminRefused, AdminSilent, ask
from appliance.commands.box.status import health_path
from appliance.commands.settings import add_config_arguments
from appliance.commands.tables import confirmed
from appliance.health.condition_rules import size
from appliance.health.health_file import takes_messages, takes_nothing
from uplink_spark.console import print_table

COULD_NOT_ASK, REFUSED = 1, 2
ORDER_S = 30.0  # an election may last until promises to a leader that is gone have run out
PURPOSES = {
    "status": "who leads, and how far each member is",
    "promote": "make this box the leader; what the leader acknowledged is here first",
    "transfer": "on the leader: hand over to another box, which has everything first",
    "demote": "stop leading",
    "solo": "on the leader: acknowledge alone until the other copy is level again",
    "resync": "give this copy up and take the leader's anew",
}
CAREFUL = {
    "solo": "Messages will be acknowledged although only this box has them.",
    "resync": "This box ends, and its next start gives its copy up: until it has it again, the other has the only one.",
}
LOSS = "Messages that only the other box has are lost, also acknowledged ones."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, purpose in PURPOSES.items():
        made = add_order(actions, name, purpose)
        if name == "promote":
            made.add_argument("--accept-loss", action="store_true", help="also without what the other box alone has")
        if name == "resync":
            made.add_argument("--discard", action="store_true", help="delete this copy first, not move it aside")
        if name in CAREFUL or name == "promote":
            made.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def add_order(actions: Any, name: str, purpose: str) -> argparse.ArgumentParser:
    """Add a subcommand that asks the running box, and return its parser."""
    made: argparse.ArgumentParser = actions.add_parser(name, help=purpose, description=purpose)
    add_config_arguments(made)
    made.add_argument("--json", action="store_true", help="print the answer as JSON")
    if name == "transfer":
        made.add_argument("to", metavar="MEMBER", help="the box that leads next")
    return made


def run(arguments: argparse.Namespace) -> int:
    """Ask the box once and print its answer."""
    action, loss = arguments.action, getattr(arguments, "accept_loss", False)
    warning = LOSS if loss else CAREFUL.get(action)
    if warning is not None and not confirmed(warning, arguments.yes):
        print("nothing was changed", file=sys.stderr)
        return COULD_NOT_ASK
    values: dict[str, object] = {"accept_loss": True} if loss else {}
    if action == "transfer":
        values["to"] = arguments.to
    if action == "resync":
        values["discard"] = arguments.discard
    try:
        answer = ask(health_path(arguments).with_name(NAME), f"group.{action}", values, timeout_s=ORDER_S)
    except AdminSilent as exc:
        print(f"rocketbox: {exc}", file=sys.stderr)
        return COULD_NOT_ASK
    except AdminRefused as exc:
        print(f"rocketbox: {exc}", file=sys.stderr)
        return REFUSED
    if arguments.json:
        print(json.dumps(answer), flush=True)
    else:
        show(answer)
    return 0


def show(status: Mapping[str, Any]) -> None:
    """Print how a group stands, as a person reads it."""
    print(sentence(status))
    rows = []
    for each in status["members"]:
        rows.append([each["member"], each["address"], kind(each, status["leader"]), distance(each, status)])
    print_table(["MEMBER", "ADDRESS", "IS", "COPY"], rows)
    if cut := status["diverged"]:
        much = f"{size(cut['end'] - cut['start'])}, {cut['messages']} messages, at {cut['start']}"
        print(f"taken back: {much}, kept in {cut['quarantine'] or '-'}")
    for each in status["alone"]:
        ordered = datetime.fromtimestamp(each["at_ms"] / 1000)
        upto = "now" if each["end"] is None else each["end"]
        print(f"acknowledged by this disk alone: {each['start']} to {upto}, ordered {ordered:%Y-%m-%d %H:%M:%S}")


def sentence(status: Mapping[str, Any]) -> str:
    """Return who leads, in one line."""
    own = status["member"]
    if takes_messages(status):
        return f"{own} (this box) leads, term {status['term']}"
    if status["leader"] == own:
        return f"{own} (this box) leads, and {takes_nothing(own, status['members'])}, term {status['term']}"
    if status["leader"]:
        return (
            f"{own} (this box) follows {status['leader']} at {status['leader_address'] or '-'}, term {status['term']}"
        )
    return f"{own} (this box): the group has no leader, term {status['term']}"


def kind(each: Mapping[str, Any], leader: str) -> str:
    """Return what a member is in one word."""
    if each["witness"]:
        return "witness"
    return "leader" if each["member"] == leader else "learner" if each["learner"] else "follower"


def distance(each: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """Return how far a member's copy is from the leader's; of other copies only the leader knows it."""
    if not each["connected"]:
        lost = each.get("lost", "")  # a box of an earlier version does not say
        return f"not connected: {lost}" if lost else "not connected"
    if each["witness"]:
        return "-"
    own, leader = status["member"], status["leader"]
    if each["member"] == leader:
        return "has everything"
    if leader != own and each["member"] != own:
        return "connected"
    if not leader:
        return "-"
    if each["behind_bytes"] is None:
        return "not known yet"
    if not each["behind_bytes"]:
        return "has everything"
    why = f"; {each['refuses']}" if each["refuses"] else ""
    return f"{size(each['behind_bytes'])}, {each['behind_s']} s behind{why}"
