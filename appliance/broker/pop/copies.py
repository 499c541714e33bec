"""Messages that POP stores a second time: expired ones in their retry topic, given up ones among the dead letters.

Source: RocketMQ 5.5.0 PopReviveService.reviveRetry. Apache's broker brings an expired message again for ever; here
it becomes a dead letter after as many deliveries as the group allows, as after a send-back.
"""

import logging
from typing import Protocol

from appliance.broker.consume.send_back import ORIGIN_ID, RETRY_TOPIC
from appliance.broker.delay.redelivery import put_patiently, records_in
from appliance.broker.intake import MessageDraft
from appliance.broker.pop.pop_queue import CopyPlace
from appliance.broker.pop.retry_topics import FIRST_POP_TIME, ORIGIN_GROUP, first_topic, retry_topic_to_write
from appliance.broker.tables.groups import Group, GroupTable
from appliance.broker.tables.topics import DEAD_PREFIX, TopicTable
from storage_driver.errors import RecordDamaged
from storage_driver.interfaces import Messages
from storage_driver.named_tuple import NamedTuple
from storage_driver.reading import ReadRequest
from storage_driver.record import MessageQueue, StoredMessage, decode_record
from storage_driver.statistics import AppendResult

log = logging.getLogger("appliance.broker")

TRANSACTION_FLAGS = 0xC
POP_FROM = "RBX_POP_FROM"  # of a copy: which message it was made of, for the start after a crash
MOST_READ, MOST_READ_BYTES = 256, 1 << 20


class PutStats(Protocol):
    """Counters of stored messages."""

    def put(self, topic: str, queue_id: int, count: int, size: int) -> None: ...


class CopyTables(NamedTuple):
    """State that copies need."""

    topics: TopicTable
    groups: GroupTable
    stats: PutStats


class Copies:
    """Stores messages of queues again."""

    def __init__(self, store: Messages, tables: CopyTables) -> None:
        self._store, self._tables = store, tables

    async def find(self, queue: MessageQueue, offset: int) -> StoredMessage | None:
        """Return a message by its place, None when the log no longer has it. Raises OSError."""
        found = self._store.read_hot(ReadRequest(queue, offset, 1, 1))
        if found is None:  # a thread for each message would take longer than the syncs
            found = await self._store.read(queue, offset, max_count=1, max_bytes=1)
        for chunk in found.chunks:
            try:
                stored = decode_record(chunk)
            except RecordDamaged:
                return None
            return stored if stored.queue_offset == offset else None
        return None

    def place(self, group: str, stored: StoredMessage) -> CopyPlace:
        """Return where an expired message of a group is stored again."""
        tables = self._tables
        if self._is_last(group, stored):
            topic = f"{DEAD_PREFIX}{group}"
        else:
            topic = retry_topic_to_write(group, stored.topic, lambda name: tables.topics.get(name) is not None)
        return CopyPlace(topic, self._store.max_offset(MessageQueue(topic, 0)))

    def _is_last(self, group: str, stored: StoredMessage) -> bool:
        return stored.reconsume_times >= (self._tables.groups.get(group) or Group(group)).retry_max_times

    async def again(self, group: str, stored: StoredMessage, pop_ms: int) -> AppendResult:
        """Store an expired message for its group; it is durable later.

        Raises LogFailed, MessageIllegal, and Refused where there is no topic for it and no room for one.
        """
        draft = _draft(stored)
        draft.properties[POP_FROM] = source_of(stored.topic, stored.queue_id, stored.queue_offset)
        if self._is_last(group, stored):
            return await self._put_dead(group, stored, draft)
        draft.topic = self.place(group, stored).topic
        draft.reconsume_times += 1
        draft.properties.setdefault(FIRST_POP_TIME, str(pop_ms))
        draft.properties[ORIGIN_GROUP] = group
        self._tables.topics.ensure(draft.topic, queues=1)
        return await self._put(draft)

    async def dead(self, group: str, stored: StoredMessage) -> AppendResult:
        """Store a message among the dead letters of a group; it is durable later. Raises as `again`."""
        return await self._put_dead(group, stored, _draft(stored))

    async def sources(self, place: CopyPlace) -> set[str]:
        """Return of which messages there are copies in a place, by `source_of`; what cannot be read counts as none."""
        queue, at, found = MessageQueue(place.topic, 0), place.start, set[str]()
        while at < self._store.max_offset(queue):
            try:
                read = await self._store.read(queue, at, max_count=MOST_READ, max_bytes=MOST_READ_BYTES)
            except OSError as exc:
                log.error("event=pop_copies_not_read topic=%s offset=%d reason=%r", place.topic, at, str(exc))
                break
            found |= {
                stored.property_map[POP_FROM] for stored in records_in(read.chunks) if POP_FROM in stored.property_map
            }
            if read.next_offset <= at:
                break
            at = read.next_offset
        return found

    async def _put_dead(self, group: str, stored: StoredMessage, draft: MessageDraft) -> AppendResult:
        draft.topic = self._tables.topics.ensure(f"{DEAD_PREFIX}{group}", queues=1).name
        draft.properties.setdefault(RETRY_TOPIC, first_topic(group, stored.topic))
        draft.properties.setdefault(ORIGIN_ID, stored.message_id)
        return await self._put(draft)

    async def _put(self, draft: MessageDraft) -> AppendResult:
        placed = await put_patiently(self._store, draft.to_message())
        self._tables.stats.put(draft.topic, 0, 1, placed.size)
        return placed


def source_of(topic: str, queue_id: int, queue_offset: int) -> str:
    """Return what a copy says of the message it was made of."""
    return f"{topic} {queue_id} {queue_offset}"


def _draft(stored: StoredMessage) -> MessageDraft:
    """Return what is stored in queue 0 of another topic: body, properties and times stay."""
    return MessageDraft(
        stored.topic,
        0,
        stored.body,
        stored.property_map,
        stored.flag,
        stored.sys_flag & ~TRANSACTION_FLAGS,
        stored.born_ms,
        stored.born_host,
        stored.reconsume_times,
    )
