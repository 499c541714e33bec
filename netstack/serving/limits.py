"""How much a peer may take, and the decision whether one more connection is accepted.

Whatever a peer can grow has a limit here and a stated behaviour at it. Times are those of one monotonic clock.
"""

from typing import NamedTuple

from netstack.serving.addresses import is_loopback
from netstack.serving.slots import share_of
from netstack.wire.frame import KIB, MAX_FRAME, MAX_HEADER, MIB

REFUSALS = (  # why a connection is closed at accept
    *("access", "process"),
    *("limits.connections", "limits.connections_per_address", "limits.connects_per_s"),
)


class Limits(NamedTuple):
    connections: int = 1024
    connections_per_address: int = 128  # or IPv6 /64; loopback is exempt from this and the next
    new_per_s: float = 50.0  # per address
    new_burst: int = 200
    reserved_for_loopback: int = 8
    descriptors: int = 0  # of the process: connections take no more than nine tenths of them; 0: as many as there are
    first_frame_s: float = 10.0  # from the first byte of a connection to its first whole frame
    handshake_s: float = 5.0
    frame_s: float = 30.0  # from the first byte of a frame to its last
    frame_bytes: int = MAX_FRAME
    header_bytes: int = MAX_HEADER
    ext_fields: int = 256
    requests_in_flight: int = 2048  # per connection: its reader stops
    bytes_in_flight: int = 32 * MIB  # per process: all readers stop, and continue at 75 %
    unsent_bytes: int = 8 * MIB  # per connection: its reader stops
    unsent_in_all: int = 24 * MIB  # per process: then each connection's reader stops at 256 KiB
    unsent_s: float = 30.0  # without progress while something is unsent: close
    idle_s: float = 120.0  # also before the first byte: Java 5.0 to 5.2 connects to each NameServer and asks one


class ConnectionCounts:
    """Who is connected, and how much of its burst each address has left."""

    def __init__(self) -> None:
        self.total = 0
        self.by_share: dict[str, int] = {}
        self.allowance: dict[str, tuple[float, float]] = {}  # connections left, as of when

    def add(self, address: str, left: float, now: float) -> None:
        share = share_of(address)
        self.total += 1
        self.by_share[share] = self.by_share.get(share, 0) + 1
        self.allowance.pop(share, None)
        self.allowance[share] = (left, now)  # newest last
        if len(self.allowance) > 4096:
            del self.allowance[next(iter(self.allowance))]

    def give_back(self, address: str, most: float) -> None:
        """Have an address make one more connection, up to so many at a time, as if it had not made its last one."""
        share = share_of(address)
        if share in self.allowance:
            left, since = self.allowance[share]
            self.allowance[share] = min(left + 1, most), since

    def remove(self, address: str) -> None:
        share = share_of(address)
        self.total -= 1
        self.by_share[share] -= 1
        if not self.by_share[share]:
            del self.by_share[share]


NO_PLACE = "limits.connections:"  # how the refusal begins that an eviction can turn


def decide(address: str, counts: ConnectionCounts, now: float, limits: Limits, *, elsewhere: int = 0) -> str | None:
    """Return why a new connection of this address is refused, the limit's name first, or None and count it.

    elsewhere: how many of those that are counted have their place at another box.
    """
    local, share = is_loopback(address), share_of(address)
    left, since = counts.allowance.get(share, (float(limits.new_burst), now))
    left = min(float(limits.new_burst), left + (now - since) * limits.new_per_s)
    if not local:
        if counts.by_share.get(share, 0) >= limits.connections_per_address:
            return f"limits.connections_per_address: {limits.connections_per_address}"
        if left < 1:
            return f"limits.connects_per_s: {limits.new_per_s:g}"
    room = limits.connections - (0 if local else limits.reserved_for_loopback)
    if (held := counts.total - elsewhere) >= room:
        return f"{NO_PLACE} {held} connections, {room} allowed"
    counts.add(address, left - 1 if not local else left, now)
    return None


def decide_by_descriptor(descriptor: int, own: bool, limits: Limits) -> str | None:
    """Return why a connection with this descriptor is refused, or None: files of the store need the last ones.

    The kernel gives the lowest number that is free, so it tells how many are taken. `own`: from this machine, which
    asks itself whether it still answers. Source: POSIX 2.14, file descriptor allocation.
    """
    kept = max(1, limits.descriptors // (20 if own else 10))
    if limits.descriptors and descriptor >= limits.descriptors - kept:
        return f"process: {descriptor} of {limits.descriptors} open files are in use"
    return None


class LogLimiter:
    """One line per peer and event every `every_s`; tells how many were left out since."""

    def __init__(self, every_s: float = 10.0, keep: int = 1024) -> None:
        self._every_s, self._keep = every_s, keep
        self._last: dict[tuple[str, str], tuple[float, int]] = {}

    def allows(self, address: str, event: str, now: float) -> int | None:
        """Return how many lines were left out before this one, or None when this one is left out too."""
        last, left_out = self._last.get((address, event), (float("-inf"), 0))
        if now - last < self._every_s:
            self._last[address, event] = (last, left_out + 1)
            return None
        self._last.pop((address, event), None)
        self._last[address, event] = (now, 0)
        if len(self._last) > self._keep:
            del self._last[next(iter(self._last))]
        return left_out

    def line_end(self, address: str, event: str, now: float) -> str | None:
        """Return what a line ends with: how many were left out before it, if any; None when it is left out too."""
        left_out = self.allows(address, event, now)
        return None if left_out is None else f" left_out={left_out}" if left_out else ""


PARTIAL_FREE = 16 * KIB  # an incomplete frame up to here is never held back
PARTIAL_MODEST = 80 * KIB  # what a frame has that was held back after its first receive
PRESSED_S = 3.0  # what waits for its peer while others wait for its room: then that connection ends
