"""Answers to sends, made from a template: all but four values of one is the same for every message of a broker."""

from struct import Struct
from typing import Final

import orjson

from netstack.wire.command import VERSION, RemotingCommand
from netstack.wire.frame import JSON
from netstack.wire.message_headers import SendMessageReply

_MARKS: Final = Struct(">ii")


class SendReplies:
    """Makes the answers of one broker."""

    def __init__(self, region: str, *, trace_on: bool) -> None:
        self._region, self._trace_on = region, trace_on
        common = SendMessageReply("", 0, 0, None, region, trace_on).to_ext()
        for name in ("msgId", "queueId", "queueOffset"):
            del common[name]
        more = orjson.dumps(common)[1:].replace(b"%", b"%%")
        self._template = (
            b'{"code":0,"extFields":{"msgId":"%b","queueId":"%d","queueOffset":"%d",'
            + more
            + b',"flag":1,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":'
            + b"%d}" % VERSION
        )

    def encoded(
        self, request: RemotingCommand, message_ids: bytes, queue_id: int, queue_offset: int
    ) -> bytes | RemotingCommand:
        """Return the whole frame that says where a message was stored; a command for who speaks the binary form."""
        if request.serialize_type != JSON:
            ids = message_ids.decode()
            ext = SendMessageReply(ids, queue_id, queue_offset, None, self._region, self._trace_on).to_ext()
            return request.reply(ext=ext)
        header = self._template % (message_ids, queue_id, queue_offset, request.opaque)
        size = len(header)
        return _MARKS.pack(4 + size, size) + header
