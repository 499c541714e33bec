"""A leader hears of each cut once, and keeps the newest."""

import pytest

from appliance.group.copies.cut_news import MOST_KEPT, MOST_TOLD, CutNews, decode_cuts, merge_cuts, note_cuts
from appliance.group.links.frames import CUTS, LinkFrame, LinkFrameDecoder, encode_frame
from appliance.testing import MemoryStateFile
from storage_driver.log.cut_history import CutDone
from storage_driver.log.lineage import CutTold, Lineage
from uplink_spark.errors import ProtocolError


class Link:
    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def put(self, frame: bytes) -> None:
        self.frames.append(frame)


def cut(start: int, messages: int = 1) -> CutDone:
    return CutDone(start, start + 10, "others lead", ["kept"], at_ms=1000 + start, messages=messages)


def lineage() -> Lineage:
    made = Lineage(MemoryStateFile(), lambda: 1)  # type: ignore[arg-type]
    made.epochs = [(7, 0), (8, 50)]
    return made


def decoded(frame: bytes) -> LinkFrame:
    return LinkFrameDecoder(most_record_bytes=0, with_bytes=frozenset()).feed(frame)[0]


def test_a_follower_tells_once_over_each_link_and_again_when_there_is_more() -> None:
    news, link, other = CutNews(), Link(), Link()
    news.tell(link, [])
    news.tell(link, [cut(20), cut(30, messages=0)])
    news.tell(link, [cut(20), cut(30, messages=0)])
    news.tell(link, [cut(20), cut(30, messages=0), cut(50)])
    news.tell(other, [cut(20)])
    told = [decode_cuts(decoded(frame)) for frame in link.frames]
    assert told == [[(20, 30, 1020, 1)], [(20, 30, 1020, 1), (50, 60, 1050, 1)]], "records of the group itself are none"
    assert len(other.frames) == 1


def test_a_leader_names_the_epoch_that_the_bytes_were_of() -> None:
    made = lineage()
    note_cuts(made, "a", [(50, 60, 1000, 3)])
    note_cuts(made, "a", [cut(60), cut(70, messages=0)])
    note_cuts(made, "a", [(50, 60, 1000, 3)])
    assert made.cuts == [CutTold("a", 7, 50, 60, 1000, 3), CutTold("a", 8, 60, 70, 1060, 1)]
    merge_cuts(made, [CutTold("b", 7, at, at + 1, 2000 + at, 1) for at in range(2 * MOST_KEPT)])
    assert (len(made.cuts), made.cuts[-1].start) == (MOST_KEPT, 2 * MOST_KEPT - 1)


@pytest.mark.parametrize(
    "rows",
    [
        [[1, 1, 0, 0]],
        [[1, 2, 0]],
        [[-1, 2, 0, 0]],
        [[1, 2, -1, 0]],
        [[1, 2, 0, -1]],
        [[1, 2, 0, "x"]],
        [[1, 2, 0, 0]] * (MOST_TOLD + 1),
    ],
)
def test_what_cannot_be_is_no_news(rows: list[list[object]]) -> None:
    with pytest.raises(ProtocolError, match="CUTS"):
        decode_cuts(decoded(encode_frame(CUTS, {"cuts": rows})))
