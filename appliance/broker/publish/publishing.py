"""What a send means: the checks of its topic, its properties, delay, half, duplicates, batches. Knows no wire.

A front door hands over the fields of the send (`SendMessageHeader`, a plain value), body and peer, and gets back
where the message is and the mark from which on it is durable. Most messages go straight from these fields into a
record. Those whose properties have a meaning to the broker (delay, timer, half), resent ones and those for a retry
topic become a `MessageDraft` first.
Source of the order of checks: RocketMQ 4.9.8 SendMessageProcessor, AbstractSendMessageProcessor.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import trio

from appliance.broker.acknowledging import SendAcknowledging
from appliance.broker.delay.recall import handle_of
from appliance.broker.intake import DELAY, HALF, Intake, MessageDraft, Space, not_durable
from appliance.broker.large_bodies import Carrier, read_in_thread
from appliance.broker.publish.dedup import DedupWindow, FirstCopy, key_of, packed
from appliance.broker.publish.questions import CORRELATION_ID, REPLY_TO, Questions, ReplyRoute
from appliance.broker.publish.send_batch import check_growth, parse_batch, shared_properties, with_shared
from appliance.broker.publish.send_properties import (
    PRIORITY,
    PropertyRules,
    bare_key,
    needs_draft,
    queue_by_priority,
    unique_key,
)
from appliance.broker.rights import owner_of
from appliance.broker.tables.clients import ClientTable, Library
from appliance.broker.tables.groups import GroupTable
from appliance.broker.tables.topics import (
    DEAD_PREFIX,
    FAQ,
    MAX_NAME,
    NOT_FOR_CLIENTS,
    RETRY_PREFIX,
    WRITE,
    Topic,
    TopicTable,
    check_topic_name,
    random_queue,
)
from appliance.requests import RequestPeer
from netstack.errors import Refused
from netstack.wire.codes import ResponseCode
from netstack.wire.message_headers import SendMessageHeader
from storage_driver.crc import crc32
from storage_driver.interfaces import MarkedAppending
from storage_driver.log.marks import reached
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import Message, Parts, decode_properties, find_property

MULTI_TAG, MULTI_TAG_FLAG = "MULTI_TAG", 0x2
TRANSACTION_FLAGS: Final = 0xC
Published = tuple[int, int, int, int, int, str | None]
"""Queue, queue offset, log offset, mark to wait for, key of the duplicate window (0: none), recall handle.

A plain tuple: one is made for each message.
"""


class SendStats(Protocol):
    """Counters of sends."""

    def put(self, topic: str, queue_id: int, count: int, size: int) -> None: ...
    def put_failed(self) -> None: ...


class PublishRules(NamedTuple):
    """Configuration of sends."""

    properties: PropertyRules
    address: str
    broker: str = ""
    writable: bool = True
    reject_transactions: bool = False
    max_message_bytes: int = 4 << 20


class PublishTables(NamedTuple):
    """State that sends read."""

    topics: TopicTable
    groups: GroupTable
    clients: ClientTable
    questions: Questions
    dedup: DedupWindow
    space: Space
    stats: SendStats


class PublishedBatch(NamedTuple):
    """Where a batch is: `places` are the log offsets of its messages, i64 each."""

    queue_id: int
    queue_offset: int
    places: bytes
    end: int
    key: int
    size: int  # bytes that wait until it is durable; 0: as many as were sent


class Batch(NamedTuple):
    """A batch taken apart: its messages, the properties that each gets, the CRCs of the bodies."""

    parts: Parts
    shared: dict[str, str]
    crcs: tuple[int, ...]


class Publishing:
    """Stores what producers send; one object per broker, for all front doors."""

    def __init__(self, rules: PublishRules, tables: PublishTables, store: MarkedAppending, intake: Intake) -> None:
        self._rules, self._tables, self._store, self._intake = rules, tables, store, intake
        self.acknowledging = SendAcknowledging(store, tables.topics)
        self._properties, self._dedup, self._space = rules.properties, tables.dedup, tables.space
        self._long_batches = trio.Lock()

    def admit(self, header: SendMessageHeader, peer: RequestPeer, library: Library) -> Topic:
        """Return the topic of a send, perhaps just made; know its producer. Raises Refused."""
        topic = self.topic_of(header, peer)
        self._space.check(topic.name)
        self._meet(header, peer, library)
        return topic

    def topic_of(self, header: SendMessageHeader, peer: RequestPeer) -> Topic:
        """Return the topic of a send, perhaps just made. Raises Refused."""
        name = header.topic
        topic = self._tables.topics.get(name)
        if not self._rules.writable and topic is not None and topic.order:
            raise Refused(ResponseCode.NO_PERMISSION, f"the broker[{self._rules.address}] sending message is forbidden")
        if topic is None or name in NOT_FOR_CLIENTS:
            topic = self._new_topic(header, peer.remote[0])
        if not topic.perm & WRITE:  # as `writable`, without a call
            raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{name}] sending message is forbidden")
        if header.queue_id >= topic.write_queues and header.queue_id >= topic.queue_count:
            asker = f"{peer.remote[0]}:{peer.remote[1]}"
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"request queueId[{header.queue_id}] is illegal, {topic} Producer: {asker}"
            )
        if topic.attributes:
            self.acknowledging.check(topic)
        return topic

    def _new_topic(self, header: SendMessageHeader, by: str) -> Topic:
        name = header.topic
        wrong = check_topic_name(name)
        if wrong:
            too_long = header.batch and len(name) > MAX_NAME
            raise Refused(ResponseCode.MESSAGE_ILLEGAL if too_long else ResponseCode.SYSTEM_ERROR, wrong)
        if name in NOT_FOR_CLIENTS:
            raise Refused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
        return self._tables.topics.for_send(
            name, template=header.default_topic, queues=header.default_queue_count, unit=header.unit_mode, by=by
        )

    def _meet(self, header: SendMessageHeader, peer: RequestPeer, library: Library) -> None:
        """Know the producer from its request: a check-back or a reply may come before its first heartbeat."""
        clients = self._tables.clients
        asks = REPLY_TO in header.properties
        if asks or not clients.produces(peer, header.producer_group):
            properties = decode_properties(header.properties) if asks else {}
            client_id, owner = properties.get(REPLY_TO), owner_of(peer)
            clients.producer_seen(peer, header.producer_group, library, client_id)
            if client_id and owner:
                question = ReplyRoute(owner, client_id, header.topic)
                self._tables.questions.asked(properties.get(CORRELATION_ID, ""), question)

    def one(
        self,
        header: SendMessageHeader,
        body: bytes,
        topic: Topic,
        peer: RequestPeer,
        *,
        answered: bool,
        own_key: bool = False,
    ) -> Published:
        """Store one message. What is not answered is not sent again, so it is not looked for among duplicates.

        `own_key`: each send of the client has a UNIQ_KEY of its own.
        Raises Refused, and Full, LogFailed, MessageIllegal and Busy of the store.
        """
        text = header.properties
        bare, crc, key = bare_key(text), crc32(body), 0
        if answered and self._dedup.enabled:
            unique = unique_key(text) if bare is None else bare
            key = key_of(peer.born_host[:-4], topic.name, unique, crc) if unique else 0
        if key and (sent := self._dedup.retried(key, topic.name, peer, own_key=own_key)) is not None:
            return sent.queue_id, sent.queue_offset, sent.log_offset, sent.end, key, None
        queue_id = header.queue_id if header.queue_id >= 0 else random_queue(topic.write_queues)
        recall = None
        if (bare is None and needs_draft(text)) or topic.name.startswith(RETRY_PREFIX):
            draft = self._draft(header, topic, queue_id, body, peer)
            queue_id = draft.queue_id if PRIORITY in draft.properties else queue_id
            placed = self._intake.put(draft)
            recall = handle_of(draft, topic.name, self._rules.broker)
        else:
            stored = self._properties.stored(text) if bare is None else self._properties.stored_bare(bare)
            flags = header.flag, header.sys_flag | MULTI_TAG_FLAG if topic.filter_type == MULTI_TAG else header.sys_flag
            times = header.reconsume_times
            message = Message(topic.name, queue_id, body, stored, *flags, header.born_ms, peer.born_host, times)
            placed = self._store.put(message, crc=crc)
        queue_offset, log_offset, end = placed.queue_offset, placed.log_offset, placed.end
        if key:
            self._dedup.remember(key, (queue_id, queue_offset, log_offset, end, peer, self._dedup.now_s, b"", 0))
        self._tables.stats.put(topic.name, queue_id, 1, placed.size)
        return queue_id, queue_offset, log_offset, end, key, recall

    def _draft(
        self, header: SendMessageHeader, topic: Topic, queue_id: int, body: bytes, peer: RequestPeer
    ) -> MessageDraft:
        """Return a message the broker looks at as a whole. Raises Refused."""
        draft = MessageDraft(
            topic.name,
            queue_id,
            body,
            decode_properties(header.properties),
            header.flag,
            header.sys_flag | MULTI_TAG_FLAG if topic.filter_type == MULTI_TAG else header.sys_flag,
            header.born_ms,
            peer.born_host,
            header.reconsume_times,
            owner=owner_of(peer),
        )
        self._properties.complete(draft.properties)
        draft.queue_id = queue_by_priority(draft.properties, queue_id, topic.write_queues)
        if draft.topic.startswith(RETRY_PREFIX):
            self._redirect_dead(draft, header)
        if draft.properties.get(HALF, "").lower() == "true" and self._rules.reject_transactions:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._rules.address}] sending transaction message is forbidden",
            )
        return draft

    def _redirect_dead(self, draft: MessageDraft, header: SendMessageHeader) -> None:
        """Send what was retried too often to the dead letters. Raises Refused for an unknown group."""
        name = draft.topic.removeprefix(RETRY_PREFIX)
        group = self._tables.groups.find(name)
        if group is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name} {FAQ}")
        most = group.retry_max_times
        if header.max_reconsume_times is not None:
            most = header.max_reconsume_times
        if header.reconsume_times >= most:
            draft.topic, draft.queue_id = self._tables.topics.ensure(f"{DEAD_PREFIX}{name}", queues=1).name, 0
            draft.properties.pop(DELAY, None)

    def batch(
        self, header: SendMessageHeader, body: bytes, topic: Topic, peer: RequestPeer, *, answered: bool
    ) -> PublishedBatch:
        """Store several messages in one queue, acknowledged as a whole. Raises as `one` does."""
        batch = self._parsed(header, body)
        (flags, _, owns), crcs = batch.parts, batch.crcs
        looked_for = answered and self._dedup.enabled
        key = self._item_key(owns[0], crcs[0], topic.name, peer) if looked_for else 0
        whole = hash((flags, b"".join(owns), crcs)) if key else 0
        if key and (sent := self._batch_sent(zip(owns, crcs, strict=True), key, topic.name, peer, whole)) is not None:
            places = packed((sent.log_offset,)) + sent.more
            return PublishedBatch(sent.queue_id, sent.queue_offset, places, sent.end, key, 0)
        queue_id, queue_offset, offsets, end = self._store_batch(header, self._completed(batch), topic, peer)
        places = packed(offsets)
        if key:
            sent = FirstCopy(queue_id, queue_offset, offsets[0], end, peer, self._dedup.now_s, places[8:], whole)
            self._dedup.remember(key, sent)
        return PublishedBatch(queue_id, queue_offset, places, end, key, _held_bytes(offsets, end))

    async def long_batch(
        self, header: SendMessageHeader, sent: Carrier, topic: Topic, peer: RequestPeer
    ) -> PublishedBatch:
        """Store a batch of thousands and wait until it is durable; one at a time: others continue in between.

        A thread takes it apart; its body is gone then. It is not looked for among duplicates. Raises as `one` does,
        Refused also when the topic is gone meanwhile or the disk failed before the batch was durable.
        """
        async with self._long_batches:
            batch = await read_in_thread(lambda body: self._completed(self._parsed(header, body)), sent)
            topic = self.topic_of(header, peer) if self._tables.topics.get(topic.name) is not topic else topic
            queue_id, queue_offset, offsets, end = self._store_batch(header, batch, topic, peer)
            del batch  # tens of MiB
            reason = await reached(self.acknowledging.when(topic), end)
        if reason is not None:
            self.lost(0, end)
            raise not_durable(reason)
        return PublishedBatch(queue_id, queue_offset, packed(offsets), end, 0, _held_bytes(offsets, end))

    def _parsed(self, header: SendMessageHeader, body: bytes) -> Batch:
        """Return the messages of a batch as they were sent. Raises Refused."""
        if header.sys_flag & TRANSACTION_FLAGS or needs_draft(header.properties):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL, "the message is illegal: a batch cannot contain delayed or half messages"
            )
        parts, shared = parse_batch(body, self._rules.max_message_bytes), shared_properties(header.properties)
        if shared:
            check_growth(body, len(parts.flags), header.properties, self._rules.max_message_bytes)
        return Batch(parts, shared, tuple(map(crc32, parts.bodies)))

    def _completed(self, batch: Batch) -> Batch:
        """Return the batch with the properties that are stored."""
        (flags, bodies, owns), shared, _ = batch
        stored = self._properties.stored_all([with_shared(own, shared) for own in owns] if shared else owns)
        return batch._replace(parts=Parts(flags, bodies, stored))

    def _store_batch(
        self, header: SendMessageHeader, batch: Batch, topic: Topic, peer: RequestPeer
    ) -> tuple[int, int, Sequence[int], int]:
        """Return the queue, the first queue offset, the log offsets and the mark to wait for. Raises as `one` does."""
        queue_id = header.queue_id if header.queue_id >= 0 else random_queue(topic.write_queues)
        sys_flag = header.sys_flag | MULTI_TAG_FLAG if topic.filter_type == MULTI_TAG else header.sys_flag
        times = header.reconsume_times
        alike = Message(topic.name, queue_id, b"", b"", 0, sys_flag, header.born_ms, peer.born_host, times)
        queue_offset, offsets, end, _ = self._store.put_batch(alike, batch.parts, crcs=batch.crcs)
        self._tables.stats.put(topic.name, queue_id, len(offsets), end - offsets[0])
        return queue_id, queue_offset, offsets, end

    def lost(self, key: int, end: int) -> None:
        """What was published did not become durable: it is no first copy of anything."""
        self._dedup.forget(key, end)
        self._tables.stats.put_failed()

    def refused(self, topic: Topic | None, exc: BaseException) -> None:
        """Count a send that was refused, and why, if space was missing."""
        self._tables.stats.put_failed()
        if topic is not None:
            from_it = exc.__cause__ or exc.__context__  # a compiled `raise … from` sets the context alone
            self._space.note(topic.name, from_it if isinstance(exc, Refused) else exc)

    def _batch_sent(
        self, items: Iterable[tuple[bytes, int]], first: int, topic: str, peer: RequestPeer, whole: int
    ) -> FirstCopy | None:
        """Return what was stored of a batch; `items` are properties and body CRC of each message."""
        if self._dedup.find(first, topic, peer) is None:
            return None
        keys = [self._item_key(properties, crc, topic, peer) for properties, crc in items]
        return self._dedup.retried_batch(keys, topic, peer, whole)

    def _item_key(self, properties: bytes, crc: int, topic: str, peer: RequestPeer) -> int:
        unique = find_property(properties, b"UNIQ_KEY")
        return key_of(peer.born_host[:-4], topic, unique.decode("utf-8", "replace"), crc) if unique else 0


def _held_bytes(offsets: Sequence[int], end: int) -> int:
    """Return what waits for the sync: small messages are stored as larger ones, and each gets an id."""
    return end - offsets[0] + 32 * len(offsets)
