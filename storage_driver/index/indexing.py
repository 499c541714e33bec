"""Records → entries of the index, from the dispatch's backlog or from the log itself; for the tables' thread."""

import time
from collections.abc import Sequence
from typing import Final

from storage_driver.index.index_file import YIELD_EVERY, YIELD_S, Index
from storage_driver.index.index_keys import IndexKeys, alike_hashes, key_hashes
from storage_driver.log.scan import Bad, Blank, damage_end, walk
from storage_driver.log.segment import Segment
from storage_driver.queues.pending import PendingRecord, PendingRun
from storage_driver.record import TRANSACTION_MASK, TRANSACTION_ROLLBACK

CATCH_UP_BYTES = 4 << 20  # some thousand records share reads and writes of slots
FEW: Final = 8  # records whose keys are found one by one


class KeyCollector:
    """Finds the keys of records that come in log order, those of some hundred records of one topic together."""

    def __init__(self) -> None:
        self.found = IndexKeys([], [], [])
        self._topic, self._yield_at = "", 0
        self._log_offsets: list[int] = []
        self._times: list[int] = []
        self._properties: list[bytes] = []

    def add(self, topic: str, log_offset: int, stored_ms: int, properties: bytes) -> None:
        """Take one record."""
        if topic != self._topic or len(self._times) >= YIELD_EVERY:
            self._turn_to(topic)
        self._log_offsets.append(log_offset)
        self._times.append(stored_ms)
        self._properties.append(properties)

    def add_run(
        self, topic: str, log_offsets: Sequence[int], times: Sequence[int], properties: Sequence[bytes]
    ) -> None:
        """Take records of one topic."""
        if topic != self._topic or len(self._times) >= YIELD_EVERY:
            self._turn_to(topic)
        self._log_offsets += log_offsets
        self._times += times
        self._properties += properties

    def _turn_to(self, topic: str) -> None:
        self._settle()
        self._topic, self._log_offsets, self._times, self._properties = topic, [], [], []
        if len(self.found.values) >= self._yield_at:
            time.sleep(YIELD_S)  # a thread that computes lets the loop of the sends go first
            self._yield_at = len(self.found.values) + YIELD_EVERY

    def finish(self) -> IndexKeys:
        """Return the keys of all records that were taken; more cannot come."""
        self._settle()
        return self.found

    def _settle(self) -> None:
        """Find the keys of the records since the last turn."""
        hashes = alike_hashes(self._topic, self._properties) if len(self._properties) >= FEW else None
        values, log_offsets, times = self.found
        if hashes is not None:
            values += hashes
            log_offsets += self._log_offsets
            times += self._times
            return
        for log_offset, stored_ms, properties in zip(self._log_offsets, self._times, self._properties, strict=True):
            for value in key_hashes(self._topic, properties):
                values.append(value)
                log_offsets.append(log_offset)
                times.append(stored_ms)


def index_records(index: Index, records: Sequence[PendingRecord | PendingRun], now_ms: int) -> None:
    """Add the keys of records that became durable, in log order. Raises OSError."""
    keys = KeyCollector()
    for at in range(0, len(records), YIELD_EVERY):
        some = records[at : at + YIELD_EVERY]
        if not _add_alike(keys, some):
            for record in some:
                _add(keys, record)
    index.add(keys.finish(), now_ms)


def _add(keys: KeyCollector, record: PendingRecord | PendingRun) -> None:
    topic = record.queue.key.topic
    if isinstance(record, PendingRun):
        keys.add_run(topic, record.log_offsets, [record.stored_ms] * len(record.sizes), record.properties)
    elif record.properties and record.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
        keys.add(topic, record.log_offset, record.stored_ms, record.properties)


def _add_alike(keys: KeyCollector, records: Sequence[PendingRecord | PendingRun]) -> bool:
    """Take single records of one topic, column by column; False, and none are taken, when they are something else."""
    topic: str | None = None
    log_offsets, times, properties = list[int](), list[int](), list[bytes]()
    for record in records:
        if isinstance(record, PendingRun) or not record.properties:
            return False
        if topic is None:
            topic = record.queue.key.topic
        if record.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK or record.queue.key.topic != topic:
            return False
        log_offsets.append(record.log_offset)
        times.append(record.stored_ms)
        properties.append(record.properties)
    if topic is not None:
        keys.add_run(topic, log_offsets, times, properties)
    return True


def index_range(index: Index, segment: Segment, start: int, target: int, now_ms: int) -> int:
    """Index a stretch of one segment from the log itself; return where the next stretch begins. Raises OSError."""
    keys, done_to, (upto, had) = KeyCollector(), start, index.last_record()
    for item in walk(segment, start, check_crc=False):
        if isinstance(item, Blank):
            done_to = segment.end
            break
        if isinstance(item, Bad):
            done_to = damage_end(segment, item)
            break
        if item.log_offset >= upto and item.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            keys.add(item.topic, item.log_offset, item.stored_ms, item.properties)
        done_to = item.log_offset + item.size
        if done_to >= target or done_to - start >= CATCH_UP_BYTES:
            break
    found = keys.finish()
    index.add(found.behind(min(had, found.log_offsets.count(upto))), now_ms)
    return done_to
