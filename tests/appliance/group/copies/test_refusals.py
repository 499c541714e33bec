"""A leader knows why a follower takes nothing, as long as that is so."""

import pytest

from appliance.group.copies.refusals import CopyRefusals
from appliance.group.links.frames import COPY_REFUSES, HEAD, MOST_TEXT, LinkFrame, LinkFrameDecoder
from uplink_spark.errors import ProtocolError


class Wire:
    """A link whose frames arrive at once."""

    def __init__(self) -> None:
        self.frames: list[LinkFrame] = []
        self._decoder = LinkFrameDecoder(most_record_bytes=0, with_bytes=frozenset())

    def put(self, frame: bytes, /) -> None:
        self.frames += self._decoder.feed(frame)


def test_what_is_new_is_told_once_and_anew_over_another_link() -> None:
    follower, leader, wire = CopyRefusals(), CopyRefusals(), Wire()
    follower.tell(wire, None, "")
    assert not wire.frames, "nothing to tell"
    for full, refused in (("97 % used", ""), ("97 % used", ""), (None, "a damaged record"), (None, ""), (None, "")):
        follower.tell(wire, full, refused)
    told = []
    for frame in wire.frames:
        leader.heard("b", frame)
        told.append(leader.of("b"))
    assert told == [
        "has no space: 97 % used (make room on its disk, it continues automatically then)",
        "takes nothing: a damaged record",
        "",
    ]
    follower.tell(wire, "full", "")
    other = Wire()
    follower.tell(other, "full", "")
    assert len(other.frames) == 1


def test_a_leader_that_leads_again_hears_that_there_is_room() -> None:
    follower, first, wire, other = CopyRefusals(), CopyRefusals(), Wire(), Wire()
    for link, full in ((wire, "full"), (other, "full"), (other, None), (wire, None), (wire, None)):
        follower.tell(link, full, "")
    for frame in wire.frames:
        first.heard("b", frame)
    assert (len(wire.frames), first.of("b")) == (2, "")


def test_a_member_that_is_gone_has_told_nothing() -> None:
    follower, leader, wire = CopyRefusals(), CopyRefusals(), Wire()
    follower.tell(wire, "x" * 5000, "")
    leader.heard("b", wire.frames[0])
    assert len(leader.of("b")) == MOST_TEXT
    leader.forget("b")
    leader.forget("b")
    assert leader.of("b") == ""


def test_garbage_is_refused() -> None:
    with pytest.raises(ProtocolError):
        CopyRefusals().heard("b", LinkFrame(COPY_REFUSES, b"\xff" * HEAD.size))
