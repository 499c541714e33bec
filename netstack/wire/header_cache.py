"""Headers of sends that were seen before, except for the three values that change with every message.

A producer writes the same JSON for each message to a queue, except for time, properties and opaque. What surrounds
them is looked up instead of being parsed again, which was a quarter of all that a send costs. A header that does not
look as Java writes it takes the ordinary way, and so does a signed one.
"""

import re
from typing import Any, Final

import orjson

from netstack.errors import Refused
from netstack.wire.command import MAX_EXT_FIELDS, RemotingCommand, decode_command
from netstack.wire.frame import JSON, Frame
from netstack.wire.message_headers import SendMessageHeader

MOST_REMEMBERED: Final = 4096  # of all connections of a process: one per producer group and queue that is sent to
MOST_BYTES: Final = 4096  # of a header that is worth a look
MOST_KEPT: Final = 768  # of one that is remembered: room for the longest names Java allows, and 10 MB for all
_SPLIT: Final = re.compile(
    rb'(\{"code":3[12]0,"extFields":\{"a":"[^"]*","b":"[^"]*","c":"[^"]*","d":"\d+","e":"\d+","f":"\d+","g":")(\d{1,15})'
    rb'(","h":"\d+","i":)("[^"]*")(,"j":[^}]*\},"flag":\d,"language":"[A-Z]+","opaque":)(\d{1,9})(,[^}]*\})'
).fullmatch  # the variable parts are those of time, properties and opaque
_LOADS: Final = orjson.loads
Constant = tuple[bytes, bytes, bytes, bytes]


class _Seen:
    """A command with its header, of which time, properties and opaque change with every message."""

    __slots__ = ("_command", "_header")

    def __init__(self, command: RemotingCommand, header: SendMessageHeader) -> None:
        self._command, self._header = command, header

    def with_changed(self, born_ms: int, properties: str, opaque: int, body: bytes) -> RemotingCommand:
        """Return the command of another message."""
        was, h = self._command, self._header
        send = SendMessageHeader(
            h.producer_group, h.topic, h.default_topic, h.default_queue_count, h.queue_id, h.sys_flag, born_ms, h.flag,
            properties, h.reconsume_times, h.unit_mode, h.max_reconsume_times, h.batch, h.broker_name,
        )  # fmt: skip
        return RemotingCommand(was.code, opaque, was.flag, was.language, was.version, None, None, body, JSON, send)


class HeaderCache:
    """What the connections of a process have sent. `decode` says what `decode_command` does, in `send` or in `ext`."""

    def __init__(self, max_ext: int = MAX_EXT_FIELDS) -> None:
        self._max_ext = max_ext
        self._seen: dict[Constant, _Seen] = {}

    def decode(self, frame: Frame) -> RemotingCommand:
        """Return what the frame says. Raises ProtocolError."""
        header = frame.header
        parts = _SPLIT(header) if frame.kind == JSON and len(header) <= MOST_BYTES else None
        if parts is None:
            return decode_command(frame, self._max_ext)
        groups: tuple[Any, ...] = parts.groups()
        constant: Constant = groups[0], groups[2], groups[4], groups[6]
        seen = self._seen.get(constant)
        if seen is None:
            command = decode_command(frame, self._max_ext)
            self._remember(constant, command)
            return command
        try:
            text: str = _LOADS(groups[3])
        except orjson.JSONDecodeError:  # ends in an escaped quote
            return decode_command(frame, self._max_ext)
        return seen.with_changed(int(groups[1]), text, int(groups[5]), frame.body)

    def _remember(self, constant: Constant, command: RemotingCommand) -> None:
        if len(self._seen) >= MOST_REMEMBERED:
            del self._seen[next(iter(self._seen))]  # the oldest
        if command.remark is not None or max(map(len, command.ext), default=0) > 1:  # a signature differs every time
            return
        if sum(map(len, constant)) > MOST_KEPT:
            return
        try:
            header = SendMessageHeader.from_ext(command.ext)
        except Refused:
            return  # by its handler, every time
        alike = RemotingCommand(command.code, 0, command.flag, command.language, command.version)
        header.properties = ""
        self._seen[constant] = _Seen(alike, header)
