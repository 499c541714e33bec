"""Few connections at a time: one too many takes the place of the oldest of whoever has the most.

So one address cannot keep others out, neither by many connections nor by silent ones.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from netstack.serving.slots import greediest


class Places:
    """Who holds a place, the oldest first. `share`: what those have in common who count together, an address."""

    def __init__(self, most: int) -> None:
        """most: how many hold one at a time, at least one."""
        self._most = most
        self._held: dict[trio.CancelScope, str] = {}

    def __len__(self) -> int:
        """How many are taken."""
        return len(self._held)

    @contextmanager
    def place(self, share: str) -> Iterator[trio.CancelScope]:
        """Hold a place. When it is given to a newcomer, the block ends and the scope has `cancelled_caught`."""
        if len(self) >= self._most:
            giver = greediest(Counter(self._held.values()), share)
            oldest = next(scope for scope, holder in self._held.items() if holder == giver)
            del self._held[oldest]
            oldest.cancel()
        with trio.CancelScope() as scope:
            self._held[scope] = share
            try:
                yield scope
            finally:
                self._held.pop(scope, None)
