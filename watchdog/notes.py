"""Small JSON files that survive a power cut: replaced whole, synced, owned like their folder whoever writes them.

Standard library only: the product and the root helper share it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

KEPT_LINES = 256
MOST_CHARACTERS = 1 << 20
PANICS = "panics"  # the one folder among the notes
_NUMBER = (int, float)
_KINDS: dict[str, type | tuple[type, ...]] = {  # of what is counted with; the last three are of the slots
    "boot": str,
    "number": int,
    "uptime_s": _NUMBER,
    "began_s": (*_NUMBER, type(None)),
    "wall_s": _NUMBER,
    "versions": dict,
    "committed": list,
    "bad": list,
}


def read_json(path: Path) -> Any:
    """Return the file's object, None when it is missing, torn or damaged."""
    try:
        return _whole(json.loads(_text(path)))
    except (OSError, ValueError, RecursionError):
        return None


def _whole(value: Any) -> dict[str, Any] | None:
    """Return a note as it was read, None for what nobody wrote: a flipped bit may leave JSON."""
    if not isinstance(value, dict):
        return None
    return value if all(isinstance(value[name], kinds) for name, kinds in _KINDS.items() if name in value) else None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines; a torn or damaged line is skipped."""
    found = []
    try:
        lines = _text(path).splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            value = _whole(json.loads(line))
        except (ValueError, RecursionError):
            continue
        if value is not None:
            found.append(value)
    return found


def _text(path: Path) -> str:
    """Return what a file holds, of one that no note fills the beginning."""
    with path.open(errors="replace") as file:
        return file.read(MOST_CHARACTERS)


def make_folder(folder: Path, *, of_notes: bool = True) -> None:
    """Make a folder; whatever stands in its place, or as no file in that of a note, is renamed to NAME.found."""
    if os.path.lexists(folder) and not folder.is_dir():
        _step_aside(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for each in sorted(folder.iterdir()) if of_notes else ():
        right = each.is_dir() if each.name == PANICS else each.is_file()
        if not right and not each.name.rstrip("+").endswith(".found"):
            _step_aside(each)


def _step_aside(path: Path) -> None:
    target = path.with_name(path.name + ".found")
    while os.path.lexists(target):
        target = target.with_name(target.name + "+")
    path.rename(target)


def replace(path: Path, text: str) -> None:
    """Replace a file atomically and durably; it gets its folder's owner when root writes."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)  # a pipe would block who opens it, a link lead elsewhere
    with fresh.open("w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    if os.geteuid() == 0:
        folder = path.parent.stat()
        os.chown(fresh, folder.st_uid, folder.st_gid)
    os.replace(fresh, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Return once a file or a folder is on stable storage."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def append_line(path: Path, row: Mapping[str, Any]) -> None:
    """Append one JSON line, keep the newest 256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_lines(path, [*read_lines(path), row][-KEPT_LINES:])


def tallied(rows: Sequence[Mapping[str, Any]], name: str, value: str) -> dict[str, int]:
    """Return how often each value of a field was noted, the line to come included: old lines go, their count stays."""
    counts = tally_of(rows)
    if counts is None:
        counts = Counter(str(row.get(name)) for row in rows)
    return {**counts, value: counts.get(value, 0) + 1}


def tally_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, int] | None:
    """Return the counts of the newest line, None for a damaged one and for one of a version that did not count."""
    counts = rows[-1].get("tally") if rows else {}
    whole = isinstance(counts, dict) and all(isinstance(count, int) for count in counts.values())
    return counts if whole else None


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace the file with these objects, one JSON line each."""
    replace(path, "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
