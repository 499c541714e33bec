"""Compressed bodies: ZLIB out, ZLIB, LZ4 and ZSTD in. The libraries of the last two are loaded at their first body.

Bits of a message's system flags: 0x1 compressed · 0x700 by what: 0 ZLIB (before 5.x), 1 LZ4, 2 ZSTD, 3 ZLIB.
Source: RocketMQ 5.5.0 CompressionType, Lz4Compressor (LZ4 frames), ZstdCompressor (frames without a content size).
"""

import zlib
from collections.abc import Callable

from netstack.client.errors import BodyUnreadable

COMPRESSED, COMPRESSED_ZLIB, COMPRESSION_BITS = 0x1, 0x301, 0x701
MAX_BODY_BYTES = 64 << 20  # of a body in use: producers take 4 MiB unless told; an ill-meant one would fill all memory
_FEED_BYTES = 1024  # at most 32 MiB of ZSTD at a time


def compressed(body: bytes, threshold: int, level: int = 5) -> tuple[bytes, int]:
    """Return the body to send and its system flags: compressed from `threshold` bytes on."""
    if len(body) < threshold:
        return body, 0
    return zlib.compress(body, level), COMPRESSED_ZLIB


def decompressed(body: bytes, sys_flag: int) -> bytes:
    """Return the body as the sender passed it. Raises BodyUnreadable."""
    if not sys_flag & COMPRESSED:
        return body
    kind = sys_flag >> 8 & 7
    unpack = _KINDS.get(kind)
    if unpack is None:
        raise BodyUnreadable(f"body compressed by the unknown kind {kind}; `stored_body` has its {len(body)} bytes")
    try:
        whole = unpack(body)
    except (zlib.error, RuntimeError, ValueError) as error:
        raise BodyUnreadable(f"compressed body of {len(body)} bytes is damaged: {error}") from error
    if whole is None:
        raise BodyUnreadable(f"compressed body of {len(body)} bytes is cut off or would fill {MAX_BODY_BYTES} bytes")
    return whole


def _zlib(body: bytes) -> bytes | None:
    inflater = zlib.decompressobj()
    whole = inflater.decompress(body, MAX_BODY_BYTES)
    return whole if inflater.eof else None


def _lz4(body: bytes) -> bytes | None:
    try:
        import lz4.frame
    except ImportError as error:
        raise _missing("LZ4", "lz4", body) from error
    reader = lz4.frame.LZ4FrameDecompressor()
    whole: bytes = reader.decompress(body, min(MAX_BODY_BYTES, 256 * len(body)))  # it allocates what it may fill
    return whole if reader.eof else None


def _zstd(body: bytes) -> bytes | None:
    try:
        import zstandard
    except ImportError as error:
        raise _missing("ZSTD", "zstandard", body) from error
    reader = zstandard.ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    size = 0
    try:
        for at in range(0, len(body), _FEED_BYTES):
            parts.append(reader.decompress(body[at : at + _FEED_BYTES]))
            size += len(parts[-1])
            if reader.eof or size > MAX_BODY_BYTES:
                break
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error
    return b"".join(parts) if reader.eof and size <= MAX_BODY_BYTES else None


def _missing(kind: str, package: str, body: bytes) -> BodyUnreadable:
    return BodyUnreadable(
        f"body compressed by {kind} and the package {package} is not installed: pip install {package}; "
        f"`stored_body` has its {len(body)} bytes"
    )


_KINDS: dict[int, Callable[[bytes], bytes | None]] = {0: _zlib, 1: _lz4, 2: _zstd, 3: _zlib}
