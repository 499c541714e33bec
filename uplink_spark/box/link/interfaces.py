"""Which network interface owns an address, asked of the kernel (netdevice(7), /proc/net/if_inet6)."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

SIOCGIFADDR = 0x8915
IF_INET6 = Path("/proc/net/if_inet6")


def interface_of(host: str) -> str:
    """Return the interface that has this address, empty when none does."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return _interface_v6(address)
        address = address.ipv4_mapped
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asking, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            if answer[20:24] == address.packed:
                return name
    return ""


def _interface_v6(address: ipaddress.IPv6Address) -> str:
    try:
        lines = IF_INET6.read_text().splitlines()
    except OSError:
        return ""
    wanted = address.packed.hex()
    return next((line.split()[5] for line in lines if line.startswith(wanted)), "")
