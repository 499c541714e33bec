"""`rocketbox safe enter|leave`: safe mode by hand, on the box, as root."""

import argparse
import sys
from pathlib import Path

from watchdog.helper import main

SYSTEMD = Path("/run/systemd/system")  # there while systemd runs the machine, sd_booted(3)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    enter = verbs.add_parser("enter", help="stop the broker; serial line and status keep running")
    enter.add_argument("reason", nargs="?", default="asked for")
    verbs.add_parser("leave", help="start the broker again")


def run(arguments: argparse.Namespace) -> int:
    """Enter or leave; return the exit code."""
    if arguments.verb == "enter" and not SYSTEMD.is_dir():
        print(
            "rocketbox: this machine does not run systemd: stop a box that was started by hand with Ctrl-C",
            file=sys.stderr,
        )
        return 1
    try:
        if arguments.verb == "enter":
            return main(["safe", arguments.reason])
        code = main(["leave"])
    except PermissionError as exc:
        print(f"rocketbox: {exc}: run as root", file=sys.stderr)
        return 1
    if code:
        print("rocketbox: the box is not in safe mode", file=sys.stderr)
    return code
