"""How a follower begins a connection to its leader that carries the one of a gRPC client. Sans I/O.

The first frame (RELAY) says whose it is. The leader answers one byte: SERVED, after which the bytes of the client and
those for it follow as they are, or BUSY, and closes.
"""

from ipaddress import IPv6Address, ip_address
from typing import Final

from appliance.group.links.frames import RELAY, LinkFrame, encode_frame, typed
from netstack.serving.addresses import is_loopback
from storage_driver.named_tuple import NamedTuple
from uplink_spark.errors import PieceDamaged
from uplink_spark.wire.cbor import Fields

SERVED, BUSY = b"\x01", b"\x00"
LONGEST: Final = 45  # characters of an address
MOST_PORT: Final = 65_535


class RelayedClient(NamedTuple):
    """A client's connection as it came to a follower: both its ends, whether by TLS."""

    remote: tuple[str, int]
    local: tuple[str, int]
    tls: bool = False

    def encode(self) -> bytes:
        """Return the frame."""
        (host, port), (at, at_port) = self.remote, self.local
        head = {"host": host, "port": port, "at": at, "at_port": at_port, "tls": int(self.tls)}
        return encode_frame(RELAY, head)

    def seen_from(self, member_host: str) -> "RelayedClient":
        """Return it as another box has to take it: a program of the member's box comes from that box.

        Nobody could read what it said on its way, as with TLS.
        """
        host, port = self.remote
        return self._replace(remote=(member_host, port), tls=True) if is_loopback(host) else self


def decode_relay(frame: LinkFrame) -> RelayedClient:
    """Return RELAY. Raises ProtocolError."""
    fields = frame.fields("RELAY")

    def decode() -> RelayedClient:
        remote = _address(fields, "host"), fields.uint("port", most=MOST_PORT)
        local = _address(fields, "at"), fields.uint("at_port", most=MOST_PORT)
        return RelayedClient(remote, local, bool(fields.uint("tls", most=1)))

    return typed("RELAY", decode)


def _address(fields: Fields, key: str) -> str:
    """Return an address in its one spelling, as limits and access rules know it. Raises PieceDamaged."""
    text = fields.text(key)
    try:
        found = ip_address(text) if len(text) <= LONGEST else None
    except ValueError:
        found = None
    if found is None or (isinstance(found, IPv6Address) and (found.scope_id or found.ipv4_mapped)):
        raise PieceDamaged(f"{key} is not an address")
    return str(found)
