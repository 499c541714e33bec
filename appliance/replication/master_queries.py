"""What a slave asks of its master's broker port, beside the log.

Source: RocketMQ 4.9.7 SlaveSynchronize, BrokerOuterAPI.
"""

import re
from collections.abc import Mapping
from typing import Any

import trio

from appliance.replication.following import MasterEdges
from netstack.errors import ProtocolError, Refused
from netstack.serving.channel import open_channel
from netstack.wire import fastjson
from netstack.wire.bodies_route import KvTable, read_properties
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand, request
from netstack.wire.replication import HIGHEST, TimerCheckpoint

ASK_S = 10.0
SEGMENT_BYTES = "mappedFileSizeCommitLog"
MAY_BE_EMPTY = (RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET)  # then the answer is code 1
_NUMBER_KEY = re.compile(rb"([{,]\s*)(-?\d+):")  # Java writes the numbers of queues and levels as bare keys


def read_table(body: bytes, name: str) -> Mapping[str, Any]:
    """Return one table of a body, keys as text. Raises ProtocolError."""
    whole = fastjson.loads(_NUMBER_KEY.sub(rb'\1"\2":', body), fastjson.FROM_SERVER)
    table = whole.get(name) if isinstance(whole, dict) else None
    if not isinstance(table, dict):
        raise ProtocolError(f"the master's answer has no {name}")
    return table


def read_edges(runtime: bytes, settings: bytes) -> MasterEdges:
    """Return where a log begins and ends, as its master says with codes 28 and 26. Raises ProtocolError."""
    try:
        table = KvTable.from_bytes(runtime).table
        first, end = max(0, int(table["commitLogMinOffset"])), int(table["commitLogMaxOffset"])  # -1: it has no file
        text = read_properties(settings).get(SEGMENT_BYTES, "")
        size = int(text) if text.isdecimal() else None
    except (KeyError, ValueError, Refused) as exc:
        raise ProtocolError(f"the master does not say where its log begins and ends: {exc}") from exc
    if not first <= end < HIGHEST:
        raise ProtocolError(f"the master says that its log goes from {first} to {end}")
    return MasterEdges(first, end, size)


class MasterQueries:
    """Asks one master, over a connection for each question."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    async def edges(self) -> MasterEdges:
        """Return where the master's log begins and ends. Raises OSError, AskTimeout, ChannelClosed, ProtocolError."""
        said = await self._ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        return read_edges(said.body, (await self._ask(RequestCode.GET_BROKER_CONFIG)).body)

    async def record_at(self, log_offset: int) -> bytes:
        """Return the record that begins there, as the master has it. Raises as `edges`."""
        return (await self._ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=str(log_offset))).body

    async def timers(self) -> TimerCheckpoint | None:
        """Return what the master has delivered of timed messages, None when it has none (4.9). Raises as `edges`."""
        code = RequestCode.GET_TIMER_CHECK_POINT
        answer = await self._answer(code)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        return TimerCheckpoint.from_bytes(_checked(code, answer).body)

    async def table(self, code: int, name: str) -> Mapping[str, Any]:
        """Return a table that the master gives its slaves. Raises as `edges`."""
        answer = await self._answer(code)
        if answer.code == ResponseCode.SYSTEM_ERROR and code in MAY_BE_EMPTY:
            return {}
        body = _checked(code, answer).body
        return await trio.to_thread.run_sync(read_table, body, name)

    async def _ask(self, code: int, **ext: str) -> RemotingCommand:
        return _checked(code, await self._answer(code, **ext))

    async def _answer(self, code: int, **ext: str) -> RemotingCommand:
        async with open_channel(self.host, self.port) as channel:
            return await channel.ask(request(code, ext), ASK_S)


def _checked(code: int, answer: RemotingCommand) -> RemotingCommand:
    if answer.code != ResponseCode.SUCCESS:
        raise ProtocolError(f"the master refused request code {code}: code {answer.code}, {answer.remark}")
    return answer
