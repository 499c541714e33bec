"""Where things are on a box, and what systemd reads of them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provisioning.errors import ProvisioningError
from provisioning.session import Owner
from provisioning.slots import Slots, sync_folder

ADDRESS_UNIT = "floating-address.conf"


class BoxFiles:
    """Where things are on a box, below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "etc/rocketbox/rocketbox.toml"
        self.owner = root / "etc/rocketbox/owner"
        self.keys = root / "etc/rocketbox/keys"
        self.network = root / "etc/systemd/network/10-rocketbox.network"
        self.incoming = root / "var/lib/rocketbox/incoming"
        self.state = root / "var/lib/rocketbox"
        self.factory = root / "var/lib/rocketbox-factory"
        self.trusted_keys = root / "usr/lib/rocketbox/keys"
        self.slots = Slots(root / "opt")

    def fact(self, name: str, otherwise: str) -> str:
        """Return a line the factory wrote: serial, model."""
        try:
            return (self.factory / name).read_text().strip()
        except OSError:
            return otherwise

    def load_owner(self) -> Owner | None:
        try:
            found = json.loads(self.owner.read_text())
            return Owner(str(found["owner_id"]), bytes.fromhex(found["secret"]))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, RecursionError) as exc:
            raise ProvisioningError("E203", f"{self.owner} is damaged: reset the box to factory state") from exc


def write_file(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace a file durably."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(handle, "wb") as out:
        os.fchmod(handle, mode)  # whatever the umask
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    os.replace(fresh, path)
    sync_folder(path.parent)


def network_unit(network: Mapping[str, str]) -> str:
    """Return a systemd-networkd file for an address in CIDR form or `dhcp`."""
    lines = ["# written by rocketbox provision", "[Match]", "Type=ether", "", "[Network]"]
    address = network.get("address", "dhcp")
    if address in ("", "dhcp"):
        lines.append("DHCP=yes")
    else:
        lines.append(f"Address={address}")
        lines += [f"Gateway={network['gateway']}"] if network.get("gateway") else []
    lines += [f"DNS={one}" for one in network.get("dns", "").replace(",", " ").split()]
    return "\n".join(lines) + "\n"


class AddressRight:
    """The right of the product's unit to move an address: a drop-in, where the configuration names `group.address`."""

    def __init__(self, root: Path) -> None:
        self.path = root / "etc/systemd/system/rocketbox.service.d" / ADDRESS_UNIT
        self.shipped = root / "usr/lib/rocketbox" / ADDRESS_UNIT

    def fits(self, settings: Mapping[str, Any]) -> bool:
        """Return whether the unit has what a configuration needs, and no more. Raises E401."""
        there = self.path.read_bytes() if self.path.exists() else None
        return there == self._wanted(settings)

    def write(self, settings: Mapping[str, Any]) -> None:
        """Give the unit what a configuration needs; it counts once systemd reads it again. Raises E401."""
        wanted = self._wanted(settings)
        if wanted is not None:
            write_file(self.path, wanted, mode=0o644)
        elif self.path.exists():
            self.path.unlink()
            sync_folder(self.path.parent)

    def _wanted(self, settings: Mapping[str, Any]) -> bytes | None:
        if not settings.get("group.address"):
            return None
        try:
            return self.shipped.read_bytes()
        except FileNotFoundError as exc:
            text = f"group.address needs {self.shipped}, which this box has not: update its image or package first"
            raise ProvisioningError("E401", text) from exc
