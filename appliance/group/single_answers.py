"""What clients are told of offsets, ends of queues and locks: as if one box had it, whichever box leads.

Nothing of it is told without the lease of this leader, or another one may have told more. What would be lost with this
box is told once the log of the group has it. Where the log takes nothing, because the second disk is away, offsets are
told all the same: consumers go on with what is there. One-way commits are not waited for.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol

import trio

from appliance.broker.consume.heartbeat import read_lock
from appliance.requests import LARGE, Answer, AsyncReply, Handle, Reply, RequestPeer, settled
from netstack.errors import Refused
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.headers import QueryConsumerOffsetHeader, UpdateConsumerOffsetHeader
from storage_driver.record import MessageQueue

OFFSETS: Final = (RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET)
LOCKS: Final = (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
READS: Final = (RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.GET_MAX_OFFSET)  # a follower may be behind
ONCE: Final = (RequestCode.UPDATE_CONSUMER_OFFSET,)  # carried out again it would undo a later one
WAIT_S, AGAIN_S = 2.5, 0.05  # stock clients wait for three

Told = RemotingCommand | bytes | None


class LoggedTable(Protocol):
    """A table whose changes reach the log."""

    @property
    def is_saved(self) -> bool: ...
    async def flush(self) -> None:
        """Return once all that was changed is in the log. Raises OSError."""


class LoggedOffsets(LoggedTable, Protocol):
    """Consumer offsets."""

    def has_saved(self, group: str, topic: str, /) -> bool: ...


class LoggedLocks(LoggedTable, Protocol):
    """Locks of queues."""

    def has_saved(self, group: str, queues: Iterable[MessageQueue], /) -> bool: ...


class SingleAnswers:
    """Makes handlers of a leader wait; `leads`: whether this box leads still, with its lease."""

    def __init__(self, leads: Callable[[], bool], offsets: LoggedOffsets, locks: LoggedLocks) -> None:
        self._leads, self._offsets, self._locks = leads, offsets, locks
        self._tables: dict[int, LoggedTable] = {**dict.fromkeys(OFFSETS, offsets), **dict.fromkeys(LOCKS, locks)}

    def over(self, handlers: Mapping[int, Handle]) -> dict[int, Handle]:
        """Return the handlers, of which some wait."""
        codes = {*self._tables, *READS}
        return {code: partial(self._handle, handle) if code in codes else handle for code, handle in handlers.items()}

    def _handle(self, handle: Handle, request: RemotingCommand, peer: RequestPeer) -> Answer:
        if request.is_oneway:  # nothing is told, and what waits would undo what comes after it
            return handle(request, peer)
        after = partial(self._once_saved, request) if request.code in self._tables else None
        if not self._leads():
            run, large = partial(self._while_led, handle, request, peer), len(request.body) > LARGE
            return AsyncReply(run, before=self._until_led, after=after, needs_body=large)
        try:
            answer = handle(request, peer)
        except Refused as refused:
            if after is None or self._is_saved(request):
                raise
            return AsyncReply(partial(self._refuse_once_saved, request, refused))
        if after is None or (type(answer) is Reply and self._is_saved(request)):
            return answer
        if type(answer) is AsyncReply:
            return AsyncReply(answer.run, after=after, needs_body=answer.needs_body)
        return AsyncReply(partial(settled, answer), after=after)

    def _is_saved(self, request: RemotingCommand) -> bool:
        """Return whether the log has what the answer to a request tells: other rows of its table do not matter."""
        if self._tables[request.code].is_saved:
            return True
        if request.code == RequestCode.QUERY_CONSUMER_OFFSET:
            query = QueryConsumerOffsetHeader.from_ext(request.ext)
            return self._offsets.has_saved(query.consumer_group, query.topic)
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            update = UpdateConsumerOffsetHeader.from_ext(request.ext)
            return self._offsets.has_saved(update.consumer_group, update.topic)
        if not request.body:  # it was large, and has been read
            return False
        asked = read_lock(request.body)
        return self._locks.has_saved(asked.group, asked.queues)

    async def _until_led(self) -> None:
        with trio.move_on_after(WAIT_S):
            while not self._leads():  # noqa: ASYNC110 a lease that is renewed is no event
                await trio.sleep(AGAIN_S)

    async def _while_led(self, handle: Handle, request: RemotingCommand, peer: RequestPeer) -> Told:
        if not self._leads():
            raise _not_now("this box does not know whether it leads its group still")
        return await settled(handle(request, peer))

    async def _refuse_once_saved(self, request: RemotingCommand, refused: Refused) -> Told:
        """Raise a refusal once the log has what it tells: that there is no offset is told of a table, too."""
        await self._once_saved(request, None)
        raise refused

    async def _once_saved(self, request: RemotingCommand, told: Told) -> Told:
        """Return an answer once the log has what it tells; what is read is told also when the log takes nothing now."""
        if not self._is_saved(request):
            try:
                await self._tables[request.code].flush()
            except OSError as exc:
                if request.code in READS:
                    return told
                raise _not_now(str(exc)) from exc
        return told


def _not_now(reason: str) -> Refused:
    return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {reason}, try again")
