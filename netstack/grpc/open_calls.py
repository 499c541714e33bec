"""The calls that are open on all connections of a port, and the bytes of their headers."""

MOST, MOST_BYTES = 16_384, 32 << 20
FREE = 64  # calls of a connection that it may always have


class OpenCalls:
    """Counts the calls of all connections; a connection with few may open one more whatever the others do."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self.count = self.header_bytes = 0

    def may_open(self, own: int) -> bool:
        """Tell whether a connection that has so many calls may open one more."""
        return own < FREE or (self.count < self._most and self.header_bytes < self._most_bytes)

    def opened(self, header_bytes: int) -> None:
        self.count += 1
        self.header_bytes += header_bytes

    def closed(self, header_bytes: int) -> None:
        self.count -= 1
        self.header_bytes -= header_bytes
