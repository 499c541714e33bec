"""How pieces must be for this gateway: their codec, their most bytes."""

from __future__ import annotations

from collections.abc import Collection

SMALLEST_BYTES = 64 * 1024


class PieceShape:
    """Begins with what is configured and the gateway offers; a refusal narrows it for the rest of a connection."""

    def __init__(self, codec: str, offered: Collection[str], most_bytes: int) -> None:
        self.codec = codec if codec in offered else "zlib" if "zlib" in offered else "none"
        self.most_bytes = most_bytes

    def too_big(self, raw_bytes: int) -> None:
        """Halve the most bytes: a piece of so many was too big."""
        self.most_bytes = max(SMALLEST_BYTES, min(self.most_bytes, raw_bytes) // 2)

    def other_codec(self) -> None:
        """Take the next simpler codec."""
        self.codec = "zlib" if self.codec == "zstd" else "none"
