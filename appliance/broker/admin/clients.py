"""Requests that the broker passes on to a connected consumer (223, 307, 309); its answer is passed back.

Source: RocketMQ 4.9.8 AdminBrokerProcessor.callConsumer, Broker2Client.getConsumeStatus.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import trio

from appliance.broker.tables.clients import ClientTable
from appliance.requests import Answer, AsyncReply, Handle, RequestPeer
from netstack.errors import AskTimeout, ChannelClosed, Refused
from netstack.wire.bodies import ConsumerStatus
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.fastjson import FROM_PEER, Bounds
from netstack.wire.headers import ConsumeDirectlyHeader, ConsumerRunningInfoHeader, ConsumerStatusHeader
from netstack.wire.json_body import MessageQueue as NamedQueue
from storage_driver.interfaces import Reading
from storage_driver.record import decode_record, parse_message_id

CALL_S, STATUS_S = 10.0, 5.0
STATUS = Bounds(bytes=256 << 10, lenient=256 << 10)  # of about 3,000 queues
CALLABLE_SINCE = 62  # V3_1_8_SNAPSHOT
MOST_CALLS, MOST_CALL_BYTES = 64, 16 << 10  # that wait for consumers; of the fields and the body of each


class ClientCalls:
    """Handles requests that a consumer has to answer."""

    def __init__(
        self, clients: ClientTable, store: Reading, *, broker: str, consumed: Callable[[str, int, int], None]
    ) -> None:
        """consumed: hears the topic, queue and offset of a message that a consumer has consumed directly."""
        self._clients, self._store, self._broker, self._consumed = clients, store, broker, consumed
        self._reader = trio.CapacityLimiter(1)  # answers are maps keyed by queues, which are read slowly
        self._calls = 0

    def handlers(self) -> dict[int, Handle]:
        """Return request code → handler."""
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.handle_running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.handle_consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.handle_status,
        }

    def handle_running_info(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_CONSUMER_RUNNING_INFO (307): what a consumer says about itself, with its threads if asked for."""
        header = ConsumerRunningInfoHeader.from_ext(request.ext)
        return self._later(request, partial(self._call, request, header.consumer_group, header.client_id, request.ext))

    def _later(self, request: RemotingCommand, run: Callable[[], Awaitable[RemotingCommand]]) -> AsyncReply:
        """Return an answer that waits for consumers: while one is mute the request is kept, so it has to be small.

        Raises Refused.
        """
        size = len(request.body) + sum(map(len, (*request.ext, *request.ext.values())))
        if size > MOST_CALL_BYTES:
            text = f"a question to a consumer of {size} bytes, at most {MOST_CALL_BYTES} are passed on"
            raise Refused(ResponseCode.SYSTEM_ERROR, text)

        async def counted() -> RemotingCommand:
            if self._calls >= MOST_CALLS:
                text = f"{self._calls} questions to consumers wait for their answers; try again in some seconds"
                raise Refused(ResponseCode.SYSTEM_BUSY, text)
            self._calls += 1
            try:
                return await run()
            finally:
                self._calls -= 1

        return AsyncReply(counted)

    def handle_consume_directly(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """CONSUME_MESSAGE_DIRECTLY (309): let a consumer consume one message now. Raises Refused."""
        header = ConsumeDirectlyHeader.from_ext(request.ext)
        try:
            _, log_offset = parse_message_id(header.message_id or "")
        except ValueError as exc:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(exc)) from exc
        return self._later(request, partial(self._consume_directly, request, header, log_offset))

    async def _consume_directly(
        self, request: RemotingCommand, header: ConsumeDirectlyHeader, log_offset: int
    ) -> RemotingCommand:
        record = await self._store.record_at(log_offset)
        if record is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"no message {header.message_id} in this broker")
        ext = dict(request.ext) | {"brokerName": self._broker}
        answer = await self._call(request, header.consumer_group, header.client_id or "", ext, record)
        if answer.code == ResponseCode.SUCCESS and b'"CR_SUCCESS"' in answer.body:
            message = decode_record(record)
            self._consumed(message.topic, message.queue_id, message.queue_offset)
        return answer

    async def _call(
        self, request: RemotingCommand, group: str, client_id: str, ext: Mapping[str, str], body: bytes = b""
    ) -> RemotingCommand:
        """Pass a request on to one member of a group and return its answer under the caller's opaque."""
        consumer = self._clients.by_client_id(group, client_id)
        members = self._clients.consumers(group)
        if consumer is None or members is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        version = members.members[consumer].version
        if version < CALLABLE_SINCE:
            too_low = f"Version <{version}> too low to finish, please upgrade it to V3_1_8_SNAPSHOT"
            return request.reply(ResponseCode.SYSTEM_ERROR, f"The Consumer <{client_id}> {too_low}")
        try:
            answer = await consumer.ask(request.code, ext, body or request.body, timeout_s=CALL_S)
        except AskTimeout as exc:
            return request.reply(ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}> Timeout: {exc}")
        except ChannelClosed as exc:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}> Exception: {exc}")
        return request.reply(answer.code, answer.remark, answer.ext, answer.body)

    def handle_status(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223): the offsets that all members, or one, hold. Raises Refused."""
        header = ConsumerStatusHeader.from_ext(request.ext)
        group = self._clients.consumers(header.group)
        if group is None:
            remark = f"No Any Consumer online in the consumer group: [{header.group}]"
            raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        members = [(p, m.client_id) for p, m in group.members.items() if header.client_id in (None, m.client_id)]
        return self._later(request, partial(self._status, request, header, members))

    async def _status(
        self, request: RemotingCommand, header: ConsumerStatusHeader, members: list[tuple[RequestPeer, str]]
    ) -> RemotingCommand:
        found: dict[str, dict[NamedQueue, int]] = {}

        async def ask(consumer: RequestPeer, client_id: str) -> None:
            ext = {"topic": header.topic, "group": header.group}
            try:
                answer = await consumer.ask(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ext, timeout_s=STATUS_S)
                if answer.code == ResponseCode.SUCCESS:
                    found[client_id] = await self._read_status(answer.body)
            except (AskTimeout, ChannelClosed, Refused):
                pass  # who does not answer is left out

        async with trio.open_nursery() as nursery:
            for consumer, client_id in members:
                nursery.start_soon(ask, consumer, client_id)
        return request.reply(body=ConsumerStatus(found).to_bytes())

    async def _read_status(self, body: bytes) -> dict[NamedQueue, int]:
        read = partial(ConsumerStatus.from_bytes, body, STATUS)
        if len(body) > FROM_PEER.lenient:  # then others continue meanwhile
            return (await trio.to_thread.run_sync(read, limiter=self._reader)).message_queue_table
        return read().message_queue_table
