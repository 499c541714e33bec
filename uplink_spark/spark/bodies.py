"""Bodies as a reader wants them: inflated where the producer compressed them, with a word on how that went."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from uplink_spark.spark.fields import spread

MAX_BODY_BYTES = 64 << 20  # an inflated body above this is a bomb, not a message
COMPRESSED, COMPRESSION = 0x1, 0x700
STATES = ("plain", "inflated", "compressed", "bad_crc", "bad_inflate")
_PLAIN, _INFLATED, _COMPRESSED, _BAD_CRC, _BAD_INFLATE = range(5)
_CODECS = {0x100: "lz4", 0x200: "zstd"}  # everything else is zlib; 0 is what old clients send
Codes = npt.NDArray[np.int8]


class Bodies(NamedTuple):
    values: pa.Array  # binary
    states: pa.Array  # string, one of STATES


def read_bodies(
    stored: pa.Array, sys_flags: npt.NDArray[np.int32], crcs: npt.NDArray[np.int32], *, inflate: bool, check_crc: bool
) -> Bodies:
    """Return the bodies and their states; where a body is not `plain` or `inflated` its bytes are as stored."""
    compressed = (sys_flags & COMPRESSED) != 0
    code = np.where(compressed, _COMPRESSED, _PLAIN).astype(np.int8)
    if check_crc:
        code[_wrong_crcs(stored, crcs)] = _BAD_CRC
    if not inflate or not compressed.any():
        return Bodies(stored, _states(code))
    rows = np.flatnonzero(code == _COMPRESSED)
    inflated: list[bytes] = []
    for row, body in zip(rows.tolist(), stored.take(pa.array(rows)).to_pylist(), strict=True):
        plain = inflate_body(body, int(sys_flags[row]))
        code[row] = _BAD_INFLATE if plain is None else _INFLATED
        inflated.append(body if plain is None else plain)
    source = np.arange(len(stored))
    source[rows] = len(stored) + np.arange(len(rows))
    return Bodies(pa.concat_arrays([stored, pa.array(inflated, pa.binary())]).take(pa.array(source)), _states(code))


def _states(code: Codes) -> pa.Array:
    return spread(STATES, code)


def _wrong_crcs(stored: pa.Array, crcs: npt.NDArray[np.int32]) -> list[int]:
    bodies = zip(stored.to_pylist(), crcs.tolist(), strict=True)
    return [row for row, (body, crc) in enumerate(bodies) if body and zlib.crc32(body) & 0x7FFFFFFF != crc]


def inflate_body(body: bytes, sys_flag: int) -> bytes | None:
    """Return the inflated body, or None where it does not inflate or would exceed MAX_BODY_BYTES."""
    codec = _CODECS.get(sys_flag & COMPRESSION)
    try:
        if codec is None:
            stream = zlib.decompressobj()
            plain = stream.decompress(body, MAX_BODY_BYTES + 1)
            whole = stream.eof
        else:
            plain = pa.CompressedInputStream(pa.BufferReader(body), codec).read(MAX_BODY_BYTES + 1)
            whole = True
    except (zlib.error, OSError):
        return None
    return plain if whole and len(plain) <= MAX_BODY_BYTES else None
