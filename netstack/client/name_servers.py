"""`NameServers`: the addresses that a client was given, and which one it asks first."""

import os
from collections.abc import Sequence


def name_servers(given: str | Sequence[str] | None) -> list[str]:
    """Return NameServer addresses: a list, `a:9876;b:9876`, or what NAMESRV_ADDR says."""
    if given is None:
        given = os.environ.get("NAMESRV_ADDR", "")
    parts = given.replace(",", ";").split(";") if isinstance(given, str) else given
    return [part.strip() for part in parts if part.strip()]


class NameServers:
    """Asked in turn, beginning with the one that answered last."""

    def __init__(self, given: str | Sequence[str] | None) -> None:
        self.addresses, self._preferred = name_servers(given), 0

    @property
    def preferred(self) -> str | None:
        """The one that answered last, None where there is none."""
        return self.addresses[self._preferred] if self.addresses else None

    def in_turn(self) -> list[str]:
        """Return each address once."""
        return self.addresses[self._preferred :] + self.addresses[: self._preferred]

    def prefer(self, address: str) -> None:
        """Ask this one first from now on."""
        self._preferred = self.addresses.index(address)
