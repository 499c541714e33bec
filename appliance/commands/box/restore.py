"""`rocketbox restore FROM [--data DIR]`: put a backup where a box will look for its store."""

import argparse
import os
import sys
from pathlib import Path

from appliance.commands.settings import data_folder
from storage_driver.backup import restore
from storage_driver.errors import StorageError
from storage_driver.fsck import show_progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("source", type=Path, metavar="FROM", help="the folder of a backup")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="the data folder of the box; it must not contain a log yet"
    )
    parser.set_defaults(config=None)


def run(arguments: argparse.Namespace) -> int:
    """Copy; return 0, or 2 when it could not."""
    folder = data_folder(arguments)
    try:
        facts = restore(arguments.source, folder / "store", progress=show_progress)
        give_to_owner(folder / "store")
    except PermissionError:
        raise  # told in one line, with what to do
    except (StorageError, OSError) as exc:
        print(f"rocketbox: restore: {exc}", file=sys.stderr)
        return 2
    kept = f"log {facts.first} to {facts.end} in {facts.segments} files"
    print(f"{folder / 'store'}: {kept}; the next start creates queues and index")
    return 0


def give_to_owner(store: Path) -> None:
    """Give what root has restored to the user whose data folder it is in: the service could not open it."""
    owner = store.parent.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    os.chown(store, owner.st_uid, owner.st_gid, follow_symlinks=False)
    for _, folders, files, handle in os.fwalk(store, follow_symlinks=False):
        for name in (*folders, *files):
            os.chown(name, owner.st_uid, owner.st_gid, dir_fd=handle, follow_symlinks=False)
