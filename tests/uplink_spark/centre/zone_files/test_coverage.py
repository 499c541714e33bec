"""What is new of a piece, against a model of single bytes; and a state that is what its entries add up to."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uplink_spark.centre.verify import Verified, verify_piece
from uplink_spark.centre.zone_files.coverage import KEPT_IDS, ShardCover
from uplink_spark.errors import ManifestDamaged, Refused
from uplink_spark.testing import SOURCE, MadeRecord, encode_log, raw_piece
from uplink_spark.wire.batch import PieceContents, encode_piece
from uplink_spark.wire.cbor import encode_map
from uplink_spark.wire.frames import MAX_HOLES
from uplink_spark.zone.manifest import ManifestEntry, Placement, entry_of

SIZE = 97
RAW = encode_log([MadeRecord(queue_offset=n) for n in range(300)])


def log(first: int, last: int) -> Verified:
    return verify_piece(raw_piece(RAW[first * SIZE : last * SIZE], first * SIZE, codec="none")[1], lambda _: None)


def gap(start: int, end: int, number: int = 1) -> Verified:
    facts: dict[str, object] = {"id": [7, number], "class": "rejected", "reason": "disk_full"}
    _, container = encode_piece(SOURCE, PieceContents("gap", start, end, encode_map(facts)), "none")
    return verify_piece(container, lambda _: None)


def entries(piece: Verified, parts: tuple[tuple[int, int], ...], seq: int = 0) -> list[ManifestEntry]:
    made = []
    for start, end in parts:
        place = Placement(seq, "pack/0000/2023-11-14/x.pack", 0, start, end, 1_700_000_000_000, 0)
        made.append(entry_of(piece.header, len(piece.container), place, piece.gap))
    return made


def land(cover: ShardCover, piece: Verified) -> tuple[tuple[int, int], ...]:
    parts = cover.draft().judge(piece).parts
    for entry in entries(piece, parts):
        cover.note(entry)
    return parts


Pieces = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6), st.booleans()), max_size=8)


@settings(max_examples=40)
@given(Pieces, st.integers(1, 8))
def test_every_record_is_new_once_whatever_overlaps_and_however_commits_are_grouped(
    told: list[tuple[int, int, bool]], group: int
) -> None:
    cover, landed, lost = ShardCover(), set[int](), set[int]()
    for at in range(0, len(told), group):
        draft, accepted = cover.draft(), []
        for first, count, is_gap in told[at : at + group]:
            piece = gap(first * SIZE, (first + count) * SIZE) if is_gap else log(first, first + count)
            judged = draft.judge(piece)
            new = {record for start, end in judged.parts for record in range(start // SIZE, end // SIZE)}
            wanted = set(range(first, first + count))
            assert new == (wanted - landed - lost if is_gap else wanted - landed)
            assert judged.heals == int(not is_gap and bool(new & lost))
            (lost if is_gap else landed).update(new)
            accepted += entries(piece, judged.parts)
        for entry in accepted:
            cover.note(entry)
    held = {record for _, start, end in cover_have(cover) for record in range(start // SIZE, end // SIZE)}
    assert held == landed | lost
    assert restored(cover).encode(9) == cover.encode(9)


def cover_have(cover: ShardCover) -> tuple[tuple[int, int, int], ...]:
    return cover.boxes["box-17"].have([SOURCE.epoch], "log") if cover.boxes else ()


def restored(cover: ShardCover) -> ShardCover:
    again = ShardCover()
    again.load(cover.encode(9), 9)
    return again


def test_a_commit_that_fails_leaves_no_trace() -> None:
    cover = ShardCover()
    draft = cover.draft()
    assert draft.judge(log(0, 4)).parts == ((0, 4 * SIZE),)
    assert draft.judge(log(2, 6)).parts == ((4 * SIZE, 6 * SIZE),)  # within the commit the first counts as held
    assert cover.draft().judge(log(0, 4)).parts == ((0, 4 * SIZE),)
    assert cover.boxes == {}


def test_the_express_lane_holds_its_own_and_declared_losses_count_in_both() -> None:
    cover = ShardCover()
    land(cover, gap(0, 2 * SIZE))
    land(cover, log(2, 4))
    box = cover.boxes["box-17"]
    assert box.have([SOURCE.epoch], "pick") == ((SOURCE.epoch, 0, 2 * SIZE),)
    assert box.have([SOURCE.epoch], "log") == ((SOURCE.epoch, 0, 4 * SIZE),)
    assert box.have([SOURCE.epoch + 1], "log") == ()
    assert (box.covered(SOURCE.epoch), box.covered(1)) == (4 * SIZE, 0)


def test_what_is_held_up_to_the_middle_of_a_record_is_another_history() -> None:
    cover = ShardCover()
    land(cover, gap(0, 3 * SIZE - 5))
    land(cover, log(10, 11))
    draft = cover.draft()
    assert draft.judge(log(2, 5)).parts == ((2 * SIZE, 5 * SIZE),)  # bytes win over a declared loss
    other = ShardCover()
    for entry in entries(log(0, 1), ((0, SIZE + 5),)):
        other.note(entry)
    with pytest.raises(Refused, match="another history") as raised:
        other.draft().judge(log(0, 3))
    assert (raised.value.code, raised.value.keys) == ("diverged", {"fork": 0})


def test_one_interval_too_many_is_refused_and_one_that_melts_two_is_not() -> None:
    cover = ShardCover()
    for number in range(MAX_HOLES):
        land(cover, log(2 * number, 2 * number + 1))
    with pytest.raises(Refused, match="send oldest first") as raised:
        cover.draft().judge(log(2 * MAX_HOLES, 2 * MAX_HOLES + 1))
    assert raised.value.code == "holes"
    assert land(cover, log(1, 2)) == ((SIZE, 2 * SIZE),)
    assert land(cover, log(2 * MAX_HOLES, 2 * MAX_HOLES + 1))


def test_a_rejected_gap_is_known_by_its_id_as_long_as_ids_are_kept() -> None:
    cover = ShardCover()
    draft = cover.draft()
    assert draft.judge(gap(50, 50, 1)).parts == ((50, 50),)
    assert draft.judge(gap(50, 50, 1)).parts == ()  # twice in one commit
    for number in range(1, KEPT_IDS + 2):
        assert land(cover, gap(50, 50, number)) == ((50, 50),)
    assert cover.draft().judge(gap(50, 50, KEPT_IDS + 1)).parts == ()
    assert cover.draft().judge(gap(50, 50, 2)).parts == ()
    assert cover.draft().judge(gap(50, 50, 1)).parts != ()  # forgotten: more than KEPT_IDS newer ones
    assert next(iter(restored(cover).boxes["box-17"].gap_ids)) == (7, 2)


@pytest.mark.parametrize("damage", ["byte", "cut", "empty", "seq"])
def test_a_state_that_is_not_whole_or_of_another_place_is_refused_and_changes_nothing(damage: str) -> None:
    cover = ShardCover()
    land(cover, log(0, 4))
    data = cover.encode(9)
    bad = {"byte": data[:-1] + bytes([data[-1] ^ 1]), "cut": data[:-1], "empty": b"", "seq": cover.encode(8)}[damage]
    with pytest.raises(ManifestDamaged):
        cover.load(bad, 9)
    assert cover_have(cover) == ((SOURCE.epoch, 0, 4 * SIZE),)
    assert cover.load(data, 9) == 1_700_000_000_000


def test_a_state_is_a_crc_and_a_map() -> None:
    body = bytes.fromhex("a3 617601 6373657105 65626f786573a0")
    assert ShardCover().encode(5) == zlib.crc32(body).to_bytes(4, "big") + body
