"""Consumer offsets of each group and queue; at most some seconds old on disk.

Any value is accepted, also a smaller one (a reset) and a negative one, which counts as not stored. Names and queues
come from clients, so what they may take up is limited: also for a group and a topic that somebody may use.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, Protocol

import trio

from appliance.broker.tables.offset_room import OffsetRoom
from appliance.broker.tables.saving import RowSave, SharedSave, TableFile, load_table, rows_of

SAVE_S: Final = 5.0
MOST_OFFSETS: Final = 500_000  # of queues, about 100 bytes each
AT_ONCE: Final = 256  # pairs encoded in one go, about a millisecond
NOT_STORED: Final = -1


class OffsetWatcher(Protocol):
    """Is told when others than consumers change offsets."""

    def offset_moved(self, group: str, topic: str, queue_id: int, queue_offset: int, /) -> None: ...
    def offsets_dropped(self, group: str, topic: str, /) -> None: ...


class OffsetTable:
    """(topic, group) -> queue id -> next queue offset to consume."""

    def __init__(self, file: TableFile, *, most: int = MOST_OFFSETS) -> None:
        self._file, self._room = file, OffsetRoom(most)
        self._unsaved: RowSave[str] = RowSave(file, "offsetTable", row=self._row, whole=self.encoded)
        self.resets: dict[tuple[str, str, int], int] = {}  # -> offset; until the member that was not told pulls
        self.watchers: list[OffsetWatcher] = []
        self._given: dict[str, dict[int, int]] = {}
        self.load_again()
        self._save = SharedSave("offsets", self._unsaved.write)

    def load_again(self) -> None:
        """Take what the file says: at the start, and what others wrote since."""
        table = load_table(self._file, "offsets").get("offsetTable")
        self._offsets: dict[str, dict[int, int]] = rows_of(table, _queues_from_json, "offsets")
        self._room.load(self._offsets)

    def get(self, group: str, topic: str, queue_id: int) -> int:
        """Return the stored offset, NOT_STORED when there is none."""
        queues = self._offsets.get(f"{topic}@{group}")
        return NOT_STORED if queues is None else queues.get(queue_id, NOT_STORED)

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int, by: str = "") -> None:
        """Store the offset of a member; a negative offset counts as not stored. Raises Refused at the limit.

        `by`: the address that a new one is counted for, here and in `move`; empty: nobody. Where a reset waits for the
        member nothing changes: it has yet to hear of it. Source: RocketMQ 5.3.
        """
        if queue_offset >= 0 and not (self.resets and (group, topic, queue_id) in self.resets):
            self._store(group, topic, queue_id, queue_offset, by)

    def move(self, group: str, topic: str, queue_id: int, queue_offset: int, by: str = "") -> None:
        """Store an offset that a tool set; it replaces a waiting reset. Raises Refused at the limit."""
        if queue_offset >= 0:
            self.resets.pop((group, topic, queue_id), None)
            self._store(group, topic, queue_id, queue_offset, by)
            self._tell_moved(group, topic, queue_id, queue_offset)

    def _store(self, group: str, topic: str, queue_id: int, queue_offset: int, by: str = "") -> None:
        name = f"{topic}@{group}"
        queues = self._offsets.get(name)
        if queues is None or queue_id not in queues:
            self._room.check(topic, group, queue_id, by)
            self._room.added(name, 1, by, is_new=queues is None)
            if queues is None:
                queues = self._offsets[name] = {}
        elif queues[queue_id] == queue_offset:
            return  # as consumers commit every few seconds where nothing comes
        queues[queue_id] = queue_offset
        self._note(name)

    def _note(self, name: str) -> None:
        self._unsaved.note(name)
        self._save.changed()

    def note_given(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Remember up to where a group was given messages, as long as the box runs, of what it has an offset of."""
        name = f"{topic}@{group}"
        if queue_id in self._offsets.get(name, ()):
            self._given.setdefault(name, {})[queue_id] = queue_offset

    def given(self, group: str, topic: str, queue_id: int) -> int:
        """Return up to where a group was given messages, at least its offset. Source: RocketMQ 5.3 queryPullOffset."""
        given = self._given.get(f"{topic}@{group}", {}).get(queue_id, NOT_STORED)
        return max(given, self.get(group, topic, queue_id))

    def reset(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Store an offset that the next pull of the queue is sent to. Source: RocketMQ 5.3 assignResetOffset."""
        if queue_offset >= 0:
            self._store(group, topic, queue_id, queue_offset)
        self.resets[group, topic, queue_id] = queue_offset
        self._tell_moved(group, topic, queue_id, queue_offset)

    def _tell_moved(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        for watcher in self.watchers:
            watcher.offset_moved(group, topic, queue_id, queue_offset)

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return where a pull of this queue is to go instead, once; None when there is no reset."""
        return self.resets.pop((group, topic, queue_id), None)

    def of(self, topic: str, group: str) -> dict[int, int]:
        """Return queue id -> offset of one group on one topic, a copy."""
        return dict(self._offsets.get(f"{topic}@{group}", {}))

    def topics_of(self, group: str) -> list[str]:
        """Return the topics on which a group has offsets."""
        end = f"@{group}"
        return [name[: -len(end)] for name in self._offsets if name.endswith(end) and "@" not in name[: -len(end)]]

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets on a topic."""
        start = f"{topic}@"
        return [name[len(start) :] for name in self._offsets if name.startswith(start)]

    def drop_group(self, group: str) -> None:
        """Forget all offsets of a group."""
        for topic in self.topics_of(group):
            self._drop(f"{topic}@{group}")

    def drop_topic(self, topic: str) -> None:
        """Forget all offsets on a topic: one that is created again starts again."""
        for group in self.groups_of(topic):
            self._drop(f"{topic}@{group}")

    def copy(self, source: str, target: str, topic: str) -> None:
        """Give one group the offsets of another on a topic."""
        copied, name = self.of(topic, source), f"{topic}@{target}"
        self._drop(name)
        if copied:
            self._offsets[name] = copied
            self._room.added(name, len(copied), is_new=True)

    def _drop(self, name: str) -> None:
        self._note(name)
        self._given.pop(name, None)
        self.resets = {key: reset for key, reset in self.resets.items() if f"{key[1]}@{key[0]}" != name}
        dropped = self._offsets.pop(name, None)
        if dropped is not None:
            self._room.dropped(name, len(dropped))
        topic, _, group = name.rpartition("@")
        for watcher in self.watchers:
            watcher.offsets_dropped(group, topic)

    def table(self) -> Mapping[str, Mapping[int, int]]:
        """Return "topic@group" -> queue id -> offset; not to be changed."""
        return self._offsets

    async def encoded(self) -> bytes:
        """Return what `consumerOffset.json` holds; others run in between, as no row depends on another."""
        rows = []
        names = list(self._offsets)
        for start in range(0, len(names), AT_ONCE):
            part = names[start : start + AT_ONCE]
            table = {name: self._offsets[name] for name in part if name in self._offsets}
            rows.append(json.dumps(table, ensure_ascii=False, separators=(",", ":"))[1:-1])
            await trio.lowlevel.checkpoint()
        text = ",".join(filter(None, rows))
        return f'{{"offsetTable":{{{text}}}}}'.encode("utf-8", "surrogatepass")

    def _row(self, name: str) -> tuple[str, object]:
        queues = self._offsets.get(name)
        return name, None if queues is None else dict(queues)

    async def run(self, *, save_s: float = SAVE_S) -> None:
        """Save changes save_s after the first of them, until cancelled."""
        await self._save.run(save_s)

    def has_saved(self, group: str, topic: str) -> bool:
        """Whether the offsets of a group on a topic are saved as they are."""
        return self._save.is_done or not self._unsaved.has(f"{topic}@{group}")

    @property
    def is_saved(self) -> bool:
        """Whether everything is on disk."""
        return self._save.is_done

    async def flush(self) -> None:
        """Save what is not on disk yet; who comes meanwhile shares the next save or its failure. Raises OSError."""
        await self._save.flush()


def _queues_from_json(row: Mapping[str, Any]) -> dict[int, int]:
    return {int(queue_id): int(queue_offset) for queue_id, queue_offset in row.items()}
