"""The room that all connections of a port share for messages larger than a window.

Addresses have their turns one after the other: whoever wants room for a thousand messages waits for its own.
"""

from collections.abc import Callable

Grant = Callable[[], None]


class Uploads:
    """The bytes granted to messages larger than a window, of all connections together."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._waiting: dict[str, dict[Grant, int]] = {}  # by address, in the order of their turns

    @property
    def is_crowded(self) -> bool:
        """Whether somebody waits for what others were granted."""
        return bool(self._waiting)

    def want(self, size: int, grant: Grant, whose: str = "") -> None:
        """Call `grant` once, perhaps now; whoever got it gives it back. `whose`: an address."""
        self._waiting.setdefault(whose, {})[grant] = size
        self._serve()

    def forget(self, grant: Grant, whose: str = "") -> None:
        """Take back what was wanted and not granted yet."""
        wanted = self._waiting.get(whose, {})
        wanted.pop(grant, None)
        if not wanted:
            self._waiting.pop(whose, None)

    def give(self, size: int) -> None:
        """Give back what was granted."""
        self._left += size
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            whose, wanted = next(iter(self._waiting.items()))
            grant, size = next(iter(wanted.items()))
            if size > self._left:
                return
            del wanted[grant], self._waiting[whose]
            if wanted:
                self._waiting[whose] = wanted  # its next turn comes after those of all others
            self._left -= size
            grant()


class OwnUploads:
    """The uploads of one connection, which has its turns with others of its address."""

    def __init__(self, of_all: Uploads, whose: str) -> None:
        self._all, self._whose = of_all, whose

    def want(self, size: int, grant: Grant) -> None:
        """As Uploads.want."""
        self._all.want(size, grant, self._whose)

    def forget(self, grant: Grant) -> None:
        """As Uploads.forget."""
        self._all.forget(grant, self._whose)

    def give(self, size: int) -> None:
        """As Uploads.give."""
        self._all.give(size)
