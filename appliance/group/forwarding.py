"""A follower hands on to the leader what it may not answer itself, so that a client with an old route is served.

While nobody leads, as during a planned switch, a request waits. What is handed on may be stored twice when a connection
breaks meanwhile, as when its client repeats it.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from appliance.group.leadership import Leadership, LeadershipState
from appliance.group.single_answers import ONCE
from appliance.requests import Answer, AsyncReply, RequestPeer
from netstack.errors import AskTimeout, ChannelClosed, Refused
from netstack.serving.addresses import split_host_port
from netstack.serving.channel import Channel, open_channel
from netstack.wire.codes import SENDS, RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand

HANDED_ON: Final = (
    *SENDS,
    *(RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION, RequestCode.UPDATE_CONSUMER_OFFSET),
    *(RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ),
)
BY_A_FOLLOWER: Final = "handed on by a follower"  # remark of such a request; no signature covers a remark
NOT_HERE: Final = "handed on to a box that does not lead"
GONE: Final = "the leader was lost before it answered, try again"
WAIT_S: Final = 2.5  # stock clients wait for three
AGAIN_S, CONNECT_S = 0.05, 1.0
MOST_WAITING: Final = 512


class Forwarder:
    """One connection to whoever leads, from the first request on."""

    def __init__(self, leadership: Leadership, member: str, why_not: Callable[[], str]) -> None:
        self._leadership, self._member, self._why_not = leadership, member, why_not
        self._channel: Channel | None = None
        self._changed, self._wanted = trio.Event(), trio.Event()
        self._waiting = 0

    async def run(self) -> None:
        """Have a connection to the leader, once somebody needs it."""
        while True:
            await self._wanted.wait()
            state = await self._leadership.wait_for(self._is_elsewhere)
            host, port = split_host_port(state.address)
            try:
                async with open_channel(host, port, connect_timeout_s=CONNECT_S) as channel:
                    self._use(channel)
                    await self._while_it_leads(channel, state.leader)
            except OSError:
                pass  # it is tried again as long as somebody waits
            finally:
                self._use(None)
            if not self._waiting:
                self._wanted = trio.Event()
            await trio.sleep(AGAIN_S)

    def _is_elsewhere(self, state: LeadershipState) -> bool:
        return bool(state.address) and state.leader != self._member

    async def _while_it_leads(self, channel: Channel, leader: str) -> None:
        async with trio.open_nursery() as nursery:

            async def until_closed() -> None:
                await channel.closed.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(until_closed)
            await self._leadership.wait_for(lambda state: state.leader != leader)
            nursery.cancel_scope.cancel()

    def _use(self, channel: Channel | None) -> None:
        self._channel = channel
        self._changed.set()
        self._changed = trio.Event()

    def handle(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """Hand a request on. Raises Refused."""
        if request.remark == BY_A_FOLLOWER:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {NOT_HERE}")
        if self._waiting >= MOST_WAITING:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {self._why_not()}")
        return AsyncReply(partial(self._hand_on, request))

    async def _hand_on(self, request: RemotingCommand) -> RemotingCommand | None:
        self._waiting += 1
        self._wanted.set()
        try:
            with trio.move_on_after(WAIT_S):
                while True:
                    channel = await self._open()
                    if request.is_oneway:
                        channel.tell(_copy(request))
                        return None
                    if (answer := await self._asked(channel, request)) is not None:
                        return request.reply(answer.code, answer.remark, answer.ext, answer.body)
                    await trio.sleep(AGAIN_S)
        finally:
            self._waiting -= 1
        raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {self._why_not()}")

    async def _open(self) -> Channel:
        while (channel := self._channel) is None or channel.closed.is_set():
            await self._changed.wait()
        return channel

    async def _asked(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Return the leader's answer; None when it leads no longer, or not yet."""
        try:
            answer = await channel.ask(_copy(request), WAIT_S)
        except (ChannelClosed, AskTimeout):
            if request.code in ONCE:
                raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {GONE}") from None
            return None
        here = answer.code != ResponseCode.SERVICE_NOT_AVAILABLE or NOT_HERE not in (answer.remark or "")
        return answer if here else None


def _copy(request: RemotingCommand) -> RemotingCommand:
    """Return a request as it came, but for its remark."""
    ext = request.send.to_ext() if request.send is not None else request.ext
    return RemotingCommand(
        request.code, 0, request.flag, request.language, request.version, BY_A_FOLLOWER, ext, request.body,
        request.serialize_type,
    )  # fmt: skip
