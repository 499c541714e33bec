"""`rocketbox backup TO [--data DIR]`: a consistent copy of the store, while the box runs or not."""

import argparse
import shlex
import sys
from pathlib import Path

from appliance.commands.settings import data_folder
from storage_driver.backup import backup
from storage_driver.errors import StorageError
from storage_driver.fsck import show_progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("to", type=Path, metavar="TO", help="an empty or new folder")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the data folder of the box")
    parser.set_defaults(config=None)


def run(arguments: argparse.Namespace) -> int:
    """Copy; return 0, 1 when the disk did not give back all, 2 when it could not."""
    try:
        facts = backup(data_folder(arguments) / "store", arguments.to, progress=show_progress)
    except PermissionError:
        raise  # told in one line, with what to do
    except (StorageError, OSError) as exc:
        print(f"rocketbox: backup: {exc}", file=sys.stderr)
        return 2
    kept = f"log {facts.first} to {facts.end} in {facts.segments} files"
    print(f"{arguments.to}: {kept}; `rocketbox restore {shlex.quote(str(arguments.to))} --data DIR` restores it")
    for text in facts.unreadable:
        print(f"rocketbox: backup: not in the copy: {text}", file=sys.stderr)
    return 1 if facts.unreadable else 0
