"""Refused calls: counted by method and code, and told in the log where many clients tell their application nothing."""

import logging
from collections import Counter
from typing import Any

import trio

from appliance.grpc.clients import CLIENT_ID, LONGEST_ID
from netstack.grpc.calls import Call
from netstack.grpc.v2.definition_pb2 import Code
from netstack.serving.limits import LogLimiter

log = logging.getLogger("appliance.grpc")
MOST_LOGGED = 300  # characters of a reason
TOLD = frozenset((Code.UNAUTHORIZED, Code.FORBIDDEN))  # as remoting's; the others are an application's own


class Refusals:
    """Notes refusals; tells the first of an address and code in a minute."""

    def __init__(self, counted: Counter[tuple[str, str]]) -> None:
        self._counted, self._told = counted, LogLimiter(every_s=60.0)

    def note(self, method: str, call: Call, status: Any) -> None:
        """Count a refused call, and tell of it where a right is missing."""
        self._counted[method, Code.Name(status.code)] += 1
        if status.code in TOLD:
            self._tell(f"grpc_request_refused method={method}", call, status)

    def note_settings(self, call: Call, status: Any) -> None:
        """Count and tell of settings that are refused."""
        self._counted["Telemetry", Code.Name(status.code)] += 1
        self._tell("grpc_settings_refused", call, status)

    def _tell(self, event: str, call: Call, status: Any) -> None:
        address, code = call.peer.remote[0], Code.Name(status.code)
        if (more := self._told.line_end(address, code, trio.current_time())) is not None:
            words = (event, address, call.text(CLIENT_ID)[:LONGEST_ID], code, status.message[:MOST_LOGGED], more)
            log.warning("event=%s peer=%s client=%r code=%s reason=%r%s", *words)
