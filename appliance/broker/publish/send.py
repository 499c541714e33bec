"""SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320): check, store, answer once durable.

Most messages go straight from the header's fields into a record. Those whose properties have a meaning to the broker
(delay, timer, half), resent ones and those for a retry topic become a `Draft` first.
Source of the order of checks: RocketMQ 4.9.8 SendMessageProcessor, AbstractSendMessageProcessor.
"""

from collections.abc import Iterable
from functools import partial
from typing import Protocol
from zlib import crc32

import trio

from appliance.broker.delay.recall import handle_of
from appliance.broker.intake import DELAY, HALF, Draft, Intake, Space, not_durable, refusal
from appliance.broker.publish.dedup import DedupWindow, Sent, key_of, packed
from appliance.broker.publish.questions import CORRELATION_ID, REPLY_TO, Question, Questions
from appliance.broker.publish.send_batch import check_growth, is_long, parse_batch, shared_properties, with_shared
from appliance.broker.publish.send_properties import PropertyRules, bare_key, needs_draft, unique_key
from appliance.broker.rights import owner_of
from appliance.broker.tables.clients import ClientTable
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
from appliance.requests import Answer, Handle, Held, Later, Peer, RefusedWith
from netstack.codes import RequestCode, ResponseCode
from netstack.command import ONEWAY, RemotingCommand
from netstack.errors import Refused
from netstack.headers import SendMessageHeader, SendMessageReply
from netstack.send_reply import SendReplies
from storage_driver.errors import Busy, Full, LogFailed, MessageIllegal
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import Message, Parts, decode_properties, find_property, message_id
from storage_driver.store import MessageStore

SEND = RequestCode.SEND_MESSAGE_V2
SEND_BATCH = RequestCode.SEND_BATCH_MESSAGE
RECONSUME_SINCE_VERSION = 121  # V3_4_9: from here on a client's maxReconsumeTimes counts
MULTI_TAG, MULTI_TAG_FLAG = "MULTI_TAG", 0x2
TRANSACTION_FLAGS = 0xC
LARGEST_REMEMBERED = 4096  # messages of a batch: the window keeps the place of each


class PutStats(Protocol):
    """What sends count."""

    def put(self, topic: str, queue_id: int, count: int, size: int) -> None: ...
    def put_failed(self) -> None: ...


class SendRules(NamedTuple):
    """What sends need of the configuration."""

    properties: PropertyRules
    store_host: bytes
    address: str
    broker: str = ""
    writable: bool = True
    reject_transactions: bool = False
    max_message_bytes: int = 4 << 20


class SendTables(NamedTuple):
    """What sends look at."""

    topics: TopicTable
    groups: GroupTable
    clients: ClientTable
    questions: Questions
    dedup: DedupWindow
    space: Space
    stats: PutStats


class Sends:
    """Handles sends; one object per broker."""

    def __init__(self, rules: SendRules, tables: SendTables, store: MessageStore, intake: Intake) -> None:
        self._rules, self._tables, self._store, self._intake = rules, tables, store, intake
        self._properties, self._dedup, self._space = rules.properties, tables.dedup, tables.space
        self._long_batches = trio.Lock()
        self._when_durable = store.when_committed  # one and the same for all answers
        self._region = rules.properties.region, rules.properties.trace_on
        self._replies = SendReplies(self._region[0], trace_on=self._region[1])
        self._ext = {"MSG_REGION": self._region[0], "TRACE_ON": "true" if self._region[1] else "false"}
        self._id_prefix = message_id(rules.store_host, 0)[:-16].encode()

    def handlers(self) -> dict[int, Handle]:
        """Return request code -> handler."""
        codes = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
        return dict.fromkeys(codes, self.handle)

    def handle(self, request: RemotingCommand, peer: Peer) -> Answer:
        """Store what was sent, answer once it is durable. Raises Refused with the fields every send reply has."""
        topic: Topic | None = None
        try:
            header = request.send or SendMessageHeader.from_ext(request.ext)
            topic = self.topic_of(header, peer)
            self._space.check(topic.name)
            self._meet(header, request, peer)
            if header.batch or request.code == SEND_BATCH:
                if is_long(request.body):
                    return Later(partial(self._long_batch, header, topic, request, peer))
                return self._batch(header, topic, request, peer)
            return self._single(header, topic, request, peer)
        except (Refused, Full, LogFailed, MessageIllegal, Busy) as exc:
            raise self._refused(exc, topic) from exc

    def _refused(self, exc: Refused | Full | LogFailed | MessageIllegal | Busy, topic: Topic | None) -> RefusedWith:
        """Return what the sender is told. Not a local of `handle`, which its traceback would keep with the body."""
        self._tables.stats.put_failed()
        refused = exc if isinstance(exc, Refused) else refusal(exc)
        if topic is not None:
            self._space.note(topic.name, exc.__cause__ if isinstance(exc, Refused) else exc)
        return RefusedWith(refused.code, refused.remark, self._ext)

    def topic_of(self, header: SendMessageHeader, peer: Peer) -> Topic:
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

    def _meet(self, header: SendMessageHeader, request: RemotingCommand, peer: Peer) -> None:
        """Know the producer from its request: a check-back or a reply may come before its first heartbeat."""
        clients = self._tables.clients
        asks = REPLY_TO in header.properties
        if asks or not clients.produces(peer, header.producer_group):
            properties = decode_properties(header.properties) if asks else {}
            client_id, owner = properties.get(REPLY_TO), owner_of(peer)
            clients.producer_seen(peer, header.producer_group, request, client_id)
            if client_id and owner:
                question = Question(owner, client_id, header.topic)
                self._tables.questions.asked(properties.get(CORRELATION_ID, ""), question)

    def _single(self, header: SendMessageHeader, topic: Topic, request: RemotingCommand, peer: Peer) -> Answer:
        text, body = header.properties, request.body
        bare, crc = bare_key(text), crc32(body)
        key = 0
        if self._dedup.enabled and not request.flag & ONEWAY:  # which nobody sends again
            unique = unique_key(text) if bare is None else bare
            key = key_of(peer.born_host[:-4], topic.name, unique, crc) if unique else 0
        if key and (sent := self._dedup.retried(key, topic.name, peer)) is not None:
            message_id = self._id_of(sent.log_offset)
            return self._held(request, sent.queue_id, sent.queue_offset, message_id, sent.end, key=key)
        queue_id = header.queue_id if header.queue_id >= 0 else random_queue(topic.write_queues)
        if (bare is None and needs_draft(text)) or topic.name.startswith(RETRY_PREFIX):
            draft = self._draft(header, topic, queue_id, request, peer)
            placed = self._intake.put(draft)
            recall = handle_of(draft, topic.name, self._rules.broker)
        else:
            recall, times = None, header.reconsume_times
            stored = self._properties.stored(text) if bare is None else self._properties.stored_bare(bare)
            flags = header.flag, header.sys_flag | MULTI_TAG_FLAG if topic.filter_type == MULTI_TAG else header.sys_flag
            message = Message(topic.name, queue_id, body, stored, *flags, header.born_ms, peer.born_host, times)
            placed = self._store.put(message, crc=crc)
        queue_offset, log_offset, size, end, _ = placed
        if key:
            self._dedup.remember(key, (queue_id, queue_offset, log_offset, end, peer, self._dedup.now_s, b"", 0))
        self._tables.stats.put(topic.name, queue_id, 1, size)
        message_id = self._id_of(log_offset)
        held = self._held(request, queue_id, queue_offset, message_id, end, key=key)
        if recall:
            reply = SendMessageReply(message_id.decode(), queue_id, queue_offset, None, *self._region)
            held.response = request.reply(ext={**reply.to_ext(), "recallHandle": recall})
        return held

    def _draft(
        self, header: SendMessageHeader, topic: Topic, queue_id: int, request: RemotingCommand, peer: Peer
    ) -> Draft:
        """Return a message the broker looks at as a whole. Raises Refused."""
        draft = Draft(
            topic.name,
            queue_id,
            request.body,
            decode_properties(header.properties),
            header.flag,
            header.sys_flag | MULTI_TAG_FLAG if topic.filter_type == MULTI_TAG else header.sys_flag,
            header.born_ms,
            peer.born_host,
            header.reconsume_times,
            owner=owner_of(peer),
        )
        self._properties.complete(draft.properties)
        if draft.topic.startswith(RETRY_PREFIX):
            self._redirect_dead(draft, header, request.version)
        if draft.properties.get(HALF, "").lower() == "true" and self._rules.reject_transactions:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._rules.address}] sending transaction message is forbidden",
            )
        return draft

    def _redirect_dead(self, draft: Draft, header: SendMessageHeader, version: int) -> None:
        """Send what was retried too often to the dead letters. Raises Refused for an unknown group."""
        name = draft.topic.removeprefix(RETRY_PREFIX)
        group = self._tables.groups.find(name)
        if group is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name} {FAQ}")
        most = group.retry_max_times
        if header.max_reconsume_times is not None and version >= RECONSUME_SINCE_VERSION:
            most = header.max_reconsume_times
        if header.reconsume_times >= most:
            draft.topic, draft.queue_id = self._tables.topics.ensure(f"{DEAD_PREFIX}{name}", queues=1).name, 0
            draft.properties.pop(DELAY, None)

    async def _long_batch(
        self, header: SendMessageHeader, topic: Topic, request: RemotingCommand, peer: Peer
    ) -> RemotingCommand | bytes:
        """Store a batch of thousands once the one before is durable: others go on in between. Raises Refused."""
        async with self._long_batches:
            try:
                held = self._batch(header, topic, request, peer)
            except (Refused, Full, LogFailed, MessageIllegal, Busy) as exc:
                raise self._refused(exc, topic) from exc
            durable, reasons = trio.Event(), list[str | None]()

            def wake(reason: str | None) -> None:
                reasons.append(reason)
                durable.set()

            held.when(held.mark, wake)
            await durable.wait()
        return held.response if reasons[0] is None else held.failed(reasons[0])

    def _batch(self, header: SendMessageHeader, topic: Topic, request: RemotingCommand, peer: Peer) -> Held:
        """Store several messages in one queue, acknowledged as a whole. Raises Refused."""
        if header.sys_flag & TRANSACTION_FLAGS or needs_draft(header.properties):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL, "the message is illegal: no batch may be delayed or a half message"
            )
        flags, bodies, owns = parse_batch(request.body, self._rules.max_message_bytes)
        shared = shared_properties(header.properties)
        if shared:
            check_growth(request.body, len(flags), header.properties, self._rules.max_message_bytes)
        looked_for = self._dedup.enabled and not request.is_oneway and len(flags) <= LARGEST_REMEMBERED
        crcs = tuple(map(crc32, bodies))
        key = self._item_key(owns[0], crcs[0], topic.name, peer) if looked_for else 0
        whole = hash((flags, b"".join(owns), crcs)) if key else 0
        if key and (sent := self._batch_sent(zip(owns, crcs, strict=True), key, topic.name, peer, whole)) is not None:
            ids = self._ids_of(packed((sent.log_offset,)) + sent.more)
            return self._held(request, sent.queue_id, sent.queue_offset, ids, sent.end, key=key)
        queue_id = header.queue_id if header.queue_id >= 0 else random_queue(topic.write_queues)
        sys_flag = header.sys_flag | MULTI_TAG_FLAG if topic.filter_type == MULTI_TAG else header.sys_flag
        born_host = peer.born_host
        alike = Message(topic.name, queue_id, b"", b"", 0, sys_flag, header.born_ms, born_host, header.reconsume_times)
        stored = self._properties.stored_all([with_shared(own, shared) for own in owns] if shared else owns)
        queue_offset, offsets, end, _ = self._store.put_batch(alike, Parts(flags, bodies, stored), crcs=crcs)
        places = packed(offsets)
        if key:
            sent = Sent(queue_id, queue_offset, offsets[0], end, peer, self._dedup.now_s, places[8:], whole)
            self._dedup.remember(key, sent)
        self._tables.stats.put(topic.name, queue_id, len(offsets), end - offsets[0])
        held = self._held(request, queue_id, queue_offset, self._ids_of(places), end, key=key)
        held.size = end - offsets[0] + 4 * len(places)  # small messages are stored as larger ones, and each gets an id
        return held

    def _batch_sent(
        self, items: Iterable[tuple[bytes, int]], first: int, topic: str, peer: Peer, whole: int
    ) -> Sent | None:
        """Return what was stored of a batch; `items` are properties and body CRC of each message."""
        if self._dedup.find(first, topic, peer) is None:
            return None
        keys = [self._item_key(properties, crc, topic, peer) for properties, crc in items]
        return self._dedup.retried_batch(keys, topic, peer, whole)

    def _item_key(self, properties: bytes, crc: int, topic: str, peer: Peer) -> int:
        unique = find_property(properties, b"UNIQ_KEY")
        return key_of(peer.born_host[:-4], topic, unique.decode("utf-8", "replace"), crc) if unique else 0

    def _held(
        self, request: RemotingCommand, queue_id: int, queue_offset: int, message_ids: bytes, end: int, *, key: int
    ) -> Held:
        return Held(
            self._when_durable,
            end,
            self._replies.encoded(request, message_ids, queue_id, queue_offset),
            partial(self._lost, request.opaque, request.serialize_type, key, end),
        )

    def _lost(self, opaque: int, serialize_type: int, key: int, end: int, reason: str) -> RemotingCommand:
        """Return what the sender is told. Not from the request, which would keep its body until the sync."""
        self._dedup.forget(key, end)
        self._tables.stats.put_failed()
        refused = not_durable(reason)
        request = RemotingCommand(SEND, opaque, serialize_type=serialize_type)
        return request.reply(refused.code, refused.remark, self._ext)

    def _id_of(self, log_offset: int) -> bytes:
        return b"%b%016X" % (self._id_prefix, log_offset)

    def _ids_of(self, places: bytes) -> bytes:
        texts = places.hex(",", 8).upper().encode()
        return self._id_prefix + texts.replace(b",", b"," + self._id_prefix)
