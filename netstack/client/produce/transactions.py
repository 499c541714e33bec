"""Half messages, verdicts, and the broker's questions about them. Source: RocketMQ 4.9.8 DefaultMQProducerImpl."""

import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import cast

import trio

from netstack.client.errors import ClientError, UsageError
from netstack.client.ids import log_offset_of
from netstack.client.messages import Message, ReceivedMessage, SendResult, with_properties
from netstack.client.produce.sending import Sender
from netstack.client.produce.trace import Tracer
from netstack.wire.codes import RequestCode
from netstack.wire.headers import CheckTransactionHeader, EndTransactionHeader

CHECKS_WAITING = 2000  # more are ignored, the broker asks again
_log = logging.getLogger("netstack.client")


class Verdict(IntEnum):
    """The verdict on a half message, as END_TRANSACTION sends it."""

    COMMIT = 8
    ROLLBACK = 12
    UNKNOWN = 0


Check = Callable[[ReceivedMessage], Verdict | Awaitable[Verdict | None] | None]


@dataclass(slots=True)
class HalfMessage:
    """A half message that waits for its verdict; set `verdict` to override the outcome of the block."""

    result: SendResult
    verdict: Verdict | None = None

    @property
    def transaction_id(self) -> str:
        return self.result.message_id


class ProducerTransactions:
    """The half messages of one producer."""

    def __init__(self, sender: Sender, check: Check | None, tracer: Tracer) -> None:
        self._sender, self._check, self._tracer = sender, check, tracer
        self._send_check, self._checks = trio.open_memory_channel[tuple[str, CheckTransactionHeader, ReceivedMessage]](
            CHECKS_WAITING
        )

    async def send(
        self, message: Message, execute: Callable[[Message, str], Awaitable[Verdict | None]]
    ) -> tuple[SendResult, Verdict]:
        """Send a half message, execute, end it; return the result and the verdict told to the broker."""
        result = await self._send_half(message)
        if result.status != "SEND_OK":
            await self._end(result, Verdict.ROLLBACK)
            return result, Verdict.ROLLBACK
        verdict, remark = Verdict.UNKNOWN, None
        try:
            verdict = await execute(message, result.message_id) or Verdict.UNKNOWN
        except Exception as error:  # the application's code: the broker asks `check` later
            remark = f"{type(error).__name__}: {error}"
            _log.exception("event=transaction_execute_failed id=%s", result.message_id)
        await self._end(result, verdict, remark)
        return result, verdict

    @asynccontextmanager
    async def half(self, message: Message) -> AsyncGenerator[HalfMessage]:
        result = await self._send_half(message)
        if result.status != "SEND_OK":
            await self._end(result, Verdict.ROLLBACK)
            raise ClientError(f"half message {result.message_id} was stored with {result.status}, hence rolled back")
        half = HalfMessage(result)
        try:
            yield half
        except Exception:
            await self._end(result, Verdict.ROLLBACK if half.verdict is None else half.verdict)
            raise
        await self._end(result, Verdict.COMMIT if half.verdict is None else half.verdict)

    async def _send_half(self, message: Message) -> SendResult:
        if message.is_delayed:
            raise UsageError("a half message cannot be delayed; send it delayed or in a transaction, not both")
        half = with_properties(message, TRAN_MSG="true", PGROUP=self._sender.group)
        return await self._sender.send(self._sender.make(half))

    async def _end(self, result: SendResult, verdict: Verdict, remark: str | None = None) -> None:
        """Tell the broker, one-way; what fails here is asked about later."""
        header = EndTransactionHeader(
            self._sender.group,
            result.queue_offset,
            log_offset_of(result.offset_message_id),
            int(verdict),
            False,
            result.message_id,
            result.transaction_id or result.message_id,
        )
        try:
            await self._tell(self._sender.address(result.queue.broker_name), header, remark)
        except ClientError as error:
            _log.warning("event=end_transaction_failed id=%s reason=%s", result.message_id, error)
        self._tracer.ended(result, verdict.name, from_check=False)

    async def _tell(self, address: str, header: EndTransactionHeader, remark: str | None) -> None:
        instance = self._sender.instance
        channel = await instance.channel(address)
        command = instance.request(RequestCode.END_TRANSACTION, header, oneway=True)
        command.remark = remark
        channel.tell(command)

    def take_check(self, address: str, header: CheckTransactionHeader, message: ReceivedMessage) -> None:
        try:
            self._send_check.send_nowait((address, header, message))
        except trio.WouldBlock:
            _log.warning("event=check_ignored group=%s reason=%d_waiting", self._sender.group, CHECKS_WAITING)

    async def run(self) -> None:
        """Answer the broker's questions, one after the other."""
        async for address, header, message in self._checks:
            verdict, remark = await self._ask_application(message)
            message_id = message.message_id
            answer = EndTransactionHeader(
                self._sender.group,
                header.queue_offset,
                header.log_offset,
                int(verdict),
                True,
                message_id,
                header.transaction_id or message_id,
            )
            try:
                await self._tell(address, answer, remark)
            except ClientError as error:
                _log.warning("event=check_answer_failed id=%s reason=%s", message_id, error)

    async def _ask_application(self, message: ReceivedMessage) -> tuple[Verdict, str | None]:
        if self._check is None:
            _log.warning("event=check_unanswered id=%s reason=no_check_given_to_Producer", message.message_id)
            return Verdict.UNKNOWN, "this producer has no check"
        try:
            verdict: object
            if inspect.iscoroutinefunction(self._check):
                verdict = await self._check(message)
            else:
                check = self._check
                (verdict,) = await trio.to_thread.run_sync(lambda: (check(message),))
                if inspect.isawaitable(verdict):
                    verdict = await verdict
            return cast(Verdict | None, verdict) or Verdict.UNKNOWN, None
        except Exception as error:  # the application's code
            _log.exception("event=transaction_check_failed id=%s", message.message_id)
            return Verdict.UNKNOWN, f"{type(error).__name__}: {error}"
