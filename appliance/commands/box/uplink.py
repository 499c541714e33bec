"""`rocketbox uplink ...`: ask the running box about its uplink, or tell it; 0 good, 1 could not ask, 10 unhealthy."""

import argparse
import json
import sys
from pathlib import Path

from appliance.admin import NAME, AdminRefused, AdminSilent, ask
from appliance.commands.box.status import health_path
from appliance.commands.settings import add_config_arguments
from appliance.commands.tables import confirmed
from uplink_spark.bounds import whole

COULD_NOT_ASK = 1
PLAIN = {
    "status": "connection, backlog and rate",
    "pause": "pause shipping until resumed, also over restarts",
    "resume": "resume shipping",
    "ship-now": "ship all unshipped data at once; connect without waiting",
    "gaps": "declared losses, newest last",
    "receipts": "the newest receipts of the centre",
    "test": "test name, TCP, TLS and greeting, in this order",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, purpose in PLAIN.items():
        _common(actions.add_parser(name, help=purpose, description=purpose))
    export = actions.add_parser("export", help="write the unshipped log to a stick")
    export.add_argument("--to", type=Path, required=True, metavar="DIR", dest="folder")
    _common(export)
    take = actions.add_parser("import", help="import the centre's receipts from a swept stick")
    take.add_argument("folder", type=Path, metavar="DIR")
    _common(take)
    discard = actions.add_parser("discard", help="discard the unshipped log below an offset and declare a gap")
    discard.add_argument("--before", type=whole(0), required=True, metavar="OFFSET")
    discard.add_argument("--reason", required=True, metavar="TEXT")
    discard.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    _common(discard)
    identity = actions.add_parser("identity", help="box, landing zone, epochs and runs of the log")
    identity.add_argument("--secret", action="store_true", help="also the secret that signs sticks")
    _common(identity)


def _common(parser: argparse.ArgumentParser) -> None:
    add_config_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Ask the box once and print its answer."""
    values = {name: getattr(arguments, name) for name in ("before", "reason", "secret") if hasattr(arguments, name)}
    if arguments.action == "discard" and not confirmed(
        f"Unshipped messages below log offset {arguments.before} will never reach the centre.", arguments.yes
    ):
        print("nothing was discarded", file=sys.stderr)
        return COULD_NOT_ASK
    folder: Path | None = getattr(arguments, "folder", None)
    if folder is not None and not folder.is_dir():
        print(f"rocketbox: {folder} is not a folder: is the stick mounted?", file=sys.stderr)
        return COULD_NOT_ASK
    try:
        answer = ask(health_path(arguments).with_name(NAME), f"uplink.{arguments.action}", values, folder=folder)
    except (AdminSilent, AdminRefused) as exc:
        print(f"rocketbox: {exc}", file=sys.stderr)
        return COULD_NOT_ASK
    print(json.dumps(answer["value"]) if arguments.json else answer["text"], flush=True)
    return int(answer["code"])
