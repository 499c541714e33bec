"""Connections of clients outlast a change of role: requests that come meanwhile wait for the next standing.

A stock client whose connection ends does not notice that for requests under way, and waits out its time for each.
What is under way when a standing ends is asked anew of the next one; a follower hands it on. So a send may be stored
twice, as when its client repeats it.
"""

import json
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from appliance.group.single_answers import ONCE
from appliance.requests import Answer, AsyncReply, Handle, Reply, RequestPeer, settled
from netstack.serving.governor import Governor, HttpHint
from netstack.serving.limits import Limits
from netstack.serving.peer import Peer
from netstack.wire.codes import LONG_POLLS, SENDS, ResponseCode
from netstack.wire.command import RemotingCommand

WAIT_S: Final = 2.5  # stock clients wait for three
MOST_WAITING: Final = 4096
SENT_S: Final = 2.8  # a send that waited is refused before its client, which repeats it, gives up
NOT_NOW: Final = "service not available now: this box changes its role in its group, try again"


class HandlerSwitch:
    """Answers the requests of one port by whichever standing there is; `hint` is what may keep the next one away."""

    def __init__(self, hint: Callable[[], str]) -> None:
        self._hint = hint
        self._handle: Handle | None = None
        self._number = 0  # of standings so far
        self._began = trio.Event()
        self._under_way: set[trio.CancelScope] = set()
        self._waiting = 0

    def use(self, handle: Handle) -> None:
        """From here on a standing answers."""
        self._handle = handle
        self._number += 1
        self._began.set()

    def leave(self) -> None:
        """The standing ends: what it has not answered is asked of the next one."""
        self._handle, self._began = None, trio.Event()
        for scope in self._under_way:
            scope.cancel()

    async def leave_at_end(self) -> None:
        """Leave when cancelled, with the standing."""
        try:
            await trio.sleep_forever()
        finally:
            self.leave()

    def __call__(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """Return the answer to one request."""
        handle = self._handle
        if handle is None:
            if self._waiting >= MOST_WAITING:
                return Reply(self._not_now(request))
            if pull := request.code in LONG_POLLS:
                request.body = b""  # nobody reads it
            return AsyncReply(partial(self._outlast, None, request, peer), pull=pull)
        body = request.body
        answer, packed = self._ask(handle, request, peer)
        if type(answer) is AsyncReply:
            run = partial(self._outlast, answer, request, peer, packed, b"" if answer.pull else body)
            return AsyncReply(run, pull=answer.pull, reads=answer.reads)
        return answer

    def _not_now(self, request: RemotingCommand) -> RemotingCommand:
        hint = self._hint()
        return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, f"{NOT_NOW}: {hint}" if hint else NOT_NOW)

    def _ask(
        self, handle: Handle, request: RemotingCommand, peer: RequestPeer, packed: bytes = b""
    ) -> tuple[Answer, bytes]:
        """Return the answer of a standing, and packed the fields of a request that waits and has let go of them."""
        if packed:
            request.ext = json.loads(packed)
        if isinstance(peer, Peer):
            peer.begin(self._number)
        ext = request.ext
        answer = handle(request, peer)
        return answer, packed if request.ext is ext else json.dumps(ext).encode()

    async def _outlast(
        self, answer: Answer, request: RemotingCommand, peer: RequestPeer, packed: bytes = b"", body: bytes = b""
    ) -> RemotingCommand | bytes | None:
        """Return the answer of the first standing that gives one.

        packed: the fields, as of `_ask`. body: as it came, since who reads a large one takes it from the request.
        """
        until = math.inf
        while True:
            if answer is None:
                if request.code in SENDS:
                    until = min(until, trio.current_time() + SENT_S)
                handle = await self._next()
                if handle is None:
                    return self._not_now(request)
                body = request.body = request.body or body
                answer, packed = self._ask(handle, request, peer, packed)
            with trio.CancelScope(deadline=until) as scope:
                self._under_way.add(scope)
                try:
                    return await settled(answer)
                finally:
                    self._under_way.discard(scope)
            if trio.current_time() >= until or request.code in ONCE:
                return self._not_now(request)
            answer = None

    async def _next(self) -> Handle | None:
        """Return the handler of the next standing, None when there is none in time."""
        self._waiting += 1
        try:
            with trio.move_on_after(WAIT_S):
                while self._handle is None:
                    await self._began.wait()
        finally:
            self._waiting -= 1
        return self._handle


class KeptConnections:
    """The ports of a member and their connections, for as long as the box runs."""

    def __init__(self, nursery: trio.Nursery, hint: Callable[[], str] = str) -> None:
        self._nursery, self._hint = nursery, hint
        self._switches: dict[str, HandlerSwitch] = {}
        self._governor: Governor | None = None

    def governor(self, limits: Limits, http_hint: HttpHint) -> Governor:
        """Return what all connections share."""
        if self._governor is None:
            self._governor = Governor(limits, http_hint=http_hint)
        return self._governor

    def end_at(self, own: str, busy: bool) -> int:
        """End the connections that were made to an own address, `busy` ones too; return how many there are besides."""
        return self._governor.slots.end_at(own, busy=busy) if self._governor is not None else 0

    async def serve(
        self, nursery: trio.Nursery, name: str, handle: Handle, serving: Callable[..., Awaitable[None]]
    ) -> None:
        """Answer at a port by `handle` until the nursery of a standing ends; `serving` opens the port."""
        switch = self._switches.get(name)
        known = switch is not None
        switch = self._switches[name] = switch or HandlerSwitch(self._hint)
        switch.use(handle)
        nursery.start_soon(switch.leave_at_end)
        if not known:
            await self._nursery.start(serving, switch)
