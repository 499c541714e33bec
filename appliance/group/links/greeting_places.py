"""Who is being greeted: few at a time, since a handshake costs more than anything before it.

One too many takes the place of the oldest of whoever has the most, so that strangers cannot keep members out.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from appliance.group.links.link import LinkEnded
from netstack.serving.slots import share_of


class GreetingPlaces:
    """Connections whose member is not known yet, the oldest first."""

    def __init__(self) -> None:
        self._held: dict[trio.CancelScope, str] = {}

    @contextmanager
    def place(self, address: str, most: int) -> Iterator[None]:
        """Hold a place for a connection from an address. Raises LinkEnded when there is none, or it was given away."""
        share = share_of(address)
        if len(self._held) >= most:
            self._make_place(share)
        with trio.CancelScope() as scope:
            self._held[scope] = share
            try:
                yield
            finally:
                self._held.pop(scope, None)
        if scope.cancelled_caught:
            raise LinkEnded("places", "too many connections are being greeted, and this one was the oldest")

    def _make_place(self, share: str) -> None:
        held = Counter(self._held.values())
        greediest, most = held.most_common(1)[0]
        if most <= held[share] and greediest != share:
            raise LinkEnded("places", f"{len(self._held)} connections are being greeted")
        oldest = next(scope for scope, holder in self._held.items() if holder == greediest)
        del self._held[oldest]
        oldest.cancel()
