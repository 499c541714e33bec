"""Who may begin a handshake: so many a second and so many at once, an address no more than its share of either.

An address is an IPv4 address or the /64 of an IPv6 one; the machine itself has no share, as at the broker. A part of
what the gateway can do is kept for addresses from which a box was welcomed before: whoever has no certificate cannot
take it.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from uplink_spark.errors import Refused

HANDSHAKES_A_SECOND = 100
OF_STRANGERS = 60  # of them, together
OF_ONE = 20  # of them, for one address: a site with many boxes behind one
MOST_BEGUN, MOST_BEGUN_OF_ONE = 512, 32  # connections that have not been welcomed yet
KEPT_FOR_KNOWN = 128  # of them, for addresses from which a box was welcomed before
MOST_ADDRESSES = 4096
LOOPBACK = "loopback"


class RateLimit:
    """At most so many a second; `burst`, by default a second's worth, is saved up."""

    __slots__ = ("_a_second", "_at", "_burst", "_tokens")

    def __init__(self, a_second: float, *, burst: float | None = None) -> None:
        self._a_second, self._burst = a_second, burst if burst is not None else a_second
        self._tokens, self._at = self._burst, 0.0

    def allows(self, now: float) -> bool:
        """Tell whether one more may come now."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._a_second)
        self._at = now
        return self._tokens >= 1

    def take(self, now: float) -> bool:
        """Count one, if it may come now; return whether it may."""
        if not self.allows(now):
            return False
        self._tokens -= 1
        return True

    def rests(self, now: float) -> bool:
        """Tell whether nothing came for a second: a new one would be the same."""
        return now - self._at >= 1


@dataclass(slots=True)
class Address:
    """What is known of one address."""

    rate: RateLimit
    most_begun: int = MOST_BEGUN_OF_ONE
    begun: int = 0  # connections that have not been welcomed yet
    known: bool = False  # a box was welcomed from here


class Admission:
    """Decides for each connection before TLS costs anything; no clock, no socket."""

    def __init__(self, a_second: int = HANDSHAKES_A_SECOND) -> None:
        self._a_second = a_second
        share = a_second / HANDSHAKES_A_SECOND
        self._all, self._strangers = RateLimit(a_second), RateLimit(max(1, int(OF_STRANGERS * share)))
        self._of_one = max(1, int(OF_ONE * share))
        self._addresses: dict[str, Address] = {}
        self._begun = 0

    def begin(self, host: str, now: float) -> Begun:
        """Let a connection begin its handshake. Raises Refused: busy."""
        key = address_of(host)
        address = self._addresses.get(key) or self._new(key, now)
        rates = [self._all, address.rate, *([] if address.known else [self._strangers])]
        most = MOST_BEGUN if address.known else MOST_BEGUN - KEPT_FOR_KNOWN
        if address.begun >= address.most_begun or self._begun >= most:
            raise Refused(
                "busy", f"{address.begun} connections of {key}, {self._begun} in all, have not sent HELLO yet"
            )
        if not all(rate.allows(now) for rate in rates):
            raise Refused(
                "busy", f"more than {self._of_one} handshakes a second of {key}, or more than the gateway allows in all"
            )
        for rate in rates:
            rate.take(now)
        address.begun += 1
        self._begun += 1
        return Begun(self, address)

    def _ended(self, address: Address, *, welcomed: bool) -> None:
        self._begun -= 1
        address.begun -= 1
        address.known |= welcomed

    def _new(self, key: str, now: float) -> Address:
        """Return a new row, making room among those that rest; of known ones last. Raises Refused: busy."""
        if len(self._addresses) >= MOST_ADDRESSES:
            rest = [name for name, row in self._addresses.items() if not row.begun and row.rate.rests(now)]
            rest.sort(key=lambda name: self._addresses[name].known)
            for name in rest[: MOST_ADDRESSES // 4]:
                del self._addresses[name]
            if not rest:
                raise Refused("busy", f"connections came from {MOST_ADDRESSES} addresses within a second")
        made = Address(RateLimit(self._of_one))
        if key == LOOPBACK:
            made = Address(RateLimit(self._a_second), MOST_BEGUN, known=True)
        self._addresses[key] = made
        return made


class Begun:
    """A connection until it is welcomed or ends."""

    def __init__(self, admission: Admission, address: Address) -> None:
        self._admission, self._address, self._open = admission, address, True

    def welcomed(self) -> None:
        """A box said who it is and was let in: its address is known from now on."""
        self._end(welcomed=True)

    def ended(self) -> None:
        """The connection is over; nothing more to count when it was welcomed."""
        self._end(welcomed=False)

    def _end(self, *, welcomed: bool) -> None:
        if self._open:
            self._open = False
            self._admission._ended(self._address, welcomed=welcomed)


def address_of(host: str) -> str:
    """Return who has one share: an IPv4 address, the /64 of an IPv6 one, the machine itself, or the text as it is."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if found.is_loopback:
        return LOOPBACK
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(ipaddress.IPv6Network((int(found) >> 64 << 64, 64)))
