"""The bytes of a range that comes again are compared with those that landed, however both were cut."""

from __future__ import annotations

import errno

import pytest

from uplink_spark.centre.zone_files.contents import ContentCheck, LandedRange, meet
from uplink_spark.errors import Refused
from uplink_spark.testing import SOURCE, MadeRecord, encode_log, raw_piece
from uplink_spark.wire.batch import decode_header

SIZE = len(encode_log([MadeRecord()]))
RAW = encode_log([MadeRecord(queue_offset=n) for n in range(20)])
OTHER = encode_log([MadeRecord(queue_offset=n, body=b"OTHER" if n == 7 else b"hello") for n in range(20)])


def cut(raw: bytes, first: int, last: int) -> bytes:
    return raw_piece(raw[first * SIZE : last * SIZE], first * SIZE)[1]


def check(container: bytes, *landed: bytes, read: bool = True, mates: tuple[bytes, ...] = ()) -> list[bytes]:
    """Return what was kept; raises what the check raises."""
    kept = list[bytes]()
    places = []
    for number, one in enumerate(landed):
        header = decode_header(one)[0]
        places.append(LandedRange(header.epoch, "log", header.start, header.end, str(number), 0, len(one)))

    def fetch(path: str, _at: int, _length: int) -> bytes:
        if not read:
            raise OSError(errno.ENOENT, "gone")
        return landed[int(path)]

    ContentCheck(fetch, lambda _box, data, _now: kept.append(data)).check(container, places, mates, 1)
    return kept


@pytest.mark.parametrize(("first", "last"), [(0, 20), (5, 9), (7, 8), (6, 20)])
def test_other_bytes_anywhere_in_what_is_held_are_refused_with_both_digests(first: int, last: int) -> None:
    other = cut(OTHER, first, last)
    with pytest.raises(Refused) as refused:
        check(other, cut(RAW, 0, 4), cut(RAW, 4, 12))
    assert (refused.value.code, refused.value.keys["fork"]) == ("diverged", first * SIZE)
    assert decode_header(other)[0].sha.hex() in refused.value.text
    assert decode_header(cut(RAW, 4, 12))[0].sha.hex() in refused.value.text


@pytest.mark.parametrize(("first", "last"), [(0, 20), (3, 9), (12, 20)])
def test_the_same_bytes_pass_however_they_are_cut(first: int, last: int) -> None:
    assert check(cut(RAW, first, last), cut(RAW, 0, 4), cut(RAW, 4, 12)) == []


def test_what_comes_in_the_same_commit_is_compared_too() -> None:
    with pytest.raises(Refused):
        check(cut(OTHER, 5, 9), mates=(cut(RAW, 0, 8),))


def test_what_cannot_be_read_any_more_is_not_compared() -> None:
    assert check(cut(OTHER, 0, 20), cut(RAW, 0, 20), read=False) == []


def test_ranges_meet_only_in_one_epoch_and_kind() -> None:
    header = decode_header(cut(RAW, 4, 8))[0]
    assert meet(header, SOURCE.epoch, "log", 0, 4 * SIZE + 1)
    assert not meet(header, SOURCE.epoch, "log", 0, 4 * SIZE)
    assert not meet(header, SOURCE.epoch, "pick", 0, 20 * SIZE)
    assert not meet(header, SOURCE.epoch + 1, "log", 0, 20 * SIZE)
