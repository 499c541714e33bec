"""SEND_REPLY_MESSAGE (324, 325): the answer to a request message goes straight to the client that asked.

The asker is found by the client id in REPLY_TO_CLIENT; what it is sent is also kept in the reply topic.
Source: RocketMQ 4.9.8 ReplyMessageProcessor.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from appliance.broker.intake import Intake, MessageDraft
from appliance.broker.publish.questions import CORRELATION_ID, REPLY_TO, Questions
from appliance.broker.rights import NOBODY, Perm, Signer, may
from appliance.broker.tables.clients import ClientTable
from appliance.broker.tables.shares import Shares, counted_for
from appliance.broker.tables.topics import Topic, random_queue
from appliance.requests import Answer, AsyncReply, Handle, RequestPeer
from netstack.errors import AskTimeout, ChannelClosed, Refused
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.headers import PushReplyHeader
from netstack.wire.message_headers import SendMessageHeader, SendMessageReply
from storage_driver.errors import LogFailed
from storage_driver.interfaces import Marks
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import decode_host, decode_properties, encode_properties, message_id

PUSHED_AT = "PUSH_REPLY_TIME"
PUSH_S = 10.0
MOST_PUSHED_BYTES = 16 << 20  # of replies whose askers have not answered: half of what holds up all readers
ALWAYS_PUSHED_BYTES = 64 << 10  # of one address, while there is room at all


class ReplyRules(NamedTuple):
    """What replies need of the configuration and of the send path."""

    topic_of: Callable[[SendMessageHeader, RequestPeer], Topic]  # the checks of a send; raises Refused
    complete: Callable[[dict[str, str]], None]  # what the broker adds to the properties of each message
    store_host: bytes
    region: str = "DefaultRegion"
    trace_on: bool = True


class Askers(NamedTuple):
    """Clients that may wait for a reply."""

    clients: ClientTable
    questions: Questions

    def find(self, properties: Mapping[str, str], signer: Signer | None) -> RequestPeer | None:
        """Return the connection that a reply goes to, None when it is gone or is not for this replier to answer.

        What a key asked is answered to that key, by those who may read the topic it asked on. Of other questions
        nothing is known: an id that several keys have is nobody's then.
        """
        client_id = properties[REPLY_TO]
        question = self.questions.find(properties.get(CORRELATION_ID))
        if question is not None:
            answers = question.client_id == client_id and may(signer, question.topic, Perm.SUB)
            return self.clients.find_client(client_id, question.owner) if answers else None
        if len(self.clients.owners(client_id)) <= 1:
            return self.clients.find_client(client_id)
        return None if signer is not None and signer.bound else self.clients.find_client(client_id, NOBODY)


class Replies:
    """Handles replies."""

    def __init__(
        self, rules: ReplyRules, askers: Askers, store: Marks, intake: Intake, *, now_ms: Callable[[], int]
    ) -> None:
        self._rules, self._askers, self._store, self._intake, self._now_ms = rules, askers, store, intake, now_ms
        self._pushed_bytes, self._shares = 0, Shares(ALWAYS_PUSHED_BYTES)

    def handlers(self) -> dict[int, Handle]:
        """Return request code → handler."""
        codes = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
        return dict.fromkeys(codes, self.handle)

    def handle(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """Push a reply to the client that waits for it, answer with the result. Raises Refused."""
        header = SendMessageHeader.from_ext(request.ext)
        topic = self._rules.topic_of(header, peer)
        properties = decode_properties(header.properties)
        asker = self._askers.find(properties, peer.signer) if REPLY_TO in properties else None
        return AsyncReply(partial(self._pass_on, request, header, topic, (peer, asker)))

    async def _pass_on(
        self,
        request: RemotingCommand,
        header: SendMessageHeader,
        topic: Topic,
        between: tuple[RequestPeer, RequestPeer | None],
    ) -> RemotingCommand:
        properties, (peer, _) = decode_properties(header.properties), between
        failure = await self._push(request, header, properties, between)
        queue_id = header.queue_id if header.queue_id >= 0 else random_queue(topic.write_queues)
        reply = await self._keep(request, header, properties, peer, queue_id)
        code = ResponseCode.SUCCESS if failure is None else ResponseCode.SYSTEM_ERROR
        return request.reply(code, failure, ext=reply)

    async def _push(
        self,
        request: RemotingCommand,
        header: SendMessageHeader,
        properties: dict[str, str],
        between: tuple[RequestPeer, RequestPeer | None],
    ) -> str | None:
        """Send the reply to its client; return why that failed. Raises Refused where too many wait for theirs."""
        client_id, (replier, asker) = properties.get(REPLY_TO), between
        if client_id is None:
            return f"reply message has no property {REPLY_TO}"
        if asker is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        properties[PUSHED_AT] = str(self._now_ms())
        pushed = self._push_header(header, properties, replier)
        code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        with self._counted(counted_for(replier.remote[0]), len(request.body)):
            try:
                answer = await asker.ask(code, pushed.to_ext(), request.body, timeout_s=PUSH_S)
            except (AskTimeout, ChannelClosed, Refused) as exc:
                return f"push reply message to {client_id} fail: {exc}"
        return (
            None if answer.code == ResponseCode.SUCCESS else f"push reply message to {client_id} fail: {answer.remark}"
        )

    @contextmanager
    def _counted(self, address: str, size: int) -> Iterator[None]:
        """Count a reply while its asker is to answer. Raises Refused (SYSTEM_BUSY)."""
        if size > self._shares.room(address, MOST_PUSHED_BYTES - self._pushed_bytes):
            text = f"replies of {self._pushed_bytes} bytes wait for their askers, at most {MOST_PUSHED_BYTES} in all do"
            raise Refused(ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]{text}, of one address half of that: retry in a second")
        self._pushed_bytes += size
        self._shares.change(address, size)
        try:
            yield
        finally:
            self._pushed_bytes -= size
            self._shares.change(address, -size)

    def _push_header(
        self, header: SendMessageHeader, properties: dict[str, str], replier: RequestPeer
    ) -> PushReplyHeader:
        host, port = decode_host(self._rules.store_host)
        return PushReplyHeader(
            header.producer_group,
            header.topic,
            header.default_topic,
            header.default_queue_count,
            header.queue_id,
            header.sys_flag,
            header.born_ms,
            header.flag,
            f"{replier.remote[0]}:{replier.remote[1]}",
            f"{host}:{port}",
            self._now_ms(),
            encode_properties(properties).decode(),
            header.reconsume_times,
            header.unit_mode,
        )

    async def _keep(
        self,
        request: RemotingCommand,
        header: SendMessageHeader,
        properties: dict[str, str],
        peer: RequestPeer,
        queue_id: int,
    ) -> SendMessageReply:
        """Store the reply in its topic if that can be done; return what the replier is told."""
        draft = MessageDraft(
            header.topic,
            queue_id,
            request.body,
            dict(properties),
            header.flag,
            header.sys_flag,
            header.born_ms,
            peer.born_host,
            header.reconsume_times,
        )
        self._rules.complete(draft.properties)
        region, trace_on = self._rules.region, self._rules.trace_on
        try:
            placed = self._intake.put(draft)
            await self._store.wait_committed(placed.end)
        except (Refused, LogFailed):
            return SendMessageReply("0", queue_id, 0, region=region, trace_on=trace_on)
        offset_id = message_id(self._rules.store_host, placed.log_offset)
        return SendMessageReply(offset_id, queue_id, placed.queue_offset, region=region, trace_on=trace_on)
