"""What the box's own notes and its disk tell: boots, restarts, updates, wear. Read in a thread, seldom."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import trio

from appliance.health.disk_wear import wear
from watchdog.notes import read_json, read_lines, tally_of

NOTES_S, WEAR_S = 15.0, 3600.0
EXIT_RESULTS = ("success", "exit-code", "signal", "core-dump", "watchdog", "timeout", "oom-kill")  # systemd.exec(5)
UPDATE_RESULTS = ("committed", "rolled_back")
UPDATES = ("opt/slots/state.json", "var/lib/rocketbox-images/state.json")  # of programs, of whole images


@dataclass(frozen=True, slots=True)
class Machine:
    """Counts by reason or result, and the share of its rated writes the disk has used, None when it does not say."""

    boots: Mapping[str, int] = field(default_factory=dict)
    restarts: Mapping[str, int] = field(default_factory=dict)
    updates: Mapping[str, int] = field(default_factory=dict)
    wear: float | None = None


class MachineNotes:
    """Reads the notes of one box; the last look is good for some seconds, what the disk says for an hour."""

    def __init__(self, data: Path, *, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self._data, self._root, self._clock = data, root, clock
        self._known, self._until_s = Machine(), float("-inf")
        self._wear: float | None = None
        self._wear_until_s = float("-inf")

    async def read(self) -> Machine:
        """Return what is known, after a look when the last is too old."""
        if self._clock() >= self._until_s:
            self._known = await trio.to_thread.run_sync(self._look)
            self._until_s = self._clock() + NOTES_S
        return self._known

    def _look(self) -> Machine:
        if self._clock() >= self._wear_until_s:
            self._wear, self._wear_until_s = used_ratio(self._data, self._root / "sys"), self._clock() + WEAR_S
        notes = self._data / "watchdog"
        boots, restarts = tally(notes / "boots.jsonl"), tally(notes / "exits.jsonl")
        return Machine(boots, restarts, updates(self._root), self._wear)


def tally(path: Path) -> dict[str, int]:
    """Return the counts that the newest line of some notes carries."""
    return tally_of(read_lines(path)) or {}


def updates(root: Path) -> dict[str, int]:
    """Return how many versions were kept and given up; nothing on a machine without slots."""
    states = [state for name in UPDATES if isinstance(state := read_json(root / name), dict)]
    words = dict(zip(UPDATE_RESULTS, ("committed", "bad"), strict=True))
    return {result: sum(len(state.get(name, ())) for state in states) for result, name in words.items() if states}


def used_ratio(data: Path, sys: Path) -> float | None:
    """Return the share of the rated writes that is used up, None where the disk does not say."""
    try:
        seen = wear(data, sys)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return None if not seen or seen["used_percent"] is None else float(seen["used_percent"]) / 100
