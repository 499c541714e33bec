"""An address that moves between boxes: the bytes that add it to an interface, and those that tell the neighbours.

Sans I/O. Source: netlink(7), rtnetlink(7), RFC 826, RFC 5227, RFC 4861 section 4.4.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address
from struct import Struct
from typing import Final

from storage_driver.named_tuple import NamedTuple

NEW_ADDRESS, DELETE_ADDRESS, ERROR = 20, 21, 2
REQUEST, ACK, REPLACE, CREATE = 1, 4, 0x100, 0x400
ATTRIBUTE_ADDRESS, ATTRIBUTE_LOCAL, ATTRIBUTE_TIMES, ATTRIBUTE_FLAGS = 1, 2, 6, 8
NO_DUPLICATE_CHECK: Final = 0x02  # the group knows that the address is free
INET, INET6 = 2, 10
ARP, ADVERTISEMENT = 0x0806, 136
EVERYBODY: Final = b"\xff" * 6
_HEAD, _ADDRESS, _ATTRIBUTE = Struct("=IHHII"), Struct("=BBBBI"), Struct("=HH")
_TIMES, _NUMBER, _CODE = Struct("=IIII"), Struct("=I"), Struct("=i")
_ARP = Struct("!6s6sHHHBBH6s4s6s4s")


class FloatingAddress(NamedTuple):
    """An address, the length of its network's prefix, the interface that gets it."""

    address: IPv4Address | IPv6Address
    prefix: int
    interface: str


def read_floating(text: str) -> FloatingAddress:
    """Return what `group.address` says: ADDRESS/PREFIX@INTERFACE. Raises ValueError."""
    place, _, interface = text.partition("@")
    address, _, prefix = place.partition("/")
    found = FloatingAddress(ip_address(address), int(prefix), interface)
    if found.prefix > found.address.max_prefixlen:
        raise ValueError(f"prefix {prefix}, at most {found.address.max_prefixlen}")
    return found


def address_message(floating: FloatingAddress, index: int, *, lifetime_s: int) -> bytes:
    """Return the request that gives an interface the address for so long, 0: takes it away."""
    address = floating.address
    family = INET if address.version == 4 else INET6
    body = _ADDRESS.pack(family, floating.prefix, 0, 0, index)
    body += _attribute(ATTRIBUTE_LOCAL, address.packed) + _attribute(ATTRIBUTE_ADDRESS, address.packed)
    kind, flags = DELETE_ADDRESS, REQUEST | ACK
    if lifetime_s:
        kind, flags = NEW_ADDRESS, REQUEST | ACK | CREATE | REPLACE
        body += _attribute(ATTRIBUTE_TIMES, _TIMES.pack(lifetime_s, lifetime_s, 0, 0))
        body += _attribute(ATTRIBUTE_FLAGS, _NUMBER.pack(NO_DUPLICATE_CHECK))
    return _HEAD.pack(_HEAD.size + len(body), kind, flags, 1, 0) + body


def _attribute(kind: int, value: bytes) -> bytes:
    size = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(size, kind) + value + bytes(-size % 4)


def error_of(answer: bytes) -> int:
    """Return the errno of the kernel's answer, 0 for success. Raises ValueError for another answer."""
    if len(answer) < _HEAD.size + _CODE.size or _HEAD.unpack_from(answer)[1] != ERROR:
        raise ValueError(f"not an acknowledgement ({len(answer)} bytes)")
    (code,) = _CODE.unpack_from(answer, _HEAD.size)
    return -int(code)


def arp_announcement(address: IPv4Address, mac: bytes) -> bytes:
    """Return the Ethernet frame after which neighbours send to this box what is for the address."""
    ip = address.packed
    return _ARP.pack(EVERYBODY, mac, ARP, 1, 0x0800, 6, 4, 1, mac, ip, bytes(6), ip)


def says_elsewhere(frame: bytes, address: IPv4Address, mac: bytes) -> bool:
    """Return whether an Ethernet frame of ARP comes from a box that has the address, and is not this one."""
    if len(frame) < _ARP.size:
        return False
    _, _, protocol, _, _, _, _, _, sender, ip, _, _ = _ARP.unpack_from(frame)
    return bool(protocol == ARP and ip == address.packed and sender != mac)


def advertises(message: bytes, address: IPv6Address) -> bool:
    """Return whether an ICMPv6 message is an advertisement of the address."""
    return len(message) >= 24 and message[0] == ADVERTISEMENT and message[8:24] == address.packed


def neighbour_advertisement(address: IPv6Address, mac: bytes) -> bytes:
    """Return the ICMPv6 message that says the same; the kernel adds the checksum."""
    override = 0x20 << 24
    return bytes((ADVERTISEMENT, 0, 0, 0)) + override.to_bytes(4, "big") + address.packed + bytes((2, 1)) + mac
