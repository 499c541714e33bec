"""Transactions: a half message waits unseen until its producer commits or rolls it back, or is asked about it.

Commit stores the message and then the op record that closes the half, in one pass; nothing is committed twice while the
box runs. Source: RocketMQ 4.9.8 EndTransactionProcessor, TransactionalMessageServiceImpl.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from appliance.broker.acknowledging import SendAcknowledging
from appliance.broker.delay.redelivery import (
    REAL_TOPIC,
    MakeTopic,
    draft_of,
    park,
    records_in,
    unpark,
    without_topic,
)
from appliance.broker.intake import DELAY, HALF, MessageDraft, not_durable, refusals
from appliance.broker.rights import NOBODY, Perm, Signer, Signing, may, may_touch, owner_of
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.topics import HALF_TOPIC, OP_TOPIC
from appliance.broker.transactions.half_table import OPEN, HalfTable
from appliance.requests import Answer, AsyncReply, DeferredReply, Handle, Reply, RequestPeer
from netstack.errors import Refused
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.headers import EndTransactionHeader
from storage_driver.errors import StorageError
from storage_driver.interfaces import Messages
from storage_driver.log.marks import When, reached
from storage_driver.named_tuple import NamedTuple
from storage_driver.reading import ReadRequest, ReadResult
from storage_driver.record import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    Message,
    MessageQueue,
    StoredMessage,
    encode_properties,
)

log = logging.getLogger("appliance.broker")

GROUP = "CID_RMQ_SYS_TRANS"
HALF_QUEUE, OP_QUEUE = MessageQueue(HALF_TOPIC, 0), MessageQueue(OP_TOPIC, 0)
CHECK_TIMES, IMMUNITY, PREPARED_OFFSET = (
    "TRANSACTION_CHECK_TIMES",
    "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "TRAN_PREPARED_QUEUE_OFFSET",
)
PRODUCER_GROUP, UNIQUE_KEY = "PGROUP", "UNIQ_KEY"
OWNER = "RBX_OWNER"  # of a half message: the key that sent it; nobody is given this property
OP_TAG = encode_properties({"TAGS": "d"})
ONE_RECORD_BYTES = 32 << 20
DISCARDED_REMEMBERED, VERDICTS_REMEMBERED, LONGEST_LEVEL = 1024, 4096, 9
VERDICTS = {TRANSACTION_COMMIT: "committed", TRANSACTION_ROLLBACK: "rolled back"}


class TransactionRules(NamedTuple):
    """What transactions need of the configuration."""

    store_host: bytes
    timeout_ms: int = 6_000
    most_checks: int = 15
    check_s: float = 60.0
    oldest_ms: int = 72 * 3_600_000  # kept no longer than the log itself


def half_divert(draft: MessageDraft) -> None:
    """Let a draft with TRAN_MSG rest as a half message; its delay, if it has one, is ignored.

    A resent message with a delay is none: old clients resend transactional messages to their retry topic so.
    """
    if draft.properties.get(HALF, "").lower() != "true":
        return
    level = draft.properties.get(DELAY, "")
    if draft.reconsume_times > 0 and level.isdecimal() and len(level) <= LONGEST_LEVEL and int(level):
        return
    draft.properties.pop(DELAY, None)
    draft.properties.pop(OWNER, None)  # no client says whose it is
    if draft.owner:
        draft.properties[OWNER] = draft.owner
    park(draft, HALF_TOPIC, 0)
    draft.sys_flag &= ~TRANSACTION_MASK


class TransactionEnds:
    """Ends transactions; `table` says which halves are still open."""

    def __init__(
        self,
        rules: TransactionRules,
        store: Messages,
        offsets: OffsetTable,
        *,
        now_ms: Callable[[], int],
        put_stat: Callable[[str, int, int, int], None],
        acknowledging: SendAcknowledging,
        make_topic: MakeTopic = without_topic,
    ) -> None:
        self._acknowledging, self._make_topic = acknowledging, make_topic
        self.rules, self.store, self._offsets, self._now_ms, self._put_stat = rules, store, offsets, now_ms, put_stat
        self.table = HalfTable(self._stored(HALF_QUEUE), self._stored(OP_QUEUE))
        self.discarded: deque[int] = deque(maxlen=DISCARDED_REMEMBERED)  # given up, yet a late commit still counts
        self._owed: list[int] = []  # decided halves whose op record could not be stored
        self._verdicts: dict[int, int] = {}  # of the last halves that were decided, by what all copies of one share

    def handlers(self) -> dict[int, Handle]:
        """Return request code → handler."""
        return {RequestCode.END_TRANSACTION: self.handle_end}

    def handle_end(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """END_TRANSACTION (37): commit or roll back a half message, answer once that is durable. Raises Refused."""
        header = EndTransactionHeader.from_ext(request.ext)
        if header.verdict == 0:
            return Reply(request.reply())
        if header.verdict not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            text = f"commitOrRollback is {header.verdict}, expected 8, 12 or 0"
            raise Refused(ResponseCode.SYSTEM_ERROR, text)
        found = self.store.read_hot(ReadRequest(HALF_QUEUE, header.queue_offset, 1, ONE_RECORD_BYTES))
        if found is None:
            return AsyncReply(partial(self._end_cold, request, header, peer.signer))
        mark, when = self._end(header, _checked(header, _only(found), peer.signer))
        return DeferredReply(when, mark, request.reply(), partial(_not_durable, request))

    async def _end_cold(
        self, request: RemotingCommand, header: EndTransactionHeader, signer: Signer | None
    ) -> RemotingCommand:
        await self.end(header, signer)
        return request.reply()

    async def end(self, header: EndTransactionHeader, signer: Signer | None) -> None:
        """Commit or roll back a half message; return when that is durable. Raises Refused."""
        found = await self.store.read(HALF_QUEUE, header.queue_offset, max_count=1, max_bytes=ONE_RECORD_BYTES)
        mark, when = self._end(header, _checked(header, _only(found), signer))
        reason = await reached(when, mark)
        if reason is not None:
            raise not_durable(reason)

    def _end(self, header: EndTransactionHeader, half: StoredMessage) -> tuple[int, When]:
        """Decide a half as its producer says; return the mark at which that is durable, and who tells. Raises Refused.

        The topic of the message decides on how many disks that is.
        """
        topic = self._acknowledging.topic_of(half.property_map.get(REAL_TOPIC, ""))
        return self._decided(header, half), self._acknowledging.when(topic)

    def _decided(self, header: EndTransactionHeader, half: StoredMessage) -> int:
        newest, shared = self.table.newest(half.queue_offset), _shared(half)
        if self.table.state(newest) != OPEN and newest not in self.discarded:
            earlier = self._verdicts.get(shared, header.verdict)
            if earlier != header.verdict:  # by its producer, or by another that was asked
                text = f"the transaction was {VERDICTS[earlier]} before, and stays so"
                raise Refused(ResponseCode.SYSTEM_ERROR, text)
            return self.store.end  # the answer to an earlier, equal request is on its way to the disk
        with refusals():
            if header.verdict == TRANSACTION_COMMIT:
                self._commit(half)
            if newest in self.discarded:
                self.discarded.remove(newest)  # decided now: a repeated request commits nothing more
            self._remember(shared, header.verdict)
            return self.close(newest)

    def _remember(self, shared: int, verdict: int) -> None:
        if len(self._verdicts) >= VERDICTS_REMEMBERED:
            del self._verdicts[next(iter(self._verdicts))]
        self._verdicts[shared] = verdict

    def _commit(self, half: StoredMessage) -> None:
        draft = draft_of(half)
        draft.properties.pop(OWNER, None)
        if not unpark(draft):
            raise Refused(ResponseCode.SYSTEM_ERROR, "the half message does not name its topic and queue")
        draft.sys_flag = draft.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
        draft.prepared_offset = half.log_offset
        self._make_topic(draft.topic, draft.queue_id)
        placed = self.store.put(draft.to_message(), own=True)  # acknowledged, though a limit is lower since
        self._put_stat(draft.topic, draft.queue_id, 1, placed.size)

    def close(self, half: int) -> int:
        """Write the op record of a half; return the mark at which it is durable.

        If it cannot be stored now it is owed: the half is decided all the same, so that it is not committed twice.
        """
        self.table.decide(half)
        try:
            return self._put_op(half)
        except StorageError:
            self._owed.append(half)
            raise

    def pay_owed(self) -> None:
        """Write the op records that could not be stored when they were due."""
        while self._owed:
            self._put_op(self._owed[-1])
            self._owed.pop()

    def _put_op(self, half: int) -> int:
        body, born_ms = str(half).encode(), self._now_ms()
        op = Message(OP_TOPIC, 0, body, OP_TAG, 0, 0, born_ms, self.rules.store_host)
        placed = self.store.put(op, own=True)
        self.store.when_committed(placed.end, partial(self._op_written, half, placed.queue_offset))
        return placed.end

    def _op_written(self, half: int, op: int, failure: str | None) -> None:
        if failure is None:
            self.table.settle(half, op)
        else:
            self.table.reopen(half)

    def advance(self) -> None:
        """Move the offsets of the half and op queues past what is durably decided."""
        self.table.advance()
        with suppress(Refused):  # a full table: the next start reads the two queues from their first message
            self._offsets.commit(GROUP, HALF_TOPIC, 0, self.table.base)
            self._offsets.commit(GROUP, OP_TOPIC, 0, self.table.op_base)

    async def recover(self) -> None:
        """Learn from the op queue which halves were decided before this start."""
        op, end = self.table.op_base, self.store.max_offset(OP_QUEUE)
        while op < end:
            found = await self.store.read(OP_QUEUE, op, max_count=1024, max_bytes=1 << 20)
            for half, decided in _decisions(found.chunks):
                self.table.settle(half, decided)
            if found.next_offset <= op:
                break
            op = found.next_offset
        self.advance()

    def _stored(self, queue: MessageQueue) -> int:
        stored, low = self._offsets.get(GROUP, queue.topic, 0), self.store.min_offset(queue)
        if stored > self.store.max_offset(queue):  # else what comes would count as decided
            log.error("event=transaction_offset_beyond_end topic=%s offset=%d", queue.topic, stored)
            return max(low, 0)
        if queue == HALF_QUEUE and 0 <= stored < low:
            log.error("event=half_messages_lost from=%d to=%d reason='the log no longer has them'", stored, low)
        return max(stored, low, 0)


def _shared(half: StoredMessage) -> int:
    properties = half.property_map
    return hash((properties.get(REAL_TOPIC), properties.get(UNIQUE_KEY), properties.get(OWNER), half.born_ms))


def _only(found: ReadResult) -> StoredMessage | None:
    return next(records_in(found.chunks), None)


def ends(peer: Signing, half: Mapping[str, str]) -> bool:
    """Return whether a connection is to be asked about a half of these properties: one of the same key.

    What no key sent may be ended by all who may send to its topic.
    """
    owner, own = half.get(OWNER, NOBODY), owner_of(peer)
    return own in (owner, NOBODY) if owner else may(peer.signer, half.get(REAL_TOPIC, ""), Perm.PUB)


def _checked(header: EndTransactionHeader, half: StoredMessage | None, signer: Signer | None) -> StoredMessage:
    """Return the half if it is the one the producer means, and the key's. Raises Refused, as the reference words it."""
    if half is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
    properties = half.property_map
    if not (may_touch(signer, properties.get(OWNER, NOBODY)) and may(signer, properties.get(REAL_TOPIC, ""), Perm.PUB)):
        text = f"the half message at queue offset {half.queue_offset} was sent with another key"
        raise Refused(ResponseCode.NO_PERMISSION, f"{text}: use that key or an admin key")
    group = properties.get(PRODUCER_GROUP)
    if group != header.producer_group:
        text = f"The producer group wrong: the half message belongs to {group}"
        raise Refused(ResponseCode.SYSTEM_ERROR, text)
    if half.queue_offset != header.queue_offset:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
    if half.log_offset != header.log_offset:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")
    return half


def _not_durable(request: RemotingCommand, reason: str) -> RemotingCommand:
    refused = not_durable(reason)
    return request.reply(refused.code, f"{refused.remark}, the decision is not durable")


def _decisions(chunks: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Yield the queue offset of each half that op messages call decided, and that of its op message."""
    for stored in records_in(chunks):
        for text in stored.body.decode("ascii", "replace").split(","):
            if text.isdecimal():
                yield int(text), stored.queue_offset
