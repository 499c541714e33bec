"""Which groups consume which topics by POP, as an operator set it; all others pull. Sans I/O.

Source: RocketMQ 5.5.0 MessageRequestModeManager, whose file this is.
"""

from typing import Any

from appliance.broker.tables.saving import SavedTable, TableFile, load_table, number
from netstack.errors import Refused
from netstack.wire.codes import ResponseCode
from storage_driver.named_tuple import NamedTuple

PULL, POP = "PULL", "POP"
MOST = 10_000


class ConsumeMode(NamedTuple):
    """PULL or POP; `share` clients get the queues of each other, 0: all clients all queues."""

    mode: str
    share: int = 0


PULLS = ConsumeMode(PULL)


class RequestModes(SavedTable):
    """(topic, group) -> mode."""

    def __init__(self, file: TableFile) -> None:
        super().__init__(file, self.to_json)
        self._modes = _rows(load_table(file, "request modes").get("messageRequestModeMap"))

    def get(self, topic: str, group: str) -> ConsumeMode:
        """Return how a group consumes a topic."""
        return self._modes.get((topic, group), PULLS)

    def put(self, topic: str, group: str, mode: ConsumeMode) -> int:
        """Set how a group consumes a topic and return the save mark. Raises Refused at the limit."""
        if (topic, group) not in self._modes and len(self._modes) >= MOST:
            text = f"{len(self._modes)} request modes are set, which is the limit: delete unused topics"
            raise Refused(ResponseCode.SYSTEM_ERROR, text)
        self._modes[topic, group] = mode
        return self._saver.changed()

    def drop_topic(self, topic: str) -> None:
        """Forget a topic that was deleted."""
        gone = [key for key in self._modes if key[0] == topic]
        for key in gone:
            del self._modes[key]
        if gone:
            self._saver.changed()

    def to_json(self) -> dict[str, object]:
        """Return what is saved, and the answer to 402."""
        table: dict[str, dict[str, object]] = {}
        for (topic, group), mode in self._modes.items():
            row = {"consumerGroup": group, "mode": mode.mode, "popShareQueueNum": mode.share, "topic": topic}
            table.setdefault(topic, {})[group] = row
        return {"messageRequestModeMap": table}


def _rows(table: object) -> dict[tuple[str, str], ConsumeMode]:
    found: dict[tuple[str, str], ConsumeMode] = {}
    for topic, groups in table.items() if isinstance(table, dict) else ():
        for group, row in groups.items() if isinstance(groups, dict) else ():
            if isinstance(row, dict) and row.get("mode") in (PULL, POP):
                found[str(topic), str(group)] = ConsumeMode(str(row["mode"]), _share(row))
    return found


def _share(row: dict[str, Any]) -> int:
    try:
        return number(row, "popShareQueueNum", 0)
    except ValueError:
        return 0
