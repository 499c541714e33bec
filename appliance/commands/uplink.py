"""`rocketbox uplink ...`: ask the running box about its uplink, or tell it; 0 good, 1 could not ask, 10 unhealthy."""

import argparse
import json
import sys
from pathlib import Path

from appliance.admin import NAME, AdminRefused, AdminSilent, ask
from appliance.commands.settings import add_config_arguments
from appliance.commands.status import health_path
from appliance.commands.tables import confirmed
from uplink_spark.bounds import whole

COULD_NOT_ASK = 1
PLAIN = {
    "status": "connected to what, how much waits, at which rate it leaves",
    "pause": "ship nothing until resumed, also after a restart",
    "resume": "ship again",
    "ship-now": "ship what waits without waiting for fuller pieces or the next attempt to connect",
    "gaps": "what was declared lost, newest last",
    "receipts": "the newest receipts of the centre",
    "test": "try name, TCP, TLS and greeting one after the other",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, purpose in PLAIN.items():
        _common(actions.add_parser(name, help=purpose, description=purpose))
    export = actions.add_parser("export", help="write what the centre lacks to a stick")
    export.add_argument("--to", type=Path, required=True, metavar="DIR", dest="folder")
    _common(export)
    take = actions.add_parser("import", help="take the centre's receipts from a stick that was swept")
    take.add_argument("folder", type=Path, metavar="DIR")
    _common(take)
    discard = actions.add_parser("discard", help="give up what is unshipped below a log offset: declared as a gap")
    discard.add_argument("--before", type=whole(0), required=True, metavar="OFFSET")
    discard.add_argument("--reason", required=True, metavar="TEXT")
    discard.add_argument("--yes", action="store_true", help="do not ask")
    _common(discard)
    identity = actions.add_parser("identity", help="box, landing zone, epochs and runs of the log")
    identity.add_argument("--secret", action="store_true", help="also the secret under which sticks are sealed")
    _common(identity)


def _common(parser: argparse.ArgumentParser) -> None:
    add_config_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Ask the box once and print its answer."""
    values = {name: getattr(arguments, name) for name in ("before", "reason", "secret") if hasattr(arguments, name)}
    if arguments.action == "discard" and not confirmed(
        f"What is unshipped below log offset {arguments.before} will never reach the centre.", arguments.yes
    ):
        print("nothing was discarded", file=sys.stderr)
        return COULD_NOT_ASK
    folder: Path | None = getattr(arguments, "folder", None)
    if folder is not None and not folder.is_dir():
        print(f"rocketbox: {folder} is no folder: is the stick mounted?", file=sys.stderr)
        return COULD_NOT_ASK
    try:
        answer = ask(health_path(arguments).with_name(NAME), f"uplink.{arguments.action}", values, folder=folder)
    except (AdminSilent, AdminRefused) as exc:
        print(f"rocketbox: {exc}", file=sys.stderr)
        return COULD_NOT_ASK
    print(json.dumps(answer["value"]) if arguments.json else answer["text"], flush=True)
    return int(answer["code"])
