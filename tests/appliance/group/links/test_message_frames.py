"""Messages of the core come back as they were; bytes that changed on their way do not come at all."""

from zlib import crc32

import pytest

from appliance.group.links.frames import MOST_HEAD, LinkFrame, LinkFrameDecoder
from appliance.group.links.message_frames import APPEND, KINDS, decode_message, encode_message
from storage_driver.consensus import messages as m
from storage_driver.consensus.members import Members, MembersAt
from storage_driver.consensus.terms import Row
from storage_driver.record import BLANK, MAGIC_BLANK
from uplink_spark.errors import ProtocolError

LATER = Members(("a", "b"), ("w",), ("c",), ("c=10.0.0.3:10912",))
CONFIGS = (MembersAt(-1, Members(("a", "b"))), MembersAt(500, LATER))
ROWS = (Row(1, 0), Row(4, 700))
BYTES = b"whole records" * 10
APPENDED = m.Append(7, 1000, len(BYTES), 5, 700, 5, crc32(BYTES), 900, CONFIGS)
ALL = [
    m.PreVote(7, 5, 1000),
    m.PreVoteReply(7, 8, granted=True),
    m.Vote(7, 5, 1000, transfer=True),
    m.VoteReply(7, granted=False),
    m.LeaderHeartbeat(7, 900, -1, 1234.5),
    m.FollowerReply(7, 1234.5, -1),
    m.FollowerReply(7, 1234.5, 900),
    m.Position(7, ROWS, 0, 1000),
    m.Match(7, 5, 1000, 900, ROWS, CONFIGS, 1000),
    m.Unrelated(7, "no term in common"),
    m.Synced(7, 1000),
    m.WitnessRow(7, 5, 1000),
    m.WitnessSynced(7, 5, 1000),
    m.CampaignNow(7),
    m.Outdated(9),
]


def through(frame: bytes) -> LinkFrame:
    [found] = LinkFrameDecoder(most_record_bytes=1 << 20, with_bytes=frozenset({APPEND})).feed(frame)
    return found


@pytest.mark.parametrize("message", ALL, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_as_it_was(message: m.Message) -> None:
    assert decode_message(through(encode_message(message))) == message


def test_each_message_has_a_type_of_its_own() -> None:
    assert {type(message) for message in [*ALL, APPENDED]} == KINDS.keys()
    assert len(set(KINDS.values())) == len(KINDS)


def test_an_append_comes_with_its_bytes_or_not_at_all() -> None:
    frame = through(encode_message(APPENDED, BYTES))
    assert (decode_message(frame), frame.data) == (APPENDED, BYTES)
    for changed in (BYTES[:-1], BYTES + b"x", b"", b"W" + BYTES[1:]):
        with pytest.raises(ProtocolError, match="append"):
            decode_message(through(encode_message(APPENDED, changed)))


def test_an_append_covers_the_blank_whose_head_it_ends_with() -> None:
    for size in (8, 9, 5000):
        data = BYTES + BLANK.pack(size, MAGIC_BLANK)
        append = APPENDED._replace(length=len(BYTES) + size, crc=crc32(data))
        assert decode_message(through(encode_message(append, data))) == append
        with pytest.raises(ProtocolError, match="came with"):
            decode_message(through(encode_message(append._replace(length=append.length + 1), data)))


@pytest.mark.parametrize(
    "changed",
    [
        m.Position(7, (Row(2, 5), Row(1, 9)), 0, 1000),
        m.Position(7, tuple(Row(term, term) for term in range(1, 1026)), 0, 1000),
        m.Match(7, 5, 1000, 900, (), tuple(MembersAt(at, Members(("a",))) for at in range(65)), 1000),
        m.Match(7, 5, 1000, 900, (), (MembersAt(0, Members(("a" * 17,))),), 1000),
        m.Match(7, 5, 1000, 900, (), (MembersAt(0, Members(("",))),), 1000),
        m.Match(7, 5, 1000, 900, (), (MembersAt(0, Members(())),), 1000),
        m.Match(7, 5, 1000, 900, (), (MembersAt(0, Members(("a", "b"), ("a",))),), 1000),
        m.Match(7, 5, 1000, 900, (), (MembersAt(0, Members(("a",), (), (), ("b=h:1",) * 6)),), 1000),
        m.Match(7, 5, 1000, 900, (), (MembersAt(0, Members(("a",), (), (), ("b" * 73,))),), 1000),
    ],
)
def test_tables_that_cannot_be_are_refused(changed: m.Message) -> None:
    with pytest.raises(ProtocolError):
        decode_message(through(encode_message(changed)))


def test_the_largest_tables_fit_a_head() -> None:
    rows = tuple(Row(term, (1 << 50) + term) for term in range(1, 1025))
    members = Members(tuple(f"a member {number:07d}" for number in range(16)), (), (), ("x" * 72,) * 5)
    configs = tuple(MembersAt((1 << 50) + at, members) for at in range(64))
    frame = through(encode_message(m.Match(7, 5, 1000, 900, rows, configs, 1000)))
    assert len(frame.head) <= MOST_HEAD
    assert decode_message(frame) == m.Match(7, 5, 1000, 900, rows, configs, 1000)


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(ProtocolError, match="is not known"):
        decode_message(LinkFrame(0x7F, b"\xa0"))
