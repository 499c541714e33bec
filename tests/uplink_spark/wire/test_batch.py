"""The piece: golden bytes, every flipped byte, every length, hostile CBOR and compression."""

from __future__ import annotations

import struct

import pytest

from uplink_spark.box.cutting.scan import scan_records
from uplink_spark.errors import PieceDamaged
from uplink_spark.testing import SOURCE, MadeRecord, gap_piece, log_piece
from uplink_spark.wire.batch import (
    PieceContents,
    PieceSource,
    codec_for,
    decode_header,
    decompress,
    encode_piece,
    gap_map,
    open_piece,
)
from uplink_spark.wire.cbor import decode_map

V1 = bytes.fromhex(
    "00000061daa320a73610a686000000000000000000000000000000000000000000000000000000000000018bcfe56800"
    "7f0000010000c3500000018bcfe568017f00000100002a9f0000000000000000000000000000000568656c6c6f015400"
    "00"
)
GOLDEN = bytes.fromhex(
    "52425531000000ccb4616e0161760163626f7866626f782d313763636c6b01636372631ad9baffef636375741b0000018bcfe569f463656e641861636c656e18616372756e07637368615820"
    "9639ee636d06c3699b557a798594a54a0afc740e283fca336305afc1edfaef5364636c656e186164696c656e04646b696e64636c6f6764746d61781b0000018bcfe5680164746d696e1b0000"
    "018bcfe5680165636f646563646e6f6e656565706f63681b0123456789abcdef65737461727400667273746172740066746f70696373a1615482010500000061daa320a73610a68600000000"
    "0000000000000000000000000000000000000000000000000000018bcfe568007f0000010000c3500000018bcfe568017f00000100002a9f0000000000000000000000000000000568656c6c"
    "6f0154000061000000"
)


def golden() -> bytes:
    scan = scan_records(V1, 0, 4096)
    source = PieceSource("box-17", 0x0123456789ABCDEF, 7, 0, 0x18BCFE569F4, 1)
    contents = PieceContents("log", 0, 97, V1, scan.index(), scan.stored_ms_min, scan.stored_ms_max, scan.topics)
    return encode_piece(source, contents, "none")[1]


def test_the_golden_piece_comes_out_byte_for_byte() -> None:
    assert golden() == GOLDEN
    assert len(GOLDEN) == 313


def test_the_golden_piece_reads_back_as_written() -> None:
    piece = open_piece(GOLDEN)
    raw = piece.raw()
    piece.check_sha(raw)
    assert (raw, piece.sizes()) == (V1, struct.pack("<I", 97))
    assert (piece.header.box, piece.header.run, piece.header.topics) == ("box-17", 7, {"T": (1, 5)})


@pytest.mark.parametrize("codec", ["zstd", "zlib", "none"])
def test_each_codec_gives_back_the_records(codec: str) -> None:
    header, container = log_piece([MadeRecord(queue_offset=n) for n in range(50)], 4096, codec=codec)
    piece = open_piece(container)
    raw = piece.raw()
    piece.check_sha(raw)
    assert (header.codec, header.records, header.start) == (codec, 50, 4096)
    assert piece.sizes() == scan_records(raw, 4096, 1 << 20).index()


def fully(data: bytes) -> None:
    piece = open_piece(data)
    piece.check_sha(piece.raw())
    piece.sizes()


def test_a_flipped_byte_anywhere_is_damage_or_changes_only_what_the_gateway_compares() -> None:
    silent = []
    for at in range(len(GOLDEN)):
        bad = bytearray(GOLDEN)
        bad[at] ^= 0x01
        try:
            fully(bytes(bad))
        except PieceDamaged:
            continue
        silent.append(at)
    header, payload_at = decode_header(GOLDEN)
    assert all(at < payload_at for at in silent)  # identity, ranges and times: judged against HELLO and the records
    assert header.box == "box-17"


def test_every_prefix_and_one_byte_more_are_damage() -> None:
    for length in range(len(GOLDEN)):
        with pytest.raises(PieceDamaged):
            fully(GOLDEN[:length])
    with pytest.raises(PieceDamaged):
        fully(GOLDEN + b"\0")


@pytest.mark.parametrize(
    "body",
    [
        b"\xa1\x61a\xc1\x00",  # a tag
        b"\xa1\x61a\xf9\x3c\x00",  # a float
        b"\xa1\x61a\xf6",  # null
        b"\xa1\x61a\xf5",  # true
        b"\xbf\x61a\x01\xff",  # indefinite map
        b"\xa1\x61a\x7f\x61b\xff",  # indefinite text
        b"\xa2\x61a\x01\x61a\x02",  # the same key twice
        b"\xa2\x61b\x01\x61a\x02",  # unsorted
        b"\xa1\x61a\x18\x01",  # an integer longer than needed
        b"\xa1\x01\x01",  # a key that is not a string
        b"\x81" * 5000 + b"\x01",  # depth 5,000
        b"\xa1\x61a\x9b\x00\x00\x00\x01\x00\x00\x00\x00",  # an array of 2^32
        b"\xa1\x61a\x5b\x00\x00\x00\x01\x00\x00\x00\x00",  # a byte string of 2^32
        b"\xa1\x61a\x01\x00",  # trailing byte
        b"\xa1\x61a\xd8\x1c\x81\xd8\x1d\x00",  # cyclic reference
        b"\xa1\x61a\x61\xff",  # no UTF-8
        b"",
        b"\x01",
    ],
)
def test_cbor_that_is_not_deterministic_is_damage(body: bytes) -> None:
    with pytest.raises(PieceDamaged):
        decode_map(body)


@pytest.mark.slow
def test_a_decompression_bomb_stops_at_the_declared_length() -> None:
    import zlib

    import zstandard

    bomb = bytes(64 << 20)
    with pytest.raises(PieceDamaged, match="zlib"):
        decompress("zlib", zlib.compress(bomb, 9), 1000)
    with pytest.raises(PieceDamaged, match="zstd frame of 67108864 bytes"):
        decompress("zstd", zstandard.ZstdCompressor().compress(bomb), 1000)
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(bomb)
    with pytest.raises(PieceDamaged, match="the header says 1000"):
        decompress("zstd", unsized, 1000)


def test_a_gap_carries_its_map_and_may_be_empty_only_as_gap() -> None:
    gap = {"id": [7, 1], "class": "rejected", "reason": "disk_full", "queues": [["T", 0, 5, 9, 5]], "bytes": 0}
    piece = gap_piece(97, 97, gap)
    assert gap_map(open_piece(piece.container)) == gap
    header, container = encode_piece(SOURCE, PieceContents("log", 97, 97, b""), "none")
    with pytest.raises(PieceDamaged, match=r"range 97\.\.97"):
        open_piece(container)
    assert header.records == 0


def test_more_than_64_topics_leave_the_topic_table_out() -> None:
    records = [MadeRecord(topic=f"t{n}") for n in range(65)]
    assert log_piece(records)[0].topics is None
    assert len(log_piece(records[:64])[0].topics or ()) == 64


def test_an_unknown_codec_setting_names_the_choices() -> None:
    with pytest.raises(ValueError, match="use auto, zstd, zlib or none"):
        codec_for("lz4")
