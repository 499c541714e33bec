"""What a member keeps beside its log: its promises in `rocketbox/vote`, terms and members in `rocketbox/terms.json`.

Both block and are called one at a time in a thread.
"""

import logging
from pathlib import Path
from typing import Any, Final

from storage_driver.consensus.effects import TermTable
from storage_driver.consensus.hard_state import HardState
from storage_driver.consensus.members import Members, MembersAt
from storage_driver.consensus.terms import Row, are_rising
from storage_driver.consensus.vote_file import VoteFile
from storage_driver.errors import StateDamaged
from storage_driver.files.disk import Disk
from storage_driver.files.state_file import StateFile, parse_state
from storage_driver.files.unreadable import ZeroingDisk

log = logging.getLogger("appliance.group")
FIRST_TERM: Final = 1  # of what a box had appended before it became a member
UNREADABLE: Final = "it votes again once it has all that its leader has; see D104 of `rocketbox doctor`"
STEP: Final = "remove this member, let it join under a new id"


class MemberFiles:
    """The files of one member."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk = ZeroingDisk(disk, root)
        self._vote = VoteFile(disk, root / "rocketbox" / "vote")
        self._table = StateFile(disk, root / "rocketbox" / "terms.json")

    def open(self, members: Members, *, first: int, end: int) -> tuple[HardState, TermTable]:
        """Return what was saved; for a log that was not a member's before, the first of both, which are saved.

        Raises VoteFileDamaged, StateDamaged, OSError.
        """
        had = end > first
        hard = HardState(FIRST_TERM if had else 0, filling=True)
        saved = self._load_table()
        if saved is None:
            if self._disk.exists(self._vote.path):
                hard = self._vote.load()
                if hard.term > FIRST_TERM or hard.voted_for:
                    raise StateDamaged(f"{self._table.path} is missing, and this member has voted: {STEP}")
            else:
                self._vote.create(hard)
            saved = TermTable((Row(FIRST_TERM, first),) if had else (), (MembersAt(-1, members),))
            self.save_table(saved)
            return hard, saved
        hard = self._vote.load(max((row.term for row in saved.rows), default=0))
        if self._vote.doubt is not None:
            log.error("event=votes_unreadable reason=%r next_step=%r", self._vote.doubt, UNREADABLE)
        return hard, saved

    def _load_table(self) -> TermTable | None:
        """Return the table; that of the `.bak` would be of another log."""
        path = self._table.path
        if not self._disk.exists(path):
            return None
        try:
            file = self._disk.open(path, read_only=True)
            value: Any = parse_state(file.read(file.size(), 0))
            rows = tuple(Row(int(term), int(start)) for term, start in value["rows"])
            configs = tuple(
                MembersAt(int(start), Members(*(tuple(map(str, names)) for names in members)))
                for start, members in value["configs"]
            )
        except (TypeError, ValueError, KeyError) as exc:
            raise StateDamaged(f"{path}: {exc!r}: {STEP}") from exc
        if not configs or not are_rising(rows):
            raise StateDamaged(f"{path} has {len(configs)} configurations, {len(rows)} terms: {STEP}")
        return TermTable(rows, configs)

    def save_hard(self, state: HardState) -> None:
        """Write and sync the promises. Raises OSError."""
        self._vote.save(state)

    def save_table(self, table: TermTable) -> None:
        """Write and sync terms and members. Raises OSError."""
        save_terms(self._table, table)


def save_terms(file: StateFile, table: TermTable) -> None:
    """Write and sync terms and members to their file. Raises OSError."""
    rows = [list(row) for row in table.rows]
    file.save(
        {
            "rows": rows,
            "configs": [[config.start, [list(names) for names in config.members]] for config in table.configs],
        }
    )
