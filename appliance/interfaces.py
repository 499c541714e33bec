"""The addresses of this machine: which one stands in message ids, which ones clients may have reached."""

import ctypes
import ipaddress
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import TypeVar

LOOPBACK = "127.0.0.1"
LOCAL = frozenset({"", "0.0.0.0", "::", "localhost"})  # a probe of these goes over the loopback
REREAD_S = 30.0
Interfaces = Mapping[str, Sequence[str]]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
UNIQUE_LOCAL = ipaddress.ip_network("fc00::/7")
WIDEST = 8  # bits: nobody's own networks are larger than 10.0.0.0/8
Read = TypeVar("Read")


class _Entry(ctypes.Structure):
    """struct ifaddrs. Source: getifaddrs(3)."""


_Entry._fields_ = [
    ("following", ctypes.POINTER(_Entry)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
    ("netmask", ctypes.c_void_p),
    ("peer", ctypes.c_void_p),
    ("more", ctypes.c_void_p),
]
_LIBC = ctypes.CDLL(None, use_errno=True)
_PLACES = {socket.AF_INET: (4, 4), socket.AF_INET6: (8, 16)}  # of the address in a sockaddr: at, length


def read_addresses() -> list[tuple[str, Address, Network]]:
    """Return interface, address and network of each address of this machine. Raises OSError."""
    first = ctypes.POINTER(_Entry)()
    if _LIBC.getifaddrs(ctypes.byref(first)):
        raise OSError(ctypes.get_errno(), "getifaddrs")
    found, entry = [], first
    try:
        while entry:
            content = entry.contents
            address, mask = _bytes_at(content.address), _bytes_at(content.netmask)
            if address and mask:
                length = int.from_bytes(mask, "big").bit_count()
                made = ipaddress.ip_address(address)
                found.append((content.name.decode(), made, ipaddress.ip_network((address, length), strict=False)))
            entry = content.following
    finally:
        _LIBC.freeifaddrs(first)
    return found


def _bytes_at(pointer: int | None) -> bytes | None:
    """Return the address inside a sockaddr, None of another family."""
    if not pointer:
        return None
    place = _PLACES.get(ctypes.c_ushort.from_address(pointer).value)  # type: ignore[call-overload]
    return ctypes.string_at(pointer + place[0], place[1]) if place else None


def read_interfaces() -> Interfaces:
    """Return interface name -> addresses, without zones."""
    found: dict[str, list[str]] = {}
    for name, address, _ in read_addresses():
        found.setdefault(name, []).append(str(address))
    return found


def read_networks() -> list[Network]:
    """Return the networks the interfaces are in."""
    return [network for _, _, network in read_addresses()]


def remembered(read: Callable[[], Read], every_s: float = REREAD_S) -> Callable[[], Read]:
    """Return a reader that looks again after some time, and gives the same object until then."""
    found: Read | None = None
    read_at = 0.0

    def current() -> Read:
        nonlocal found, read_at
        if found is None or monotonic() - read_at >= every_s:
            found, read_at = read(), monotonic()
        return found

    return current


def own_address(host: str, interfaces: Callable[[], Interfaces]) -> str:
    """Return the address that stands for this machine: the one bound, else the first that others can reach."""
    try:
        bound = ipaddress.ip_address(host)
    except ValueError:
        return _resolved(host)
    if not bound.is_unspecified:
        return host
    found = [ipaddress.ip_address(text) for texts in interfaces().values() for text in texts]
    usable = [address for address in found if not address.is_loopback and not address.is_link_local]
    usable.sort(key=lambda address: address.version)  # stable: IPv4 first, since older tools cut ids at 32 digits
    return str(usable[0]) if usable else LOOPBACK


def _resolved(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return LOOPBACK


def everywhere(networks: Iterable[str]) -> list[str]:
    """Return the networks of a list that let in the internet rather than a network of one's own, alone or together."""
    found = [ipaddress.ip_network(text, strict=False) for text in networks]
    v4 = ipaddress.collapse_addresses(each for each in found if isinstance(each, ipaddress.IPv4Network))
    v6 = ipaddress.collapse_addresses(each for each in found if isinstance(each, ipaddress.IPv6Network))
    both: list[Network] = [*v4, *v6]
    return [str(each) for each in both if each.prefixlen < WIDEST and each != UNIQUE_LOCAL]
