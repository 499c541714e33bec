"""The product's own notes under `watchdog/`: this boot's line, heartbeat, ten healthy minutes, planned stops, starving.

Everything here blocks on the disk: call it from a thread while serving.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from watchdog.boots import boot_id, forget_plan, note_boot
from watchdog.notes import read_json, read_lines, write_lines

TIRED_COUNT, TIRED_S = 10, 3600.0


class BootNote(NamedTuple):
    """This boot as boots.jsonl tells it."""

    number: int
    boot: str
    reason: str
    slot: str
    version: str
    settled: bool
    began_s: float


def tired(ends_s: Sequence[float], uptime_s: float, *, settled: bool) -> bool:
    """Tell whether ten ends, by uptime, are within the hour, without ten healthy minutes in this boot."""
    return not settled and sum(uptime_s - end_s <= TIRED_S for end_s in ends_s) >= TIRED_COUNT


class Diary:
    """Notes of one box; `folder` is its `watchdog/`, `root` is / except in tests."""

    def __init__(self, folder: Path, *, root: Path = Path("/")) -> None:
        self.folder, self._root = folder, root

    def begin(self, *, now_s: float, trusted: bool) -> BootNote:
        """Return this boot's line, writing it where no boot helper did; a planned stop of this boot is over now."""
        line = note_boot(self._root, now_s=now_s, trusted=trusted, folder=self.folder)
        marker = read_json(self.folder / "planned")
        if marker and marker.get("boot") == line["boot"]:
            forget_plan(self.folder)
        return BootNote(
            number=int(line.get("number", 0)),
            boot=str(line["boot"]),
            reason=str(line.get("reason", "power")),
            slot=str(line.get("slot", "-")),
            version=str(line.get("version", "-")),
            settled=bool(line.get("settled")),
            began_s=float(line.get("began_s") or 0),
        )

    def previous_exit(self) -> str:
        """Name how the product ended last: `exit 78`, `signal KILL`, or the reset reason when the machine went too."""
        boots = read_lines(self.folder / "boots.jsonl")
        exits = read_lines(self.folder / "exits.jsonl")
        if not exits or not boots or exits[-1].get("boot") != boots[-1].get("boot"):
            return str(boots[-1].get("reason", "power")) if boots else "first"
        last = exits[-1]
        return f"{'exit' if last.get('code') == 'exited' else 'signal'} {last.get('status')}"

    def ends_in_this_boot(self) -> int:
        """Return how often the service has exited since the machine started, for whatever reason."""
        return len(self._ends_here())

    def tired(self, *, uptime_s: float, settled: bool) -> bool:
        """Tell whether this start should end with 79 so that escalation decides."""
        ends = [float(row.get("uptime_s", 0)) for row in self._ends_here() if row.get("result") != "success"]
        return tired(ends, uptime_s, settled=settled)

    def _ends_here(self) -> list[dict[str, Any]]:
        """Return the lines of exits.jsonl that belong to this boot."""
        here = boot_id(self._root)
        return [row for row in read_lines(self.folder / "exits.jsonl") if row.get("boot") == here]

    def heartbeat(self, *, boot: str, uptime_s: float, state: str) -> None:
        """Rewrite the one line that tells the next boot how this one fared."""
        self._replace("heartbeat", {"boot": boot, "uptime_s": round(uptime_s, 1), "state": state})

    def healthy(self, *, boot: str, uptime_s: float, settled: bool) -> None:
        """Note the first healthy second of this boot, or that ten healthy minutes have passed."""
        boots = read_lines(self.folder / "boots.jsonl")
        for row in boots:
            if row.get("boot") == boot:
                row["healthy_s"] = row.get("healthy_s") or round(uptime_s - float(row.get("began_s") or 0), 1)
                row["settled"] = bool(row.get("settled")) or settled
                row["uptime_s"] = round(uptime_s, 1)
        write_lines(self.folder / "boots.jsonl", boots)

    def settle(self, *, boot: str, config_crc32: int | None) -> None:
        """Tell the root helper which configuration had ten healthy minutes; it becomes the last good one."""
        self._replace("settled.json", {"boot": boot, "config_crc32": config_crc32})

    def planned(self, *, boot: str, reason: str, who: str) -> None:
        """Mark the coming stop as wanted; a mark of the escalation stays."""
        marker = read_json(self.folder / "planned")
        if not (marker and marker.get("boot") == boot):
            self._replace("planned", {"boot": boot, "reason": reason, "who": who})

    def starving(self, *, reasons: Sequence[Mapping[str, str]], stacks: Sequence[str]) -> None:
        """Leave behind why systemd is no longer fed and where every task and thread stood."""
        self._replace("starving.json", {"wall_s": int(time.time()), "reasons": list(reasons), "stacks": list(stacks)})

    def _replace(self, name: str, value: Mapping[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_lines(self.folder / name, [dict(value)])
