"""The stream of a client as the broker uses it: what it tells and asks the client, and how the client answers.

The broker speaks remoting; here its requests become commands of apache.rocketmq.v2, and the client's reports the
answers that tools read. Source: RocketMQ 5.3 GrpcClientChannel, ClientActivity.reportThreadStackTrace,
reportVerifyMessageResult.
"""

import secrets
from collections.abc import Mapping
from typing import Any

import trio

from appliance.grpc.clients import ClientSession
from appliance.grpc.received_messages import message_of
from appliance.grpc.transactions import transaction_id
from netstack.errors import AskTimeout, ChannelClosed, Refused
from netstack.grpc.calls import Call
from netstack.grpc.v2.definition_pb2 import ClientType, Code, FilterType, Settings, Status
from netstack.grpc.v2.service_pb2 import TelemetryCommand
from netstack.wire.bodies import (
    ConsumeDirectlyResult,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumeType,
    SubscriptionData,
)
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.headers import CheckTransactionHeader, ConsumerRunningInfoHeader
from storage_driver.record import decode_record

MOST_ASKED = 16  # questions to one client that it has not answered yet
STACK, VERIFIED = "thread_stack_trace", "verify_message_result"  # reports of clients
RESULTS = {
    Code.OK: ConsumeResult.CR_SUCCESS,
    Code.FAILED_TO_CONSUME_MESSAGE: ConsumeResult.CR_LATER,
    Code.MESSAGE_CORRUPTED: ConsumeResult.CR_RETURN_NULL,
}


class _Question:
    """What a client was asked; `answer` is its report once `done` is set, None when its stream ended."""

    __slots__ = ("answer", "done")

    def __init__(self) -> None:
        self.done, self.answer = trio.Event(), None


class ClientStream:
    """The stream of one client. `session` is that client once it has said who it is, `fifo` what it was told."""

    def __init__(self, call: Call, started_ms: int) -> None:
        self._call, self._started_ms = call, started_ms
        self.session: ClientSession | None = None
        self.fifo = False
        self._questions: dict[tuple[str, str], _Question] = {}
        self._ended = False

    def tell(self, code: int, ext: Mapping[str, str], body: bytes) -> bool:
        """Return whether it left; what these clients have no word for does not."""
        if code != RequestCode.CHECK_TRANSACTION_STATE:
            return False
        header, half = CheckTransactionHeader.from_ext(ext), decode_record(body)
        command = _command()
        asked = command.recover_orphaned_transaction_command
        asked.message.CopyFrom(message_of(half, half.topic))
        asked.transaction_id = transaction_id(header.queue_offset, header.log_offset)
        return self._call.post(command.SerializeToString())

    async def ask(self, code: int, ext: Mapping[str, str], body: bytes, *, timeout_s: float) -> RemotingCommand:
        """Return the client's answer. Raises Refused, AskTimeout, ChannelClosed."""
        if code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            return await self._running_info(ConsumerRunningInfoHeader.from_ext(ext), timeout_s)
        if code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            return await self._consume(body, timeout_s)
        text = f"a gRPC client takes no request {code}"
        raise Refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text)

    async def _running_info(self, header: ConsumerRunningInfoHeader, timeout_s: float) -> RemotingCommand:
        """The box knows what it is asked for but the stacks."""
        stacks, settings = None, None if self.session is None else self.session.settings
        if settings is None:
            raise ChannelClosed(str(self._call.peer), "the client has left")
        if header.jstack_enable:
            command, nonce = _command(), secrets.token_hex(8)
            command.print_thread_stack_trace_command.nonce = nonce
            report = await self._report(command, (STACK, nonce), RequestCode.GET_CONSUMER_RUNNING_INFO, timeout_s)
            _check(report.status)
            stacks = report.thread_stack_trace.thread_stack_trace
        version = self._call.text(b"x-mq-client-version")[:64]
        return _reply(running_info(settings.read(), self._started_ms, version, fifo=self.fifo, stacks=stacks))

    async def _consume(self, record: bytes, timeout_s: float) -> RemotingCommand:
        stored, command, nonce = decode_record(record), _command(), secrets.token_hex(8)
        command.verify_message_command.nonce = nonce
        command.verify_message_command.message.CopyFrom(message_of(stored, stored.topic))
        began = trio.current_time()
        report = await self._report(command, (VERIFIED, nonce), RequestCode.CONSUME_MESSAGE_DIRECTLY, timeout_s)
        result = RESULTS.get(report.status.code)
        if result is None:
            _check(report.status)
        spent_ms = int((trio.current_time() - began) * 1000)
        return _reply(ConsumeDirectlyResult(result, spent_ms=spent_ms, remark=report.status.message or "gRPC client"))

    async def _report(self, command: TelemetryCommand, name: tuple[str, str], code: int, timeout_s: float) -> Any:
        peer = str(self._call.peer)
        if self._ended:
            raise ChannelClosed(peer, "its stream has ended")
        if len(self._questions) >= MOST_ASKED or not self._call.post(command.SerializeToString()):
            raise Refused(ResponseCode.SYSTEM_BUSY, f"{peer} has {len(self._questions)} questions, or reads none")
        question = self._questions[name] = _Question()
        try:
            with trio.move_on_after(timeout_s):
                await question.done.wait()
        finally:
            self._questions.pop(name, None)
        if question.answer is None:
            if self._ended:
                raise ChannelClosed(peer, "its stream has ended")
            raise AskTimeout(peer, code, timeout_s)
        return question.answer

    def reported(self, command: Any) -> None:
        """The client sent a command that is no settings: what answers no question is passed over."""
        kind = command.WhichOneof("command")
        if kind not in (STACK, VERIFIED):
            return
        question = self._questions.get((kind, getattr(command, kind).nonce))
        if question is not None:
            question.answer = command
            question.done.set()

    def end(self) -> None:
        """The stream is over: nobody waits for its client any longer."""
        self._ended = True
        for question in self._questions.values():
            question.done.set()


def running_info(
    settings: Settings, started_ms: int, version: str, *, fifo: bool, stacks: str | None
) -> ConsumerRunningInfo:
    """Return what tools read of a consumer. Source: RocketMQ 4.9.8 ConsumerRunningInfo.analyzeSubscription."""
    passive = settings.client_type == ClientType.PUSH_CONSUMER
    kind = ConsumeType.CONSUME_PASSIVELY if passive else ConsumeType.CONSUME_ACTIVELY
    properties = {
        "PROP_CLIENT_VERSION": version,
        "PROP_CONSUME_TYPE": kind.value,
        "PROP_CONSUMEORDERLY": str(fifo).lower(),
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
        "PROP_NAMESERVER_ADDR": "",
        "PROP_THREADPOOL_CORE_SIZE": "0",
    }
    subscriptions = tuple(
        SubscriptionData(
            topic=each.topic.name,
            sub_string=each.expression.expression,
            sub_version=started_ms,
            expression_type="SQL92" if each.expression.type == FilterType.SQL else "TAG",
        )
        for each in settings.subscription.subscriptions
    )
    return ConsumerRunningInfo(properties, subscriptions, jstack=stacks)


def _command() -> TelemetryCommand:
    return TelemetryCommand(status=Status(code=Code.OK, message="OK"))


def _check(status: Status) -> None:
    """Raise Refused unless the client did what it was asked for."""
    if status.code != Code.OK:
        known = status.code in Code.values()
        text = f"the client answered {Code.Name(status.code) if known else status.code}: {status.message[:1024]}"
        raise Refused(ResponseCode.SYSTEM_ERROR, text)


def _reply(body: ConsumerRunningInfo | ConsumeDirectlyResult) -> RemotingCommand:
    return RemotingCommand(ResponseCode.SUCCESS, body=body.to_bytes())
