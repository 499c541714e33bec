"""Repairs the layout: a folder in place of a file, a file in place of a folder, a pipe or a dangling link.

No later step can read, write or replace such an entry, so it is moved to quarantine/ first; then it counts as
missing. Only the log's own folder may be a dangling link: its disk may not be mounted.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from storage_driver.errors import StoreRefused
from storage_driver.files.disk import NOWHERE, Disk, FileFacts

FOLDERS = ("commitlog", "consumequeue", "index", "rocketbox", "config")
LOCK, QUARANTINE, TIMERS, POSITION = "lock", "quarantine", "timers", "position"
ROOT_FILES = ("abort", "checkpoint", "reserve", "queue.tmp", "spare.tmp", "next.tmp", "copy.tmp")
_BESIDE = (POSITION, "first", "uplink.cbor", "gaps.log")  # begun anew where they are gone; no member may, of its votes
_TABLES = (".json", ".json.bak", ".json.tmp", ".journal", ".journal.tmp")


def is_segment_name(name: str) -> bool:
    """Tell whether a file of the log has such a name."""
    return name.isascii() and name.isdecimal() and len(name) == 20


def set_aside(disk: Disk, root: Path, path: Path) -> str:
    """Move the entry at this path to quarantine/, return its name there. Raises OSError."""
    folder = root / QUARANTINE
    disk.make_folder(folder)
    name = os.fsdecode(os.fsencode(f"{path.parent.name}-{path.name}")[:200])
    there = {facts.name for facts in disk.list(folder)}  # links to nowhere among them
    while name in there:
        name += "+"
    disk.rename(path, folder / name)
    return name


def free_lock(disk: Disk, root: Path) -> list[str]:
    """Set aside an entry that cannot be locked, and one in place of quarantine/. Raises OSError."""
    reasons = []
    for facts in disk.list(root):
        if facts.name == QUARANTINE and not facts.is_folder:
            disk.rename(root / QUARANTINE, root / f"{QUARANTINE}.found")
            reasons.append(f"{QUARANTINE}: {_kind(facts)}, moved to {QUARANTINE}.found")
        elif facts.name == LOCK and (facts.is_folder or facts.odd):
            reasons.append(_moved(disk, root, root / LOCK, facts))
    return reasons


def repair_layout(disk: Disk, root: Path) -> list[str]:
    """Set aside entries of the wrong type, return what was done. Raises StoreRefused, OSError."""
    return [_moved(disk, root, path, facts) for path, facts in _misplaced(disk, root)]


def free_tables(disk: Disk, root: Path, folder: Path) -> list[str]:
    """Set aside entries that are not tables in a folder beside the store; return what was done. Raises OSError."""
    found = [(folder, facts) for facts in disk.list(folder.parent) if facts.name == folder.name and not facts.is_folder]
    if not found:
        found = [(folder / facts.name, facts) for facts in disk.list(folder) if _is_wrong("config", facts)]
    return [_moved(disk, root, path, facts) for path, facts in found]


def _misplaced(disk: Disk, root: Path) -> Iterator[tuple[Path, FileFacts]]:
    for facts in disk.list(root):
        is_file = not facts.is_folder and not facts.odd
        if facts.name in FOLDERS and not facts.is_folder:
            if facts.odd == NOWHERE:
                raise StoreRefused(f"{root / facts.name} is {NOWHERE}: mount the disk that it names, or remove it")
            yield root / facts.name, facts
        elif facts.name in ROOT_FILES and not is_file:
            yield root / facts.name, facts
    for facts in disk.list(root / "commitlog"):
        if facts.odd == NOWHERE and is_segment_name(facts.name):
            path = root / "commitlog" / facts.name
            raise StoreRefused(f"{path} is {NOWHERE}: mount the disk that it names, or remove it")
        if facts.odd:
            yield root / "commitlog" / facts.name, facts
    for folder in ("config", "rocketbox", "index", f"rocketbox/{TIMERS}"):
        for facts in disk.list(root / folder):
            if _is_wrong(folder, facts):
                yield root / folder / facts.name, facts


def _is_wrong(folder: str, facts: FileFacts) -> bool:
    if folder == "rocketbox" and facts.name == TIMERS:
        return not facts.is_folder
    # Apache's brokers of 5 have folders in config/, the uplink keeps one in rocketbox/
    ours = folder not in ("config", "rocketbox") or facts.name in _BESIDE or facts.name.endswith(_TABLES)
    return ours and (facts.is_folder or bool(facts.odd))


def _moved(disk: Disk, root: Path, path: Path, facts: FileFacts) -> str:
    name, base = set_aside(disk, root, path), root if path.is_relative_to(root) else root.parent
    return f"{path.relative_to(base)}: {_kind(facts)}, moved to {QUARANTINE}/{name}"


def _kind(facts: FileFacts) -> str:
    return facts.odd or ("a folder" if facts.is_folder else "a file")
