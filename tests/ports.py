"""Ports for what a test starts: free now, and not among those that the kernel hands to connections meanwhile."""

import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_dice = random.SystemRandom()  # workers side by side: the same seed would give them the same ports


def free_port(before: int = 0, after: int = 0) -> int:
    """Return a port that nobody listens on, as many before and after it free as well.

    Below the range of outgoing connections (ip(7), ip_local_port_range), so that none takes it before its server does.
    """
    first = int(_RANGE.read_text().split()[0])
    while True:
        port = _dice.randrange(11_000, first - after) if first > 20_000 else _dice.randrange(20_000, 60_000)
        if all(_is_free(each) for each in range(port - before, port + after + 1)):
            return port


def apache_port() -> int:
    """Return one for Apache's broker: it takes the second below for one thread pool, the next one for its slaves."""
    return free_port(before=2, after=1)


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("", port)):
            return True
    except OSError:
        return False
