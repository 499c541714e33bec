"""Requests of brokers to a client, and the answers: transaction checks, group changes, resets, status, replies."""

import logging
from collections.abc import Callable, Mapping

from netstack.client.members import ConsumerMember, ProducerMember
from netstack.client.messages import ReceivedMessage
from netstack.client.records import decode_records
from netstack.errors import ProtocolError, Refused
from netstack.serving.peer import Peer
from netstack.wire.bodies import ConsumerStatus, ResetOffset
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.conversation import Answer, AsyncReply, Reply
from netstack.wire.headers import (
    CheckTransactionHeader,
    ConsumeDirectlyHeader,
    ConsumerGroupHeader,
    ConsumerRunningInfoHeader,
    ConsumerStatusHeader,
    PushReplyHeader,
    ResetOffsetHeader,
)

_log = logging.getLogger("netstack.client")


class BrokerRequests:
    """Serves the requests of brokers on all connections of one client; nothing here blocks the reader."""

    def __init__(
        self,
        producers: Mapping[str, ProducerMember],
        consumers: Mapping[str, ConsumerMember],
        *,
        broker_name_at: Callable[[str], str],
        now_ms: Callable[[], int],
    ) -> None:
        """By group: who is asked. `broker_name_at` gives the name of the broker at an address."""
        self._producers, self._consumers = producers, consumers
        self._broker_name_at, self._now_ms = broker_name_at, now_ms
        self.replies: dict[str, Callable[[ReceivedMessage], None]] = {}  # correlation id -> who waits
        self._handlers = {
            RequestCode.CHECK_TRANSACTION_STATE: self._check_transaction,
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._reply_arrived,
        }

    def handle(self, request: RemotingCommand, peer: Peer) -> Answer:
        """Answer one request of a broker."""
        handler = self._handlers.get(request.code)
        if handler is None:
            remark = f"request code {request.code} is not for clients"
            return Reply(request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
        answer: Answer = handler(request, peer)
        return answer

    def _check_transaction(self, request: RemotingCommand, peer: Peer) -> Answer:
        header = CheckTransactionHeader.from_ext(request.ext)
        message = _only_message(request.body)
        group = message.properties.get("PGROUP", "")
        producer = self._producers.get(group)
        if producer is None:
            _log.warning("event=check_ignored group=%s reason=no_such_producer", group)
        else:
            producer.check_transaction(str(peer), header, message)
        return None

    def _members_changed(self, request: RemotingCommand, peer: Peer) -> Answer:
        group = ConsumerGroupHeader.from_ext(request.ext).consumer_group
        for consumer in self._consumers.values():
            if not group or consumer.group == group:
                consumer.wake()
        return None

    def _reset(self, request: RemotingCommand, peer: Peer) -> Answer:
        header = ResetOffsetHeader.from_ext(request.ext)
        consumer = self._consumers.get(header.group)
        if consumer is not None:
            consumer.reset(header.topic, ResetOffset.from_server(request.body).offset_table)
        return None

    def _status(self, request: RemotingCommand, peer: Peer) -> Answer:
        header = ConsumerStatusHeader.from_ext(request.ext)
        consumer = self._consumers.get(header.group)
        table = consumer.positions(header.topic) if consumer else {}
        return Reply(request.reply(body=ConsumerStatus(message_queue_table=table).to_bytes()))

    def _running_info(self, request: RemotingCommand, peer: Peer) -> Answer:
        header = ConsumerRunningInfoHeader.from_ext(request.ext)
        running = self._consumer(header.consumer_group).running_info(with_tasks=header.jstack_enable)
        return Reply(request.reply(body=running.to_bytes()))

    def _consume_directly(self, request: RemotingCommand, peer: Peer) -> Answer:
        header = ConsumeDirectlyHeader.from_ext(request.ext)
        consumer = self._consumer(header.consumer_group)
        message = _only_message(request.body)
        message.broker_name = header.broker_name or self._broker_name_at(str(peer))

        async def consume() -> RemotingCommand:
            result = await consumer.consume_directly(message)
            return request.reply(body=result.to_bytes())

        return AsyncReply(consume, pull=True)

    def _consumer(self, group: str) -> ConsumerMember:
        consumer = self._consumers.get(group)
        if consumer is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no consumer of group {group} in this client")
        return consumer

    def _reply_arrived(self, request: RemotingCommand, peer: Peer) -> Answer:
        message = pushed_reply(PushReplyHeader.from_ext(request.ext), request.body, self._now_ms())
        take = self.replies.get(message.properties.get("CORRELATION_ID", ""))
        if take is not None:
            take(message)
        return Reply(request.reply())

    def forget_reply(self, correlation_id: str) -> None:
        self.replies.pop(correlation_id, None)


def _only_message(body: bytes) -> ReceivedMessage:
    """Return the one message in a request's body. Raises Refused."""
    try:
        return next(decode_records(body))
    except (ProtocolError, StopIteration) as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the body is not a stored message: {error}") from error


def pushed_reply(header: PushReplyHeader, body: bytes, now_ms: int) -> ReceivedMessage:
    """Return the reply that a broker passes on as a message; it is in no queue."""
    message = ReceivedMessage.__new__(ReceivedMessage)
    message.topic, message.queue_id, message.flag, message.sys_flag = (
        header.topic,
        header.queue_id,
        header.flag,
        header.sys_flag,
    )
    message.born_ms, message.stored_ms, message.reconsume_times = (
        header.born_ms,
        header.stored_ms,
        header.reconsume_times,
    )
    message.queue_offset = message.log_offset = message.prepared_offset = -1
    message.born_host = message.store_host = bytes(8)
    message.broker_name, message.stored_body, message.size = "", body, len(body)
    message._raw_properties = (header.properties or "").encode("utf-8", "replace")
    message._properties = message._body = message.held = None
    message.consume_started_ms = 0
    message.properties["ARRIVE_TIME"] = str(now_ms)
    return message
