"""`rocketbox/cuts.json`: what was taken back from the log, newest last; a start and a person know of it for years."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from storage_driver.errors import StateDamaged
from storage_driver.files.disk import Disk
from storage_driver.files.state_file import StateFile
from storage_driver.named_tuple import NamedTuple

MOST_CUTS: Final = 64
GROUP_TOPICS: Final = frozenset(("RBX_STATE", "RBX_RAFT"))  # of members of a group; they are in no topic table
OWN_TOPICS: Final = "RBX_"  # topics that begin so are those of a box itself


class CutDone(NamedTuple):
    """What a cut removed: log range [log_offset, end), the names of its bytes in quarantine/."""

    log_offset: int
    end: int
    reason: str
    quarantined: list[str]
    at_ms: int = 0
    messages: int = 0  # whole ones of clients


class CutHistory:
    """The cuts of one store."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._file = StateFile(disk, root / "rocketbox" / "cuts.json")
        self._seen = StateFile(disk, root / "rocketbox" / "cuts-seen.json")

    def load(self) -> list[CutDone]:
        """Return the cuts, oldest first; none where the file is damaged. Blocks. Raises OSError."""
        try:
            return [read_cut(item) for item in (self._file.load() or {"cuts": []})["cuts"]]
        except (StateDamaged, KeyError, TypeError, ValueError):
            return []

    def unacknowledged(self) -> list[CutDone]:
        """Return the cuts that took messages and that nobody has acknowledged. Blocks. Raises OSError."""
        try:
            seen_ms = int((self._seen.load() or {"to_ms": 0})["to_ms"])
        except (StateDamaged, KeyError, TypeError, ValueError):
            seen_ms = 0
        return [cut for cut in self.load() if cut.messages and cut.at_ms > seen_ms]

    def acknowledge(self) -> None:
        """Acknowledge every cut. Blocks. Raises OSError."""
        if fresh := self.unacknowledged():
            self._seen.save({"to_ms": max(cut.at_ms for cut in fresh)})

    def note(self, cut: CutDone) -> None:
        """Add a cut, unless it is there already. Blocks. Raises OSError."""
        cuts = self.load()
        if cut not in cuts:
            self._file.save({"cuts": [each._asdict() for each in [*cuts, cut][-MOST_CUTS:]]})


def read_cut(item: Mapping[str, Any]) -> CutDone:
    """Return a cut as it was saved. Raises KeyError, TypeError, ValueError."""
    names = [str(name) for name in item["quarantined"]]
    at_ms, messages = int(item.get("at_ms", 0)), int(item.get("messages", 0))
    return CutDone(int(item["log_offset"]), int(item["end"]), str(item["reason"]), names, at_ms, messages)
