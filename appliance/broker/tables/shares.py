"""What an address may have of something that all share: as much as it leaves to others, a little in any case. Sans I/O.

So a single address, whatever it does, gets half of it, and two of them three quarters. This machine has no share.
"""

from collections import Counter

from netstack.serving.addresses import is_loopback
from netstack.serving.slots import share_of


def counted_for(address: str) -> str:
    """Return what something is counted for that an address takes; empty for this machine, which may take all."""
    return "" if is_loopback(address) else share_of(address)


class Shares:
    """How much each address has. `always`: what one may have while there is any room."""

    def __init__(self, always: int) -> None:
        self._always = always
        self._of: Counter[str] = Counter()

    def room(self, address: str, free: int) -> int:
        """Return how much more an address may take where so much is free."""
        if not address:
            return max(free, 0)
        own = self._of[address]
        return max(0, min(free, max((free - own) // 2, self._always - own)))

    def change(self, address: str, count: int) -> None:
        """Note that an address took some more, or gave some back."""
        if address:
            self._of[address] += count
            if self._of[address] <= 0:
                del self._of[address]
