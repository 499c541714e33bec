"""Members of groups from a fleet file: the configuration and the certificates of each."""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from appliance.commands.box.group_files import USUAL_PORT, make_certificates, witness_told
from appliance.configuration.config import HostFacts, load_config
from appliance.configuration.group_settings import AUTOMATIC, BROKER_BELOW, MANUAL, read_member
from appliance.configuration.settings_docs import toml_value
from appliance.device.provisioning_run import render_config
from appliance.errors import ConfigError
from provisioning.box import flatten
from provisioning.errors import ProvisioningError
from provisioning.fleet import FleetRow
from provisioning.fleet_groups import BROKER_PORT, WITNESS, GroupCells, common_settings, groups_in

ON_THE_BOX = "group"  # folder of the certificates, in that of the keys: those of an uplink stay beside it
CERTS = f"/etc/rocketbox/keys/{ON_THE_BOX}"
ANY_ADDRESS = "0.0.0.0"
FILES = ("box.crt", "box.key", "ca.crt")
# What `serve` calls wrong → the column that says it.
COLUMNS = {"group.member": "member", "group.members": "group", "box.name": "group", "replication.role": "group"}


class FleetGroups:
    """The groups of one file; certificates are kept below `folder`, a folder for each group."""

    def __init__(self, rows: Sequence[FleetRow], folder: Path) -> None:
        self._groups, self._folder = groups_in([row.place for row in rows if row.place is not None]), folder

    def configuration(self, row: FleetRow, template: Path | None) -> bytes | None:
        """Return a row's configuration. Raises E401."""
        if row.place is None:
            return render_config(template, name=row.name, site=row.site, settings=row.settings)
        settings = {**self._settings(row.place), **row.settings}
        made = render_config(template, name=row.place.group, site=row.site, settings=settings) or b""
        if "listen.host" not in flatten(tomllib.loads(made.decode())):
            settings["listen.host"] = _listened(row.place, settings)
            made = render_config(template, name=row.place.group, site=row.site, settings=settings) or b""
        _check(row.place, made.decode())
        return made

    def _settings(self, cells: GroupCells) -> dict[str, str]:
        """Return what the columns mean, as a cell of `set.…` would say it."""
        members = self._groups[cells.group]
        found = {
            "replication.role": "member",
            "group.member": cells.member,
            "group.members": toml_value(tuple(each.listed for each in members)),
            "group.elections": MANUAL if len(members) == 2 else AUTOMATIC,
            "group.certs": CERTS,
        }
        if (port := read_member(cells.listed).port - BROKER_BELOW) != USUAL_PORT:
            found[BROKER_PORT] = str(port)
        return found | common_settings(members)

    def make(self) -> None:
        """Make the certificates that are missing or end within a month. Raises E401."""
        for group, members in self._groups.items():
            try:
                make_certificates(self._folder / group, group, [each.member for each in members], keep=True)
            except ConfigError as exc:
                raise ProvisioningError("E401", f"certificates of {group}: {exc}") from exc

    def keys(self, row: FleetRow) -> dict[str, bytes]:
        """Return the certificates of a row's box by the box's names of them, {} before they are made."""
        if row.place is None:
            return {}
        folder = self._folder / row.place.group / row.place.member / "keys"
        found = {f"{ON_THE_BOX}/{name}": folder / name for name in FILES}
        return {name: path.read_bytes() for name, path in found.items() if path.exists()}

    def told(self) -> Iterator[str]:
        """Yield what is left to do where witnesses run, a text each."""
        for group, members in self._groups.items():
            texts, timing = [each.listed for each in members], common_settings(members).get("group.timing")
            for each in members:
                if each.role == WITNESS:
                    more = f" --timing {timing}" if timing else ""
                    yield f"in {self._folder / group}: {witness_told(group, read_member(each.listed), texts, more)}"


def public_part(keys: Mapping[str, bytes]) -> bytes:
    """Return the certificates alone."""
    return b"".join(data for name, data in sorted(keys.items()) if name.endswith(".crt"))


def _listened(cells: GroupCells, settings: Mapping[str, str]) -> str:
    """Return where a member's ports are: at its own address, at each where that moves or is not known."""
    try:
        return ANY_ADDRESS if settings.get("group.address") else str(ipaddress.ip_address(cells.host))
    except ValueError:
        return ANY_ADDRESS


def _check(cells: GroupCells, text: str) -> None:
    """Raise E401 where `serve` would refuse the configuration, or others would look for the box elsewhere."""
    try:
        config = load_config(text, source="rocketbox.toml", facts=HostFacts(1 << 40, "", cells.group))
    except ConfigError as exc:
        raise _wrong((_column(each.key, cells), each.reason) for each in exc.problems) from exc
    wanted = config.listen.broker_port + BROKER_BELOW
    if read_member(cells.listed).port != wanted:
        text = f"{cells.reached}, but a box with broker_port {config.listen.broker_port} takes the log on port {wanted}"
        raise _wrong([("link", text)])


def _column(name: str, cells: GroupCells) -> str:
    return f"set.{name}" if name in cells.settings else COLUMNS.get(name, f"set.{name}")


def _wrong(problems: Iterable[tuple[str, str]]) -> ProvisioningError:
    errors = [f"column {column}: {text}" for column, text in problems]
    return ProvisioningError("E401", "; ".join(errors), errors=errors)
