"""CONSUMER_SEND_MSG_BACK (36): a failed message is delivered again later, or becomes a dead letter.

Source: RocketMQ 4.9.8 AbstractSendMessageProcessor.consumerSendMsgBack, SendMessageProcessor.asyncConsumerSendMsgBack.
"""

from functools import partial
from typing import Protocol

from appliance.broker.intake import DELAY, Intake, MessageDraft
from appliance.broker.rights import Perm, Signer, may
from appliance.broker.tables.groups import Group, GroupTable
from appliance.broker.tables.topics import DEAD_PREFIX, FAQ, RETRY_PREFIX, TopicTable, random_queue
from appliance.requests import Answer, AsyncReply, Handle, RequestPeer
from netstack.errors import Refused
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.headers import SendBackHeader
from storage_driver.errors import LogFailed, RecordDamaged
from storage_driver.interfaces import MarkedReading
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import StoredMessage, decode_record

RECONSUME_SINCE_VERSION = 121  # V3_4_9
FIRST_RETRY_LEVEL = 3
RETRY_TOPIC, ORIGIN_ID = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"


class SendBackStats(Protocol):
    """Counters of send-backs."""

    def sent_back(self, group: str, topic: str) -> None: ...


class SendBackTables(NamedTuple):
    """State that send-backs read."""

    topics: TopicTable
    groups: GroupTable
    stats: SendBackStats


class SendBacks:
    """Handles send-backs; one object per broker."""

    def __init__(
        self, tables: SendBackTables, store: MarkedReading, intake: Intake, *, address: str, writable: bool = True
    ) -> None:
        self._tables, self._store, self._intake = tables, store, intake
        self._address, self._writable = address, writable

    def handlers(self) -> dict[int, Handle]:
        """Return request code -> handler."""
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.handle}

    def handle(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """Store the message again, only for its group. Raises Refused."""
        header = SendBackHeader.from_ext(request.ext)
        group = self._tables.groups.find(header.group, peer.remote[0])
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {header.group} {FAQ}"
            )
        if not self._writable:
            raise Refused(ResponseCode.NO_PERMISSION, f"the broker[{self._address}] sending message is forbidden")
        return AsyncReply(partial(self._send_back, request, header, group, peer.signer))

    async def _send_back(
        self, request: RemotingCommand, header: SendBackHeader, group: Group, signer: Signer | None
    ) -> RemotingCommand:
        if group.retry_queues <= 0:
            return request.reply()
        retry = self._tables.topics.ensure(
            f"{RETRY_PREFIX}{group.name}", queues=group.retry_queues, unit=header.unit_mode
        )
        if not retry.writable:
            raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{retry.name}] sending message is forbidden")
        stored = await self._message_at(header.log_offset, signer)
        draft = _copy(stored)
        most = group.retry_max_times
        if header.max_reconsume_times is not None and request.version >= RECONSUME_SINCE_VERSION:
            most = header.max_reconsume_times
        if stored.reconsume_times >= most or header.delay_level < 0:
            draft.topic = self._tables.topics.ensure(f"{DEAD_PREFIX}{group.name}", queues=1).name
            draft.queue_id = 0
        else:
            draft.topic, draft.queue_id = retry.name, random_queue(group.retry_queues)
            level = header.delay_level or FIRST_RETRY_LEVEL + max(stored.reconsume_times, 0)
            draft.properties[DELAY] = str(level)
        placed = self._intake.put(draft, again=True)
        await self._wait_durable(placed.end)
        named = draft.properties[RETRY_TOPIC]  # by the sender, who may have made it up
        self._tables.stats.sent_back(group.name, named if self._tables.topics.get(named) else stored.topic)
        return request.reply()

    async def _message_at(self, log_offset: int, signer: Signer | None) -> StoredMessage:
        """Return the message there if its topic may be read. Raises Refused, in the same words for both."""
        record = await self._store.record_at(log_offset) if log_offset >= 0 else None
        try:
            if record is not None and may(signer, (stored := decode_record(record)).topic, Perm.SUB):
                return stored
        except RecordDamaged:
            pass
        raise Refused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {log_offset}")

    async def _wait_durable(self, log_offset: int) -> None:
        try:
            await self._store.wait_committed(log_offset)
        except LogFailed as exc:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"SERVICE_NOT_AVAILABLE: {exc}") from exc


def _copy(stored: StoredMessage) -> MessageDraft:
    """Return the message as it is stored again: one more consumption, its first topic and id remembered."""
    properties = stored.property_map
    properties.setdefault(RETRY_TOPIC, stored.topic)
    properties.setdefault(ORIGIN_ID, stored.message_id)
    for name in (DELAY, "TRAN_MSG", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "REAL_TOPIC", "REAL_QID"):
        properties.pop(name, None)
    return MessageDraft(
        stored.topic,
        stored.queue_id,
        stored.body,
        properties,
        stored.flag,
        stored.sys_flag & ~0xC,
        stored.born_ms,
        stored.born_host,
        stored.reconsume_times + 1,
    )
