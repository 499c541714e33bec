"""What the table of queues told a recovery: ends, and queues whose files need not be looked at yet."""

from storage_driver.queues.queue_table import QueueRow, QueueTable
from storage_driver.record import MessageQueue


class NotedQueues:
    """Without a table nothing is noted, and every queue is looked at."""

    def __init__(self) -> None:
        self.trusted: dict[MessageQueue, QueueRow] = {}  # taken from the table, not one file looked at
        self._looked_at: set[MessageQueue] | None = None  # None: all of them
        self._ends: dict[MessageQueue, int] = {}  # as the table has them
        self._ends_hold = True  # the scan begins where the table was complete, or behind: its ends are entries below
        self._unlisted_end = -1  # 0: a queue that the table does not have has no entry below the restart position

    def check(self, table: QueueTable, start: int) -> dict[MessageQueue, QueueRow]:
        """Set all queues against a table when the scan begins at `start`; return its rows."""
        self._ends_hold = table.as_of <= start
        self._unlisted_end = 0 if table.as_of >= start else -1
        return {row.key: row for row in table.rows}

    def trust(self) -> None:
        """Look at no queue before the scan meets it."""
        self._looked_at = set()

    def to_look_at(self, key: MessageQueue) -> bool:
        """Tell once for each queue that its files were not looked at yet."""
        if self._looked_at is None or key in self._looked_at:
            return False
        self._looked_at.add(key)
        return True

    def note(self, row: QueueRow | None) -> None:
        """Keep the end that the table has of a queue."""
        if row is not None:
            self._ends[row.key] = row.end

    def end_of(self, key: MessageQueue) -> int:
        """Return the end that was noted, 0 when there is none."""
        return self._ends.get(key, 0)

    def made_end(self, row: QueueRow | None) -> int:
        """Return the end below which a queue's file cannot be one that had just been made; -1: not known."""
        return row.end if row is not None else self._unlisted_end

    def must_reach(self, row: QueueRow) -> int:
        """Return the number that the entries must reach."""
        return row.end if self._ends_hold else 0
