"""How fast an address may connect to a port of few connections: each costs a task, and at some ports a handshake."""

from typing import Final

import trio

from netstack.serving.limits import ConnectionCounts, Limits, decide

PER_S: Final = 20.0
BURST: Final = 100
_ANY_NUMBER: Final = 1 << 30


class ConnectPace:
    """Counts new connections by address (one IPv4 address, one IPv6 /64); this machine may make any number."""

    def __init__(self) -> None:
        self._counts = ConnectionCounts()
        self._limits = Limits(_ANY_NUMBER, _ANY_NUMBER, PER_S, BURST)

    def admits(self, address: str) -> bool:
        """Count a connection; tell whether it is taken."""
        if decide(address, self._counts, trio.current_time(), self._limits) is not None:
            return False
        self._counts.remove(address)  # how many are open is bounded elsewhere
        return True

    def give_back(self, address: str) -> None:
        """Count a connection no more: who made it is known, and is bounded elsewhere."""
        self._counts.give_back(address, float(BURST))
