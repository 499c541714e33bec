"""Blocks of headers, against hpack's own encoder and decoder."""

import random

import pytest
from hpack import Decoder, Encoder

from netstack.errors import ProtocolError
from netstack.grpc.header_block import NO_TABLE, HeaderDecoder, plain_field


def fields(choose: random.Random) -> list[tuple[bytes, bytes]]:
    names = [b":path", b"content-type", b"x-mq-request-id", b"x", b"grpc-timeout", b"authorization"]
    return [(name, choose.randbytes(choose.choice((0, 5, 40, 200))).hex().encode()) for name in names]


@pytest.mark.parametrize("huffman", [True, False])
def test_blocks_of_a_connection_are_read_as_they_were_written(huffman: bool) -> None:
    encoder, decoder, choose = Encoder(), HeaderDecoder(16_384), random.Random(17)
    kept = fields(choose)
    for count in range(300):  # far more than the table holds
        if count == 150:
            encoder.header_table_size = 300
        if count == 200:
            encoder.header_table_size = 4096
        told = [*kept[:4], *fields(choose)[2:]] if count % 3 else kept
        assert decoder.decode(encoder.encode(told, huffman=huffman)) == dict(told)


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # no entry has the number 0
        b"\xbe",  # nor 62, while nothing is remembered
        b"\x40\x01",  # ends inside a name
        b"\x40\x01x\x05abc",  # and inside a value
        b"\xff\xff\xff\xff\xff\xff\xff",  # a number without end
        b"\x00\x01x\x81\x00",  # letters that are packed wrongly
        b"\x3f\xe1\x7f",  # a table larger than was offered
        b"\x88\x20",  # resized inside a block
    ],
)
def test_a_broken_block_ends_the_connection(block: bytes) -> None:
    with pytest.raises(ProtocolError, match="headers"):
        HeaderDecoder(16_384).decode(block)


def test_a_small_block_that_unpacks_to_many_headers_is_refused() -> None:
    decoder = HeaderDecoder(16_384)
    decoder.decode(b"\x40\x01x\x7f\xa1\x16" + bytes(2976))
    with pytest.raises(ProtocolError, match="more than 16384"):
        decoder.decode(b"\xbe" * 100)


def test_a_field_of_this_side_is_remembered_by_nobody() -> None:
    decoder = Decoder()
    long = b"x" * 5000
    assert decoder.decode(NO_TABLE + plain_field(b"grpc-message", long), raw=True) == [(b"grpc-message", long)]
    assert not decoder.header_table.dynamic_entries
