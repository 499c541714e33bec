"""SendMessage: what a gRPC producer sends is published as any other send, answered when it is durable.

Source: RocketMQ 5.3 SendMessageActivity.
"""

from binascii import crc32
from collections.abc import Sequence
from typing import Any, NamedTuple

from appliance.broker.intake import not_durable, refusal
from appliance.broker.publish.publishing import Published, Publishing
from appliance.broker.rights import Perm, of_topic
from appliance.broker.tables.topics import Topic, random_queue
from appliance.grpc.clients import ClientSession
from appliance.grpc.methods import NOT_STORED
from appliance.grpc.outcome import Rejection, fill_ok, fill_overall, status_of
from appliance.grpc.resources import topic_of
from appliance.grpc.sent_messages import Sent, read_sent
from appliance.grpc.transactions import transaction_id
from netstack.errors import Refused
from netstack.grpc.answer_bytes import stored
from netstack.grpc.calls import Call, Deferred
from netstack.grpc.v2.definition_pb2 import Code
from netstack.grpc.v2.service_pb2 import SendMessageResponse
from netstack.wire.message_headers import SendMessageHeader
from storage_driver.record import TRANSACTION_PREPARED

MOST_MESSAGES = 1024  # of one request
NO_TEMPLATE = ""  # an unknown topic is not made by a send: clients ask for its route first, and get none


class SendRules(NamedTuple):
    """What a send needs of the configuration."""

    message_bytes: int


class GrpcSends:
    """Handles sends."""

    def __init__(self, rules: SendRules, publishing: Publishing) -> None:
        self._rules, self._publishing = rules, publishing

    def send(self, session: ClientSession, call: Call, request: Any) -> Any:
        """Store the messages of a request, all in one queue. Raises Rejection, Refused, and what the store raises."""
        messages = request.messages
        if not messages or len(messages) > MOST_MESSAGES:
            raise Rejection(Code.MESSAGE_CORRUPTED, f"{len(messages)} messages to send, expected 1 to {MOST_MESSAGES}")
        first = messages[0].topic
        name = topic_of(first)
        if len(messages) > 1 and any(each.topic != first for each in messages):
            raise Rejection(Code.MESSAGE_CORRUPTED, "topic in message is not same")
        if session.signer is not None:
            session.require(of_topic(name, Perm.PUB))
        topic: Topic | None = None
        try:
            topic = self._publishing.admit(_header(name), session, session)
            sent = [read_sent(each, name, topic.attributes, self._rules.message_bytes) for each in messages]
            return self._stored(session, topic, sent)
        except (Refused, *NOT_STORED) as exc:
            self._publishing.refused(topic, exc)
            raise

    def _stored(self, session: ClientSession, topic: Topic, sent: Sequence[Sent]) -> Deferred | SendMessageResponse:
        queue_id = _queue_of(sent, topic.write_queues)
        if len(sent) == 1:
            found = self._one(session, topic, sent[0], queue_id)
            placed = [found]
            answer = _answer(sent[0], found)
        else:
            placed, response = self._several(session, topic, sent, queue_id)
            if not placed:
                return response
            answer = response.SerializeToString()
        when = self._publishing.acknowledging.when(topic)
        return Deferred(when, max(row[3] for row in placed), answer, lambda reason: self._lost(placed, reason))

    def _one(self, session: ClientSession, topic: Topic, sent: Sent, queue_id: int) -> Published:
        header = _header(topic.name, sent, queue_id)
        return self._publishing.one(header, sent.body, topic, session, answered=True, own_key=True)

    def _several(
        self, session: ClientSession, topic: Topic, sent: Sequence[Sent], queue_id: int
    ) -> tuple[list[Published], SendMessageResponse]:
        """Store messages; return where those are that are not refused, and what is answered of all."""
        response, placed = SendMessageResponse(), list[Published]()
        for each in sent:
            try:
                found = self._one(session, topic, each, queue_id)
            except (Refused, *NOT_STORED) as exc:
                refused = exc if isinstance(exc, Refused) else refusal(exc)
                response.entries.add().status.CopyFrom(status_of(refused))
                continue
            placed.append(found)
            _fill_entry(response.entries.add(), each, found)
        fill_overall(response)
        return placed, response

    def _lost(self, placed: Sequence[Published], reason: str) -> bytes:
        for row in placed:
            self._publishing.lost(row[4], row[3])
        return bytes(SendMessageResponse(status=status_of(not_durable(reason))).SerializeToString())


def _header(topic: str, sent: Sent | None = None, queue_id: int = -1) -> SendMessageHeader:
    """Return the fields of a send; its group is the topic, as in the property PGROUP."""
    if sent is None:
        return SendMessageHeader(topic, topic, NO_TEMPLATE, 0, queue_id, 0, 0, 0)
    return SendMessageHeader(topic, topic, NO_TEMPLATE, 0, queue_id, sent.sys_flag, sent.born_ms, 0, sent.properties)


def _queue_of(sent: Sequence[Sent], queues: int) -> int:
    """Return the queue of a message group, which stays the same as long as the topic has as many; else any."""
    group = sent[0].message_group if len(sent) == 1 else ""
    return crc32(group.encode()) % max(queues, 1) if group else random_queue(queues)


def _answer(sent: Sent, found: Published) -> bytes:
    """Return what the send of one message is answered."""
    if not sent.sys_flag & TRANSACTION_PREPARED and not found[5]:
        return stored(sent.message_id, found[1])
    response = SendMessageResponse()
    _fill_entry(response.entries.add(), sent, found)
    fill_overall(response)
    return bytes(response.SerializeToString())


def _fill_entry(entry: Any, sent: Sent, found: Published) -> None:
    """Say in its place where a message is: to move an entry is to write and to read it."""
    _, queue_offset, log_offset, _, _, recall = found
    fill_ok(entry.status)
    entry.message_id, entry.offset = sent.message_id, queue_offset
    if recall:
        entry.recall_handle = recall
    if sent.sys_flag & TRANSACTION_PREPARED:
        entry.transaction_id = transaction_id(queue_offset, log_offset)
