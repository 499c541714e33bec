"""Dead letters that somebody has resent, or had consumed directly: they wait for nobody any more. Sans I/O.

Offsets of dead letter topics tell what was read in order; who resends one of many leaves those before it unread.
"""

from collections.abc import Collection
from typing import Any

from appliance.broker.tables.saving import SavedTable, TableFile, load_table
from appliance.broker.tables.topics import DEAD_PREFIX

MOST = 10_000  # of all queues: by hand nobody gets there


class Resent(SavedTable):
    """Offsets of dead letters by topic and queue."""

    def __init__(self, file: TableFile) -> None:
        super().__init__(file, self.to_json)
        self._offsets = _rows(load_table(file, "resent dead letters"))

    def note(self, topic: str, queue_id: int, offset: int) -> None:
        """Note that a message has gone back to its group; one of another topic is none."""
        if topic.startswith(DEAD_PREFIX) and sum(map(len, self._offsets.values())) < MOST:
            self._offsets.setdefault((topic, queue_id), set()).add(offset)
            self._saver.changed()

    def among(self, topic: str, queue_id: int, low: int, high: int) -> int:
        """Return how many of the queue's offsets in [low, high) went back; those outside are forgotten.

        low: nothing below is asked for again. high: the queue's end; a topic that was deleted begins at 0 again.
        """
        known = self._offsets.get((topic, queue_id), set())
        kept = {offset for offset in known if low <= offset < high}
        if len(kept) < len(known):
            self._offsets[topic, queue_id] = kept
            self._saver.changed()
        return len(kept)

    def keep(self, topics: Collection[str]) -> None:
        """Forget the dead letters of all topics but these."""
        gone = [key for key in self._offsets if key[0] not in topics]
        for key in gone:
            del self._offsets[key]
        if gone:
            self._saver.changed()

    def to_json(self) -> dict[str, object]:
        """Return what is saved."""
        return {"resent": [[*key, sorted(offsets)] for key, offsets in self._offsets.items() if offsets]}


def _rows(content: dict[str, Any]) -> dict[tuple[str, int], set[int]]:
    found: dict[tuple[str, int], set[int]] = {}
    rows = content.get("resent")
    for row in rows if isinstance(rows, list) else ():
        match row:
            case [str() as topic, int() as queue_id, list() as offsets]:
                found[topic, queue_id] = {offset for offset in offsets if isinstance(offset, int)}
    return found
