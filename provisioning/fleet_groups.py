"""Groups of boxes in a fleet file: who belongs together, and what each cell of it may not say. No file, no port."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

GROUP_COLUMNS = ("group", "member", "role", "link")
BOX, WITNESS = "box", "witness"
MEMBER = re.compile(r"[a-z0-9-]{1,16}")
GROUP = re.compile(r"[a-z0-9-]{1,40}")
LINK = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+):(\d{1,5})")
LINK_PORT = 10912  # where a box with the usual broker port takes the log
BROKER_PORT = "listen.broker_port"
# What the members of a group have in common: one row says it, the others may.
SHARED = ("elections", "acknowledge", "copies", "wait_ms", "preferred", "address", "timing")


@dataclass(frozen=True, slots=True)
class GroupCells:
    """What one row says of a group. `link` is where the others reach the member, empty: its address, port 10912."""

    line: int
    group: str
    member: str
    role: str
    link: str
    serial: str
    settings: Mapping[str, str]
    network: Mapping[str, str]

    @property
    def reached(self) -> str:
        """Return HOST:PORT of the link, "" when the row does not say it."""
        host = self.network.get("address", "dhcp").partition("/")[0]
        if self.link or host == "dhcp":
            return self.link
        broker_port = self.settings.get(BROKER_PORT, "")
        port = int(broker_port) + 1 if broker_port.isdecimal() else LINK_PORT
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def listed(self) -> str:
        """Return the member as `group.members` lists it."""
        return f"{self.member}={self.reached}" + (" witness" if self.role == WITNESS else "")

    @property
    def host(self) -> str:
        """Return the host of the link without brackets."""
        return self.reached.rpartition(":")[0].strip("[]")


def groups_in(cells: Sequence[GroupCells]) -> dict[str, list[GroupCells]]:
    """Return group → its members, in the order of the file."""
    found: dict[str, list[GroupCells]] = {}
    for each in cells:
        found.setdefault(each.group, []).append(each)
    return found


def common_settings(members: Sequence[GroupCells]) -> dict[str, str]:
    """Return the settings that one row says for the whole group."""
    keys = [f"group.{name}" for name in SHARED]
    said = [(key, each.settings[key]) for key in keys for each in members if key in each.settings]
    return dict(reversed(said))  # the first row that says it


def group_errors(cells: Sequence[GroupCells]) -> list[str]:
    """Return everything that is wrong, each with line and column."""
    errors = [f"line {each.line}, column {column}: {text}" for each in cells for column, text in _cell_errors(each)]
    for group, members in groups_in(cells).items():
        if group:
            errors += _member_errors(group, members)
    return errors


def _cell_errors(cells: GroupCells) -> Iterator[tuple[str, str]]:
    if not GROUP.fullmatch(cells.group):
        yield "group", f"{cells.group!r}, allowed: 1 to 40 of a-z 0-9 -; it becomes box.name of its boxes"
    if not MEMBER.fullmatch(cells.member):
        yield "member", f"{cells.member!r}, allowed: 1 to 16 of a-z 0-9 -, as `a`"
    if cells.role not in ("", BOX, WITNESS):
        yield "role", f"{cells.role!r}, allowed: {BOX} (or empty), {WITNESS}"
    if cells.role == WITNESS and cells.serial:
        yield "serial", "a witness is a process on another machine, not a box: leave it empty"
    yield from _link_errors(cells)
    for key in cells.settings:
        if key in ("group.member", "group.members", "replication.role", "box.name"):
            yield f"set.{key}", "comes from the columns group, member and link: leave it out"


def _link_errors(cells: GroupCells) -> Iterator[tuple[str, str]]:
    if cells.link and not ((found := LINK.fullmatch(cells.link)) and 1 < int(found[2]) <= 65535):
        yield "link", f"{cells.link!r} is not HOST:PORT, as 10.1.0.11:{LINK_PORT}"
    elif not cells.reached:
        yield "link", f"is needed without a fixed address: HOST:{LINK_PORT}, where the other members reach this one"
    elif cells.link and (own := cells.network.get("address", "dhcp")) != "dhcp" and _differ(cells.host, own):
        yield "link", f"{cells.link} is not at this row's address {own}"


def _differ(host: str, address: str) -> bool:
    """Return whether a literal host is not a box's own address; a name may be anything."""
    try:
        return ipaddress.ip_address(host) != ipaddress.ip_interface(address).ip
    except ValueError:
        return False


def _member_errors(group: str, members: Sequence[GroupCells]) -> list[str]:
    """Return what members of one group may not have in common, and what they must."""
    errors = []
    for column, values in (("member", [each.member for each in members]), ("link", [each.reached for each in members])):
        for at, value in enumerate(values):
            if value and (before := values.index(value)) < at:
                text = f"{value} is in line {members[before].line} already: each member of {group} has its own"
                errors.append(f"line {members[at].line}, column {column}: {text}")
    common = common_settings(members)
    for each in members:
        for key, value in common.items():
            if _said(key, each.settings.get(key, value)) != _said(key, value):
                text = f"{each.settings[key]!r}, another row of {group} says {value!r}: the same for all its members"
                errors.append(f"line {each.line}, column set.{key}: {text}")
    boxes = sum(each.role != WITNESS for each in members)
    if (boxes, len(members) - boxes) not in ((2, 0), (2, 1), (3, 0)):
        text = f"{group} has {boxes} boxes and {len(members) - boxes} witnesses: two boxes, two and a witness, or three"
        errors.append(f"line {members[0].line}, column group: {text}")
    return errors


def _said(key: str, value: str) -> str:
    """Return what has to be the same: of an address that moves, not on which interface."""
    return value.partition("@")[0] if key == "group.address" else value
