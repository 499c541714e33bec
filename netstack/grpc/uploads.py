"""The room that all connections of a port share for messages larger than a window."""

from collections import deque
from collections.abc import Callable

Grant = Callable[[], None]


class Uploads:
    """The bytes granted to messages larger than a window, of all connections together; grants go in order."""

    def __init__(self, most: int) -> None:
        self._left, self._waiting = most, deque[tuple[int, Grant]]()

    def want(self, size: int, grant: Grant) -> None:
        """Call `grant` once, perhaps now; whoever got it gives it back."""
        self._waiting.append((size, grant))
        self._serve()

    def forget(self, grant: Grant) -> None:
        """Take back what was wanted and not granted yet."""
        self._waiting = deque(row for row in self._waiting if row[1] is not grant)

    def give(self, size: int) -> None:
        """Give back what was granted."""
        self._left += size
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._left:
            size, grant = self._waiting.popleft()
            self._left -= size
            grant()
