"""`rocketbox/cuts.json`: what was taken back from the log, newest last; a start and a person know of it for years."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from storage_driver.files.disk import Disk
from storage_driver.files.state_file import NOT_SAVED, StateFile
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
        return _read(self._file)

    def unacknowledged(self) -> list[CutDone]:
        """Return the cuts that took messages and that nobody has acknowledged. Blocks. Raises OSError."""
        seen = _read(self._seen)
        return [cut for cut in self.load() if cut.messages and cut not in seen]

    def acknowledge(self, cuts: Sequence[CutDone]) -> None:
        """Acknowledge these cuts: no clock says which are newer. Blocks. Raises OSError."""
        if cuts:
            _write(self._seen, [*(cut for cut in _read(self._seen) if cut not in cuts), *cuts])

    def note(self, cut: CutDone) -> None:
        """Add a cut, unless it is there already. Blocks. Raises OSError."""
        cuts = self.load()
        if cut not in cuts:
            _write(self._file, [*cuts, cut])


def _read(file: StateFile) -> list[CutDone]:
    try:
        return [read_cut(item) for item in (file.load() or {"cuts": []})["cuts"]]
    except NOT_SAVED:
        return []


def _write(file: StateFile, cuts: Sequence[CutDone]) -> None:
    file.save({"cuts": [each._asdict() for each in cuts[-MOST_CUTS:]]})


def read_cut(item: Mapping[str, Any]) -> CutDone:
    """Return a cut as it was saved. Raises KeyError, TypeError, ValueError."""
    names = [str(name) for name in item["quarantined"]]
    at_ms, messages = int(item.get("at_ms", 0)), int(item.get("messages", 0))
    return CutDone(int(item["log_offset"]), int(item["end"]), str(item["reason"]), names, at_ms, messages)
