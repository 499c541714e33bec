"""Codec and most bytes of pieces: what is configured and offered, narrowed by refusals."""

from __future__ import annotations

import pytest

from uplink_spark.box.cutting.piece_shape import SMALLEST_BYTES, PieceShape


@pytest.mark.parametrize(
    ("offered", "codec"), [(("zstd", "zlib"), "zstd"), (("zlib",), "zlib"), (("other",), "none"), ((), "none")]
)
def test_the_codec_is_the_configured_one_where_the_gateway_offers_it(offered: tuple[str, ...], codec: str) -> None:
    assert PieceShape("zstd", offered, 4 << 20).codec == codec


def test_a_refused_codec_is_followed_by_a_simpler_one() -> None:
    shape, seen = PieceShape("zstd", ("zstd", "zlib"), 4 << 20), list[str]()
    for _ in range(3):
        shape.other_codec()
        seen.append(shape.codec)
    assert seen == ["zlib", "none", "none"]


def test_a_piece_that_is_too_big_halves_the_next_down_to_64_kib() -> None:
    shape = PieceShape("zlib", ("zlib",), 4 << 20)
    shape.too_big(1 << 20)
    assert shape.most_bytes == 512 * 1024, "half of what was refused"
    shape.too_big(4 << 20)
    assert shape.most_bytes == 256 * 1024, "never more again"
    for _ in range(5):
        shape.too_big(shape.most_bytes)
    assert shape.most_bytes == SMALLEST_BYTES
