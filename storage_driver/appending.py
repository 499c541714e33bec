"""Appending: checks, numbers and times for each message; plain functions of the loop, nothing here waits."""

from collections.abc import Callable, Sequence
from itertools import accumulate, count
from typing import cast

from storage_driver.config import StoreConfig
from storage_driver.errors import Full, MessageIllegal, TablesFailed
from storage_driver.files.disk import SPACE_ERRORS
from storage_driver.flusher import Flusher
from storage_driver.log.clock import STEP_MS
from storage_driver.log.commit_log import CommitLog
from storage_driver.queues.consume_queue import ConsumeQueue
from storage_driver.queues.dispatch import is_queued
from storage_driver.queues.pending import PendingAppend, PendingRecord, PendingRun
from storage_driver.record import (
    BLANK_BYTES,
    FIXED_BYTES,
    MAX_PROPERTIES_BYTES,
    Message,
    MessageQueue,
    Parts,
    check_message,
    check_queue,
    encode_batch,
    encode_record,
    encode_topic,
)
from storage_driver.statistics import AppendResult, BatchAppendResult

AROUND_BODY = MAX_PROPERTIES_BYTES + 512  # the rest of a record and the end of its segment


class Appender:
    """Gives every message its place in the log and its number in its queue."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        flusher: Flusher,
        queues: dict[MessageQueue, ConsumeQueue],
        *,
        now_ms: Callable[[], int],
        last_ms: int,
        stepped: Callable[[int, int], None],
    ) -> None:
        self._never = config.copies_only
        self.full: str | None = self._never  # why appends are refused, for lack of space if not for ever
        self.exhausted = self._never is not None  # also the broker's own: the file system itself had no room
        self._config, self._log, self._flusher, self._queues = config, log, flusher, queues
        self._now_ms, self._last_ms, self._stepped = now_ms, last_ms, stepped
        self._max_bytes, self._store_host = config.max_message_bytes, config.store_host
        self._topic_bytes = {queue.key.topic: queue.topic_bytes for queue in queues.values()}
        self._fixed_bytes = FIXED_BYTES + len(config.store_host)

    def put(self, message: Message, *, own: bool = False, crc: int | None = None) -> AppendResult:
        """Append one message, not durable yet. Raises Full, LogFailed, Busy, MessageIllegal.

        Pass the `crc` of the body if it is known. The `own` copies of the broker may use the room above the
        full mark, since messages that wait for them keep old files alive, and be larger than the limit of senders.
        """
        topic, queue_id, body, properties, _, sys_flag, _, born_host, _, _ = message
        target = self._queues.get((topic, queue_id))  # type: ignore[call-overload]
        if target is None:
            target = self._new_queue(message, self._most_bytes(own))
        if len(body) > self._max_bytes or len(properties) > MAX_PROPERTIES_BYTES:
            check_message(message, self._most_bytes(own))
        if (self.full is not None and (self.exhausted or not own)) or self._flusher.failure is not None:
            self._refuse()
        size = self._fixed_bytes + len(target.topic_bytes) + len(body) + len(properties) + len(born_host)
        log_offset = self._log.reserve(size)
        stored_ms = self._now_ms()
        if stored_ms < self._last_ms:
            stored_ms = self._not_before_last(stored_ms, log_offset)
        self._last_ms = stored_ms
        queued = not sys_flag & 0xC or not sys_flag & 0x4  # prepared and rollback have no entry
        queue_offset = target.next_offset if queued else 0
        data = encode_record(
            message,
            target.topic_bytes,
            queue_offset,
            log_offset,
            stored_ms=stored_ms,
            store_host=self._store_host,
            crc=crc,
        )
        if queued:
            target.next_offset = queue_offset + 1
        pending = PendingRecord(target, log_offset, size, queue_offset, sys_flag, stored_ms, properties)
        return AppendResult(queue_offset, log_offset, size, self._log.append(data, pending), stored_ms)

    def put_batch(self, shared: Message, parts: Parts, *, crcs: Sequence[int] | None = None) -> BatchAppendResult:
        """Append messages to one queue, one after the other in one segment, all or none. Raises as `put`.

        `shared` holds what they have in common; its body, properties and flag are ignored.
        """
        target = self._queues.get((shared.topic, shared.queue_id))  # type: ignore[call-overload]
        if target is None:
            target = self._new_queue(shared, self._max_bytes)
        _, bodies, stored = parts
        lengths, more = list(map(len, bodies)), list(map(len, stored))
        if max(lengths) > self._config.max_message_bytes or max(more) > MAX_PROPERTIES_BYTES:
            for flag, body, properties in zip(*parts, strict=True):
                one = shared._replace(flag=flag, body=body, properties=properties)
                check_message(one, self._config.max_message_bytes)
        if self.full is not None or self._flusher.failure is not None:
            self._refuse()
        fixed = self._fixed_bytes + len(target.topic_bytes) + len(shared.born_host)
        sizes = [fixed + length + size for length, size in zip(lengths, more, strict=True)]
        total = sum(sizes)
        if total + BLANK_BYTES > self._log.segment_bytes:
            raise MessageIllegal(f"batch of {total} bytes, a segment has {self._log.segment_bytes}")
        log_offset = self._log.reserve(total)
        stored_ms = self._last_ms = self._not_before_last(self._now_ms(), log_offset)
        log_offsets, queue_offset = list(accumulate(sizes[:-1], initial=log_offset)), target.next_offset
        numbers, host = (sizes, count(queue_offset), log_offsets), self._config.store_host
        data = encode_batch(shared, parts, numbers, target.topic_bytes, stored_ms=stored_ms, store_host=host, crcs=crcs)
        target.next_offset += len(sizes)
        run = PendingRun(target, log_offset, queue_offset, shared.sys_flag, stored_ms, log_offsets, sizes, stored)
        return BatchAppendResult(queue_offset, log_offsets, self._log.append(data, run), stored_ms)

    def _not_before_last(self, now_ms: int, log_offset: int) -> int:
        """Return the store time: it stays the same while the clock is slightly behind; a step begins a clock epoch."""
        if now_ms < self._last_ms - STEP_MS:
            self._stepped(log_offset, now_ms)
            return now_ms
        return max(now_ms, self._last_ms)

    def _most_bytes(self, own: bool) -> int:
        """Return how large a body may be: what was acknowledged is stored again, though the limit is lower since."""
        return max(self._max_bytes, self._log.segment_bytes - AROUND_BODY) if own else self._max_bytes

    def _new_queue(self, message: Message, most_bytes: int) -> ConsumeQueue:
        key = MessageQueue(message.topic, message.queue_id)
        check_queue(key)
        check_message(message, most_bytes)
        return self.make_queue(key)

    def make_queue(self, key: MessageQueue, begin: int = 0) -> ConsumeQueue:
        """Make a queue whose first message has the number `begin`. Raises MessageIllegal."""
        topic = self._topic_bytes.get(key.topic)
        if topic is None:
            topic = self._topic_bytes[key.topic] = encode_topic(key.topic)
        queue = self._queues[key] = ConsumeQueue(key, topic, end=begin)
        queue.min_cached = (self._log.first, begin)
        return queue

    def _refuse(self) -> None:
        if self.full is not None:
            raise Full(self.full)
        failure = cast(OSError, self._flusher.failure)
        if failure.errno in SPACE_ERRORS:
            raise Full(str(failure))
        raise TablesFailed(str(failure))

    def on_truncated(self, dropped: Sequence[PendingAppend]) -> None:
        """The log removed records: the queues do the same, and their numbers are used again."""
        for pending in dropped:
            if is_queued(pending.sys_flag):
                pending.queue.take_back(pending.queue_offset)

    def only_copies(self, reason: str | None) -> None:
        """Take nothing but records of another log, for a reason; None: take messages again."""
        full = self.full if self.lacks_space else None
        self._never = reason
        self.set_full(full)

    @property
    def lacks_space(self) -> bool:
        """Tell whether appends are refused for lack of space."""
        return self.full is not None and self.full != self._never

    def set_full(self, reason: str | None) -> None:
        """Refuse appends for a reason; None: accept them again."""
        self.full, self.exhausted = reason or self._never, self._never is not None

    def no_room(self, reason: str) -> None:
        """Appends are blocked until there is space."""
        self.full, self.exhausted = reason, True

    def forget_topic(self, topic: str) -> None:
        """Forget a deleted topic."""
        self._topic_bytes.pop(topic, None)
