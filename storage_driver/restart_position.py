"""What the next start relies on: up to where queues and index are on stable storage, and the table of queue ends."""

from collections.abc import Mapping
from functools import partial

import trio

from storage_driver.config import StoreConfig
from storage_driver.files.checkpoint import CheckpointFile, CheckpointValues, CommittedFile, PositionFile, Times
from storage_driver.files.disk import Disk
from storage_driver.index.index_file import Index
from storage_driver.queues.consume_queue import ConsumeQueue
from storage_driver.queues.queue_table import save_table, table_file, table_value
from storage_driver.record import MessageQueue

ENDS_EVERY_S = 60.0
INDEX_BEHIND = 4  # positions of the queues per one of the index, while many messages come


class RestartPosition:
    """`values` are those saved last. Who saves has synced before what they speak of."""

    def __init__(
        self, config: StoreConfig, disk: Disk, queues: Mapping[MessageQueue, ConsumeQueue], index: Index
    ) -> None:
        self._config, self._disk, self._queues, self._index = config, disk, queues, index
        self.values = CheckpointValues(0, 0, 0, 0, bytes(16))
        self.committed_file: CommittedFile | None = None  # of a log that others share
        self._position_file = PositionFile(disk, config.root / "rocketbox" / "position")
        self._checkpoint_file = CheckpointFile(disk, config.root / "checkpoint")
        self._ends_file = table_file(disk, config.root)
        self._ends_saved = (-ENDS_EVERY_S, -1, 0)  # when, how many queues there were, complete up to which log offset
        self._saved_at = self._index_synced_at = 0.0

    def begin(self, values: CheckpointValues) -> None:
        """Save where recovery left off. Blocks. Raises OSError."""
        self._position_file.load()
        self.values = values
        self._position_file.save(values)
        if self.committed_file is not None:  # without it the next start would take all that is there for committed
            self.committed_file.save(values.queues_to)
        if values.queues_to or self._queues or self._disk.exists(self._ends_file.path):  # of an empty store: nothing
            save_table(self._ends_file, table_value(values.queues_to, self._queues.values()))

    def start(self, now: float) -> None:
        """Count the time to the next position from now on."""
        self._saved_at = self._index_synced_at = now

    def due(self, queues_to: int, now: float) -> bool:
        """Tell whether the position is to move to where the queue files are."""
        config, moved = self._config, queues_to - self.values.queues_to
        return moved > 0 and (now - self._saved_at > config.position_every_s or moved > config.position_every_bytes)

    def index_due(self, index_to: int, now: float) -> bool:
        """Tell whether to sync the index with the queues: its slots are everywhere, 20 MB of many keys."""
        far = index_to - self.values.index_to > INDEX_BEHIND * self._config.position_every_bytes
        return far or now - self._index_synced_at > self._config.position_every_s

    def save(self, values: CheckpointValues) -> None:
        """Write and sync a position, ours and Apache's. Blocks. Raises OSError."""
        self._position_file.save(values)
        if self.committed_file is not None:
            self.committed_file.save(values.queues_to)
        full = self._index.files[-2].end_ms if len(self._index.files) > 1 else 0
        self._checkpoint_file.save(Times(values.stored_ms, values.stored_ms, full))

    def saved(self, values: CheckpointValues, now: float, *, with_index: bool) -> None:
        """Note that a position was saved."""
        self.values, self._saved_at = values, now
        if with_index:
            self._index_synced_at = now

    def save_again(self) -> None:
        """Write the position once more, in its place. Blocks. Raises OSError."""
        self._position_file.save(self.values)

    def distrust(self) -> None:
        """Make the next start reset the index to what was synced, as after a reboot. Blocks."""
        try:
            self._position_file.save(self.values._replace(boot=bytes(16)))
        except OSError:
            pass  # a disk that takes nothing more: what is there is older and holds as well

    async def save_ends(self, as_of: int, limiter: trio.CapacityLimiter) -> None:
        """Write the table of queues; all entries of the log below `as_of` are in the files, synced. Raises OSError."""
        value = table_value(as_of, self._queues.values())
        await trio.to_thread.run_sync(partial(save_table, self._ends_file, value), limiter=limiter)
        self._ends_saved = trio.current_time(), len(self._queues), as_of

    def ends_due(self, queues_to: int, now: float) -> bool:
        """Tell whether the table of queues is old, from which a start scans; a large one is not saved each time."""
        saved_at, count, as_of = self._ends_saved
        many = len(self._queues) > self._config.trust_queues_above
        moved = queues_to - as_of > (self._config.position_every_bytes if many else 0)
        return now - saved_at > ENDS_EVERY_S or count != len(self._queues) or moved

    def forget_ends(self) -> None:
        """Save the table of queues with the next position: a queue has gone."""
        self._ends_saved = (-ENDS_EVERY_S, -1, 0)
