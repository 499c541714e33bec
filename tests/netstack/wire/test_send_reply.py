import pytest

from netstack.wire.command import RemotingCommand, decode_command, encode_command, request
from netstack.wire.frame import FrameDecoder
from netstack.wire.message_headers import SendMessageReply
from netstack.wire.send_reply import SendReplies


@pytest.mark.parametrize(("region", "trace_on"), [("DefaultRegion", True), ('100 % "Süd"', False)])
def test_the_template_says_what_the_command_would(region: str, trace_on: bool) -> None:
    replies = SendReplies(region, trace_on=trace_on)
    asked = request(310)
    for opaque, ids, queue_id, queue_offset in (
        (1, "7F00000100002A9F00000000000003E8", 3, 42),
        (-5, "A,B", 0, 1 << 40),
    ):
        asked.opaque = opaque
        ext = SendMessageReply(ids, queue_id, queue_offset, None, region, trace_on)
        frame = replies.encoded(asked, ids.encode(), queue_id, queue_offset)
        assert isinstance(frame, bytes)
        decoder = FrameDecoder()
        decoder.feed(frame)
        found = decoder.next_frame()
        assert found is not None
        assert decode_command(found) == asked.reply(ext=ext)
        assert len(frame) <= len(encode_command(asked.reply(ext=ext)))


def test_who_asks_in_binary_is_answered_in_binary() -> None:
    asked = RemotingCommand(310, 9, serialize_type=1)
    reply = SendReplies("R", trace_on=True).encoded(asked, b"ID", 1, 2)
    assert reply == asked.reply(ext=SendMessageReply("ID", 1, 2, None, "R", True))
