"""A follower knows how many acknowledged messages it has not: never more than there are."""

import random
from pathlib import Path

import pytest

from appliance.group.copies.lag import LogAges
from appliance.group.copies.missing import MOST_NOTES, Missing, MissingMessages, count_messages, decode_missing
from appliance.group.links.frames import LinkFrame, LinkFrameDecoder
from storage_driver.store import open_store
from tests.storage_driver.test_store import Clock, message, small
from uplink_spark.errors import ProtocolError
from uplink_spark.wire.cbor import encode_map


def told(notes: MissingMessages, synced: int) -> Missing | None:
    """Return what a follower is told."""
    frame = notes.frame("b", synced)
    decoder = LinkFrameDecoder(most_record_bytes=0, with_bytes=frozenset())
    return decode_missing(decoder.feed(frame)[0]) if frame is not None else None


def test_a_follower_is_told_what_it_has_not_and_once_that_it_has_everything() -> None:
    leader, follower = MissingMessages(LogAges()), MissingMessages(LogAges())
    for committed, messages in ((100, 7), (300, 9), (900, 14)):
        leader.note(committed, messages)
    assert told(leader, 900) is None
    missing = told(leader, 300)
    assert missing == Missing(300, 900, 5)
    assert told(leader, 299) == Missing(299, 900, 6), "a message that it has in part is missing"
    assert told(leader, 600) == Missing(600, 900, 3), "half of a batch, by its bytes"
    assert told(leader, 50) == Missing(50, 900, 7), "what was before the first note is not known"
    follower.heard(missing)
    assert follower.messages(300, 0) == 5
    assert follower.got(700) == (300, 400)
    assert follower.messages(700, 3) == 2
    assert follower.messages(900, 5) == 0
    assert told(leader, 900) == Missing(900, 900, 0)
    assert told(leader, 900) is None


def test_notes_stay_few_and_count_well() -> None:
    leader, ends = MissingMessages(LogAges()), list(range(10, 10 * 20_000, 10))
    for end in ends:
        leader.note(end, end // 10)
    assert len(leader._notes) <= MOST_NOTES
    for synced in random.Random(3).sample(ends, 200):
        missing = told(leader, synced)
        assert missing == Missing(synced, ends[-1], ends[-1] // 10 - synced // 10)


async def test_messages_of_clients_are_counted_and_those_of_the_group_are_not(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        for number in range(5):
            store.put(message(b"%d" % number)._replace(topic="RBX_STATE" if number == 2 else "T"))
        await store.wait_committed(store.end)
        data = store.read_log(0, store.end)
        assert count_messages(data, 0) == 4
        assert count_messages(data[:-1], 0) == 3
        assert count_messages(data, 8) == 0


def test_a_frame_that_is_none_is_refused() -> None:
    with pytest.raises(ProtocolError):
        decode_missing(LinkFrame(0x0B, encode_map({"synced": -1, "committed": 2, "messages": 3})))
