"""What clients are told of offsets, ends of queues and locks: as if one box had it, whichever box leads.

Nothing of it is told without the lease of this leader, or another one may have told more. What would be lost with this
box is told once the log of the group has it. Where the log takes nothing, because the second disk is away, offsets are
told all the same: consumers go on with what is there. One-way commits are not waited for.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

import trio

from appliance.requests import Answer, AsyncReply, Handle, RequestPeer, settled
from netstack.errors import Refused
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand

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


class SingleAnswers:
    """Makes handlers of a leader wait; `leads`: whether this box leads still, with its lease."""

    def __init__(self, leads: Callable[[], bool], offsets: LoggedTable, locks: LoggedTable) -> None:
        self._leads = leads
        self._tables = {**dict.fromkeys(OFFSETS, offsets), **dict.fromkeys(LOCKS, locks)}

    def over(self, handlers: Mapping[int, Handle]) -> dict[int, Handle]:
        """Return the handlers, of which some wait."""
        codes = {*self._tables, *READS}
        return {code: partial(self._handle, handle) if code in codes else handle for code, handle in handlers.items()}

    def _handle(self, handle: Handle, request: RemotingCommand, peer: RequestPeer) -> Answer:
        if request.is_oneway:  # nothing is told, and what waits would undo what comes after it
            return handle(request, peer)
        if not self._leads():
            return AsyncReply(partial(self._once_led, handle, request, peer))
        answer, table = handle(request, peer), self._tables.get(request.code)
        if table is None or (table.is_saved and type(answer) is not AsyncReply):
            return answer
        needs_body = type(answer) is AsyncReply and answer.needs_body
        read = request.code in READS
        return AsyncReply(partial(_once_saved, table, answer, read=read), needs_body=needs_body)

    async def _once_led(self, handle: Handle, request: RemotingCommand, peer: RequestPeer) -> Told:
        with trio.move_on_after(WAIT_S):
            while not self._leads():  # noqa: ASYNC110 a lease that is renewed is no event
                await trio.sleep(AGAIN_S)
        if not self._leads():
            raise _not_now("this box does not know whether it leads its group still")
        return await settled(self._handle(handle, request, peer))


async def _once_saved(table: LoggedTable, answer: Answer, *, read: bool) -> Told:
    """Return an answer once the log has what it tells; what is read is told also when the log takes nothing now."""
    told = await settled(answer)
    if not table.is_saved:
        try:
            await table.flush()
        except OSError as exc:
            if read:
                return told
            raise _not_now(str(exc)) from exc
    return told


def _not_now(reason: str) -> Refused:
    return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {reason}, try again")
