"""Hosts and ports as text and as bytes."""

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine reach an address."""
    return host.startswith("127.") or host in ("::1", "localhost")


def plain_address(address: str) -> str:
    """Return the address without the IPv6 dress of an IPv4 peer and without a zone."""
    return address.partition("%")[0].removeprefix("::ffff:")


def host_port(host: str, port: int) -> str:
    """Return host:port; an IPv6 address in brackets, which it may have already."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def split_host_port(text: str) -> tuple[str, int]:
    """Return the host, without brackets, and the port of what `host_port` made. Raises ValueError."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def host_bytes(address: str, port: int) -> bytes:
    """Return 4 or 16 bytes of address and the port as i32: how a message keeps where it was born."""
    try:
        packed = ip_address(address).packed
    except ValueError:
        packed = bytes(4)  # not an internet socket
    return packed + port.to_bytes(4, "big")
