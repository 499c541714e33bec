"""The calls that are open on all connections of a port, and the bytes of their headers.

Connections share most of what there is; the rest is for the first calls of each, whatever the others do. The bytes are
those in memory: a field takes FIELD_BYTES beside what HTTP/2 counts.
"""

SHARED, SHARED_BYTES = 16_384, 32 << 20
MOST, MOST_BYTES = 24_576, 56 << 20  # with those first ones: of 1,024 connections
FIRST, FIRST_BYTES = 8, 24 << 10  # of a connection
FIELD_BYTES = 96  # two objects and their place in a table, without the 32 bytes that count already


class OpenCalls:
    """Counts the calls of all connections."""

    def __init__(
        self, shared: tuple[int, int] = (SHARED, SHARED_BYTES), most: tuple[int, int] = (MOST, MOST_BYTES)
    ) -> None:
        self._shared, self._most = shared, most
        self.count = self.header_bytes = 0

    def has_room(self, header_bytes: int, first: bool) -> bool:
        """Tell whether one more call may open; `first`: it is among the first of its connection."""
        calls, most_bytes = self._most if first else self._shared
        return self.count < calls and self.header_bytes + header_bytes <= most_bytes


class OwnCalls:
    """Counts the calls of one connection, there and here."""

    def __init__(self, of_all: OpenCalls) -> None:
        self._all = of_all
        self.count = self.header_bytes = 0

    def open(self, header_bytes: int) -> bool:
        """Count one more call; False where there is no room for it."""
        first = self.count < FIRST and self.header_bytes + header_bytes <= FIRST_BYTES
        if not self._all.has_room(header_bytes, first):
            return False
        self._change(1, header_bytes)
        return True

    def closed(self, header_bytes: int) -> None:
        self._change(-1, -header_bytes)

    def _change(self, count: int, header_bytes: int) -> None:
        self.count += count
        self.header_bytes += header_bytes
        self._all.count += count
        self._all.header_bytes += header_bytes
