"""What the core knows of the own log: where it begins and ends, its terms, its members, its marks."""

from storage_driver.consensus.effects import Start, TermTable
from storage_driver.consensus.members import Configs, Members, MembersAt, configs_below
from storage_driver.consensus.terms import Row, Rows, row_at, rows_below, term_below, with_row


class LogState:
    """One member's log. `committed` ≤ `synced` ≤ `end`."""

    def __init__(self, start: Start) -> None:
        self.first, self.end, self.synced = start.first, start.end, start.end
        self.committed = min(start.committed, start.end)
        self.rows: Rows = rows_below(start.table.rows, start.end)
        self.configs: Configs = configs_below(start.table.configs, start.end)
        self.members: Members = self.configs[-1].members
        self.last_term = term_below(self.rows, start.end)

    @property
    def table(self) -> TermTable:
        """What is to be saved."""
        return TermTable(self.rows, self.configs)

    @property
    def last_change(self) -> int:
        """The log offset from which the newest members are in force, appended or not."""
        return self.configs[-1].start

    def row_at(self, log_offset: int) -> Row:
        """Return the row of the byte at a log offset."""
        return row_at(self.rows, log_offset)

    def term_below(self, log_offset: int) -> int:
        """Return the term of the byte before a log offset."""
        return term_below(self.rows, log_offset)

    def begin_row(self, row: Row) -> None:
        """Note a term for what is appended from the end on. Raises ValueError when it does not rise."""
        self.rows = with_row(self.rows, row)

    def add_config(self, config: MembersAt) -> None:
        """Note members that come into force when the log has the byte at their start."""
        self.configs = (*configs_below(self.configs, config.start), config)

    def forget_unappended(self) -> None:
        """Drop rows and members of bytes that were accepted but never appended."""
        self.rows, self.configs = rows_below(self.rows, self.end), configs_below(self.configs, self.end)

    def extend(self, end: int) -> None:
        """The log ends here now."""
        self.end = end
        self.last_term = self.rows[-1].term if self.rows and self.rows[-1].start < end else term_below(self.rows, end)
        if self.configs[-1].members is not self.members:
            self._find_members()

    def cut(self, log_offset: int) -> None:
        """Everything above is gone."""
        self.end = log_offset
        self.synced, self.committed = min(self.synced, log_offset), min(self.committed, log_offset)
        self.forget_unappended()
        self.last_term = term_below(self.rows, log_offset)
        self._find_members()

    def restart(self, log_offset: int, rows: Rows, configs: Configs) -> None:
        """An empty log begins at a log offset; what was before is known by its terms and members alone."""
        self.first = self.end = self.synced = log_offset
        self.rows, self.configs = rows_below(rows, log_offset), configs_below(configs, log_offset) or self.configs
        self.last_term = term_below(self.rows, log_offset)
        self._find_members()

    def _find_members(self) -> None:
        self.members = [config.members for config in self.configs if config.start < self.end][-1]
