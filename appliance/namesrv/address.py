"""Which address of the box a route names: the one the asking client reached it on, unless a rule says otherwise.

A name server and a broker share the box, so whoever reached the one on an address reaches the other there too.
Client libraries split an address at its colons, hence IPv4 wherever the interface has one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from appliance.configuration.settings import AdvertiseRule
from netstack.serving.addresses import host_port

Interfaces = Mapping[str, Sequence[str]]
"""Interface name → its addresses, IPv4 and IPv6, without zone."""


class AnsweredAddress:
    """Callable: (address a client reached, its own address) → `ip:port` of the broker for this client."""

    def __init__(
        self, rules: Iterable[AdvertiseRule], broker_port: int, interfaces: Callable[[], Interfaces], fallback: str
    ) -> None:
        """fallback: the address for a client that came over a link-local one, when nothing better is there."""
        self._rules: list[tuple[IPv4Network | IPv6Network, AdvertiseRule]] = [
            (ip_network(rule.network, strict=False), rule) for rule in rules
        ]
        self._port, self._interfaces, self._fallback = broker_port, interfaces, fallback

    def __call__(self, reached: str, asker: str) -> str:
        rule = self._rule_for(plain(asker))
        if rule:
            return host_port(rule.address, rule.port or self._port)
        return host_port(self._best(plain(reached)), self._port)

    def _rule_for(self, asker: str) -> AdvertiseRule | None:
        if not self._rules:
            return None
        address = ip_address(asker)
        return next((rule for network, rule in self._rules if address in network), None)

    def _best(self, reached: str) -> str:
        address = ip_address(reached)
        if not isinstance(address, IPv6Address):
            return self._fallback if address.is_link_local else reached
        siblings = next((found for found in self._interfaces().values() if reached in found), ())
        for other in siblings:
            candidate = ip_address(other)
            if not isinstance(candidate, IPv6Address) and not candidate.is_link_local:
                return other
        return self._fallback if address.is_link_local else reached


def plain(address: str) -> str:
    """Return the address without zone, and an IPv4 address that came as `::ffff:1.2.3.4` as itself."""
    bare = address.partition("%")[0]
    if ":" not in bare:
        return bare
    parsed = IPv6Address(bare)
    return str(parsed.ipv4_mapped or parsed)
