"""Who holds the places for connections, and whose is given to a newcomer when all are taken.

An address has a share of its own: one IPv4 address, one IPv6 /64. When no place is free, the address with the most
connections gives up the one of them that was silent longest; never one that has signed a request, never one that has
something under way. A connection that another box serves, to which this one relays, has its place there, and that box
decides who keeps one. Sans I/O: times are those of one monotonic clock.
"""

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address


@lru_cache(4096)
def share_of(address: str) -> str:
    """Return what an address shares its limits with: itself, or its IPv6 /64."""
    return _prefix(address, 64)


@lru_cache(4096)
def site_of(address: str) -> str:
    """Return what an address is weighed with when places are short: itself, or its IPv6 /48."""
    return _prefix(address, 48)


def _prefix(address: str, bits: int) -> str:
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address) or found.is_loopback:
        return address
    return f"{IPv6Address(int(found) >> (128 - bits) << (128 - bits))}/{bits}"


def greediest(held: Counter[str], share: str) -> str:
    """Return who gives up a place for a newcomer: whoever has the most, the newcomer's own share if it has as many."""
    return share if held[share] == max(held.values()) else held.most_common(1)[0][0]


class Slot:
    """The place of one connection. Until it has a `silent_since` its handshake is not over."""

    __slots__ = ("at", "busy", "elsewhere", "end", "opened_at", "signed", "silent_since", "site")

    def __init__(self, address: str, opened_at: float, end: Callable[[], None], *, at: str = "") -> None:
        """at: the own address that it was made to."""
        self.site, self.opened_at, self.end, self.at = site_of(address), opened_at, end, at
        self.silent_since: Callable[[], float] = lambda: opened_at
        self.signed: Callable[[], bool] = lambda: False
        self.busy: Callable[[], bool] = lambda: False
        self.elsewhere: Callable[[], bool] = lambda: False


class ConnectionSlots:
    """All places that are taken by others than this machine."""

    def __init__(self) -> None:
        self._slots: set[Slot] = set()

    def add(self, slot: Slot) -> None:
        self._slots.add(slot)

    def remove(self, slot: Slot) -> None:
        self._slots.discard(slot)

    def elsewhere(self) -> int:
        """Return how many connections another box serves."""
        return sum(slot.elsewhere() for slot in self._slots)

    def end_at(self, own: str, *, busy: bool) -> int:
        """End the connections that were made to an own address; `busy`: also those with something under way.

        Return how many there are besides.
        """
        here = [slot for slot in self._slots if slot.at == own]
        ended = [slot for slot in here if busy or not slot.busy()]
        for slot in ended:
            slot.end()
        return len(here) - len(ended)

    def to_give(self, address: str) -> Slot | None:
        """Return the place that an address gets when none is free, None when it has its share already."""
        held = [slot for slot in self._slots if not slot.elsewhere()]
        by_site = Counter(slot.site for slot in held)
        most = max(by_site.values(), default=0)
        if most <= by_site[site_of(address)] + 1:
            return None
        idle = [slot for slot in held if by_site[slot.site] == most and not slot.signed() and not slot.busy()]
        return min(idle, key=lambda slot: slot.silent_since(), default=None)
