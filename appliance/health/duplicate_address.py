"""Asks the wire whether another machine answers for an address of this one, as RFC 5227 does before taking it."""

import fcntl
import select
import socket
import struct
import time
from ipaddress import IPv4Address

ARP = 0x0806
SIOCGIFHWADDR = 0x8927
BROADCAST, NOBODY = b"\xff" * 6, b"\0" * 6
WAIT_S = 0.5
PACKET = struct.Struct("!6s6sHHHBBH6s4s6s4s")


def arp_probe(own: bytes, address: IPv4Address) -> bytes:
    """Return an Ethernet frame that asks who has the address, claiming none itself."""
    target = address.packed
    return PACKET.pack(BROADCAST, own, ARP, 1, 0x0800, 6, 4, 1, own, bytes(4), NOBODY, target)


def answerer(frame: bytes, own: bytes, address: IPv4Address) -> str | None:
    """Return the hardware address of another machine that uses the address, None for any other frame."""
    if len(frame) < PACKET.size:
        return None
    _, source, kind, _, protocol, _, _, _, sender, claimed, _, _ = PACKET.unpack_from(frame)
    if kind != ARP or protocol != 0x0800 or claimed != address.packed or own in (source, sender):
        return None
    return str(sender.hex(":"))


def other_owner(interface: str, address: IPv4Address, wait_s: float = WAIT_S) -> str | None:
    """Ask on one interface; return who answers, None when nobody does. Blocks. Raises OSError (needs CAP_NET_RAW)."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ARP)) as wire:
        wire.bind((interface, ARP))
        found = fcntl.ioctl(wire, SIOCGIFHWADDR, struct.pack("256s", interface.encode()[:15]))
        own = found[18:24]
        wire.send(arp_probe(own, address))
        end = time.monotonic() + wait_s
        while (left := end - time.monotonic()) > 0:
            if select.select([wire], [], [], left)[0] and (who := answerer(wire.recv(2048), own, address)):
                return who
    return None


def duplicates(addresses: list[tuple[str, IPv4Address]]) -> list[str]:
    """Return the addresses that another machine answers for, with who it is. Blocks. Raises OSError."""
    asked = ((interface, address, other_owner(interface, address)) for interface, address in addresses)
    return [f"{address} on {interface}: also {who}" for interface, address, who in asked if who]
