"""From log bytes to pieces: borders, blanks, large records, damage in durable bytes, the express lane's selection."""

from __future__ import annotations

import pytest

from uplink_spark.box.cutting.cutter import CutOrder, CutPiece, cut_piece
from uplink_spark.testing import SOURCE, MadeRecord, encode_log
from uplink_spark.wire.batch import MAX_RAW_BYTES, open_piece

SIZE = 97
FAR = 1 << 40


def cut(log: bytes, start: int, limit: int | None = None, **more: object) -> CutPiece:
    settings: dict[str, object] = {"file_end": FAR, "max_bytes": 4 << 20, "codec": "zstd"} | more
    order = CutOrder(SOURCE, start, len(log) if limit is None else limit, **settings)  # type: ignore[arg-type]
    return cut_piece(lambda at, length: log[at : min(at + length, at + 1000)], order)


def raw_of(piece: CutPiece) -> bytes:
    return open_piece(piece.frame[5:]).raw()


def test_a_piece_ends_at_the_last_whole_record_below_its_limit() -> None:
    log = encode_log([MadeRecord()] * 50)
    piece = cut(log, SIZE, max_bytes=10 * SIZE + 5)
    assert (piece.header.start, piece.header.end, piece.header.records) == (SIZE, 11 * SIZE, 10)
    assert raw_of(piece) == log[SIZE : 11 * SIZE]


def test_a_record_larger_than_a_piece_goes_alone() -> None:
    log = encode_log([MadeRecord(body=bytes(200_000)), MadeRecord()])
    assert cut(log, 0, max_bytes=1000).header.records == 1


def test_the_blank_that_ends_a_file_belongs_to_the_piece() -> None:
    log = encode_log([MadeRecord()] * 3)
    full = log + (576).to_bytes(4, "big") + bytes.fromhex("cbd43194") + bytes(568)
    piece = cut(full, 0, file_end=len(full))
    assert (piece.header.end, piece.header.raw_bytes, piece.damage) == (len(full), len(log), None)
    alone = cut(full, len(log), file_end=len(full))
    assert (alone.header.end - alone.header.start, alone.header.raw_bytes, alone.header.records) == (576, 0, 0)


def test_damage_in_durable_bytes_goes_as_a_blob_up_to_the_next_good_record() -> None:
    log = bytearray(encode_log([MadeRecord(queue_offset=n) for n in range(6)]))
    log[2 * SIZE + 4] ^= 0xFF  # the magic of the third record
    first = cut(bytes(log), 0)
    blob = cut(bytes(log), 2 * SIZE)
    rest = cut(bytes(log), blob.header.end)
    assert (first.header.kind, first.header.end) == ("log", 2 * SIZE)
    assert (blob.header.kind, blob.header.end) == ("blob", 3 * SIZE)
    assert blob.damage is not None
    assert (rest.header.kind, rest.header.records) == ("log", 3)


@pytest.mark.parametrize("at", [0, 1, 4, 30])
def test_each_broken_field_ends_in_a_blob_and_the_rest_is_exact(at: int) -> None:
    log = bytearray(encode_log([MadeRecord(queue_offset=n) for n in range(6)]))
    log[2 * SIZE + at] ^= 0x41
    start, kinds = 0, []
    while start < len(log):
        piece = cut(bytes(log), start)
        kinds.append((piece.header.kind, piece.header.start // SIZE, piece.header.end // SIZE))
        start = piece.header.end
    assert kinds == [("log", 0, 2), ("blob", 2, 3), ("log", 3, 6)]


def test_damage_to_the_end_is_one_blob() -> None:
    log = encode_log([MadeRecord()]) + bytes(5000)
    piece = cut(log, SIZE)
    assert (piece.header.kind, piece.header.end) == ("blob", len(log))
    assert piece.header.raw_bytes <= MAX_RAW_BYTES


def test_the_express_lane_takes_only_its_records_and_names_its_topics() -> None:
    log = encode_log([MadeRecord(topic="ab"[n % 2], queue_offset=n) for n in range(10)])
    piece = cut(log, 0, pick=("b",))
    assert (piece.header.kind, piece.header.pick, piece.header.records) == ("pick", ("b",), 5)
    assert piece.header.end == len(log)
    assert raw_of(piece) == b"".join(log[n * SIZE :][:SIZE] for n in range(1, 10, 2))
    none = cut(log, 0, pick=("c",))
    assert (none.header.records, none.header.raw_bytes, none.header.end) == (0, 0, len(log))


@pytest.mark.parametrize("first", [0, 2])
def test_a_body_that_is_not_what_was_stored_is_a_blob_and_the_rest_is_exact(first: int) -> None:
    log = bytearray(encode_log([MadeRecord(queue_offset=n, body=bytes(300)) for n in range(first + 3)]))
    size = len(log) // (first + 3)
    log[first * size + 150] ^= 0xFF
    if first:
        before = cut(bytes(log), 0)
        assert (before.header.kind, before.header.end, before.damage) == ("log", first * size, None)
    blob = cut(bytes(log), first * size)
    assert (blob.header.kind, blob.header.start, blob.header.end) == ("blob", first * size, (first + 1) * size)
    assert "does not match its CRC" in str(blob.damage)
    assert cut(bytes(log), blob.header.end).header.records == 2
