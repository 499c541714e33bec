"""Asks the box's own ports what a client would ask: the proof that requests are still answered."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import trio

from appliance.errors import ApplianceError
from netstack.errors import AskTimeout, ChannelClosed, ProtocolError
from netstack.serving.channel import open_channel
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from storage_driver.named_tuple import NamedTuple

PROBE_TOPIC = "RBX_PROBE"
ASK_S = 5.0
LOST = (AskTimeout, ChannelClosed, ProtocolError, trio.BrokenResourceError, trio.ClosedResourceError)
ANSWERED = frozenset({ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST})


class LocalCredentials(NamedTuple):
    """How the box gets through its own doors: what signs its requests, and TLS where plain text is refused."""

    sign: Callable[[RemotingCommand], RemotingCommand] | None = None
    tls: ssl.SSLContext | None = None

    def signed(self, request: RemotingCommand) -> RemotingCommand:
        return self.sign(request) if self.sign else request


PLAIN = LocalCredentials()


class Probe:
    """Where the two own ports are reached on this machine."""

    def __init__(self, host: str, broker_port: int, namesrv_port: int, way: LocalCredentials = PLAIN) -> None:
        self.host, self.broker_port, self.namesrv_port, self._way = host, broker_port, namesrv_port, way

    async def __call__(self) -> bool:
        """Return whether both ports answered, each over a fresh connection."""
        ext = {"topic": PROBE_TOPIC, "queueId": "0"}
        offset = RemotingCommand(RequestCode.GET_MIN_OFFSET, ext=ext)  # in a group only the leader tells ends
        broker = await answered(self.host, self.broker_port, offset, self._way)
        route = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext={"topic": PROBE_TOPIC})
        return broker and await answered(self.host, self.namesrv_port, route, self._way)

    async def ask(self, command: RemotingCommand) -> RemotingCommand:
        """Return the broker's answer to a request of the box itself. Raises OwnPortSilent."""
        answer: RemotingCommand | None = None
        try:
            async with open_channel(self.host, self.broker_port, tls=self._way.tls, connect_timeout_s=ASK_S) as channel:
                answer = await channel.ask(self._way.signed(command), ASK_S)
        except* (OSError, *LOST):
            pass
        if answer is None:
            text = f"port {self.broker_port} did not answer within {ASK_S:g} s; check before a retry:"
            raise OwnPortSilent(f"{text} the request may have been executed")
        return answer


class OwnPortSilent(ApplianceError):
    """The box's own broker port does not answer."""


async def answered(host: str, port: int, request: RemotingCommand, way: LocalCredentials = PLAIN) -> bool:
    """Tell whether a request is answered with a code a working box gives."""
    code = -1
    try:
        async with open_channel(host, port, tls=way.tls, connect_timeout_s=ASK_S) as channel:
            code = (await channel.ask(way.signed(request), ASK_S)).code
    except* (OSError, *LOST):
        pass
    return code in ANSWERED
