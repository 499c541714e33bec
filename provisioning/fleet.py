"""Many boxes from one CSV file: checked as a whole, provisioned in parallel, receipts as the only state."""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import ipaddress
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import trio

from provisioning.errors import LinkLost, ProvisioningError
from provisioning.fleet_groups import GROUP_COLUMNS, WITNESS, GroupCells, group_errors
from provisioning.flow import ProvisioningResult, load_receipt, save_receipt
from provisioning.ownership import box_secret, receipt_fits

COLUMNS = frozenset({"serial", "name", "site", "address", "gateway", "dns", "config", *GROUP_COLUMNS})
SETTING = re.compile(r"set\.([a-z_]+)\.([a-z_]+)")
NAME = re.compile(r"[a-z0-9-]{1,40}")
COUNTER = re.compile(r"\{n(?::0(\d+)d)?\}")


@dataclass(frozen=True, slots=True)
class FleetRow:
    """One box of the file; `line` is where it stands."""

    line: int
    serial: str
    name: str
    site: str = ""
    network: Mapping[str, str] = field(default_factory=dict)
    config: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    place: GroupCells | None = None

    @property
    def box(self) -> bool:
        """Whether a box is to be provisioned: a witness is a process on another machine."""
        return self.place is None or self.place.role != WITNESS

    def fingerprint(self, config: bytes, version: str, certificates: bytes = b"") -> str:
        """Return what a receipt must carry for this row to count as done: row, configuration, version, certificates."""
        value = [self.name, self.site, sorted(self.network.items()), sorted(self.settings.items()), version]
        return hashlib.sha256(json.dumps(value).encode() + b"\0" + config + certificates).hexdigest()


def text_of(data: bytes) -> str:
    """Return the text of a fleet file. Raises E401 with the line where it is not UTF-8."""
    try:
        return data.decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        text = f"line {line}: byte {data[exc.start]:#04x} is not UTF-8: save the file as CSV UTF-8"
        raise ProvisioningError("E401", text, errors=[text]) from exc


def read_rows(text: str) -> list[FleetRow]:
    """Parse a fleet file: header required; BOM, CRLF and `;` accepted. Raises E401 with every error in it."""
    text = text.removeprefix("\ufeff")
    first = text.partition("\n")[0]
    table = csv.reader(io.StringIO(text), delimiter=";" if first.count(";") > first.count(",") else ",")
    header = [name.strip() for name in next(table, [])]
    errors = [
        f"line 1: unknown column {name!r}" + _meant(name)
        for name in header
        if name not in COLUMNS and not SETTING.fullmatch(name)
    ]
    errors += [f"line 1: column {name!r} twice" for name, count in Counter(header).items() if count > 1]
    if not {"name", "group"} & set(header):
        errors.append("line 1: a column `name` is needed")
    rows: list[FleetRow] = []
    for number, cells in enumerate(table, 2):
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            errors.append(f"line {number}: {len(cells)} cells, the header has {len(header)}")
            continue
        rows.append(_row(number, dict(zip(header, map(str.strip, cells), strict=True)), len(rows) + 1))
    errors += [error for row in rows for error in _row_errors(row)] + _shared_errors(rows)
    errors += group_errors([row.place for row in rows if row.place is not None])
    if not rows and not errors:
        errors.append("no line below the header: write a line for each box")
    if errors:
        raise ProvisioningError("E401", "; ".join(errors), errors=errors)
    return rows


def _meant(name: str) -> str:
    found = difflib.get_close_matches(name.lower(), sorted(COLUMNS), n=1)
    return f", did you mean {found[0]!r}?" if found else ""


def _row(line: int, cells: Mapping[str, str], count: int) -> FleetRow:
    given = {name: cells.get(name, "") for name in GROUP_COLUMNS}
    name = COUNTER.sub(lambda found: str(count).zfill(int(found[1] or 0)), cells.get("name", ""))
    name = name or "-".join(filter(None, (given["group"], given["member"])))
    network = {key: cells[key] for key in ("address", "gateway", "dns") if cells.get(key)}
    settings = {}
    for column, value in cells.items():
        key = SETTING.fullmatch(column)
        if key and value:
            settings[f"{key[1]}.{key[2]}"] = value
    place = None
    if any(given.values()):
        place = GroupCells(line=line, serial=cells.get("serial", ""), settings=settings, network=network, **given)
    row = FleetRow(line, cells.get("serial", ""), name, cells.get("site", ""), network, settings=settings, place=place)
    return replace(row, config=cells.get("config", ""))


def _row_errors(row: FleetRow) -> list[str]:
    errors = [] if NAME.fullmatch(row.name) else [f"name {row.name!r}, allowed: 1 to 40 of a-z 0-9 -"]
    return [f"line {row.line}: {each}" for each in (*errors, *network_errors(row.network))]


def network_errors(network: Mapping[str, str]) -> list[str]:
    """Return why a box with this network could not be reached, or finds no names."""
    for server in network.get("dns", "").replace(",", " ").split():
        if not _is_address(server.partition("#")[0]):
            return [f"dns {server!r}: a name server is written as an address, 10.1.2.1"]
    address = network.get("address", "dhcp")
    if address == "dhcp" and "gateway" in network:
        return [f"gateway {network['gateway']} needs an address beside it, as 10.1.2.3/24: dhcp names a router itself"]
    if address == "dhcp":
        return []
    try:
        interface = ipaddress.ip_interface(address)
        gateway = ipaddress.ip_address(network["gateway"]) if "gateway" in network else None
    except ValueError:
        given = ", ".join(f"{key} {network[key]!r}" for key in ("address", "gateway") if key in network)
        return [f"{given}: an address is written as 10.1.2.3/24 or dhcp, a gateway as 10.1.2.1"]
    if "/" not in address:
        return [f"address {address!r} needs a prefix length, as in {address}/24"]
    if gateway is not None and gateway not in interface.network:
        return [f"gateway {gateway} is not in {interface.network}"]
    if interface.ip in (interface.network.network_address, interface.network.broadcast_address):
        return [f"{interface.ip} cannot be the address of a box in {interface.network}"]
    return []


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _shared_errors(rows: Sequence[FleetRow]) -> list[str]:
    """Return what two rows may not have in common."""
    errors = []
    for what, values in (
        ("serial", [(row.serial, row.line) for row in rows if row.serial]),
        ("name", [(row.name, row.line) for row in rows]),
        ("address", [(_ip(row), row.line) for row in rows if _ip(row)]),
    ):
        seen: dict[str, int] = {}
        for value, line in values:
            if value in seen:
                errors.append(f"line {line}: {what} {value} is in line {seen[value]} already")
            seen.setdefault(value, line)
    return errors


def _ip(row: FleetRow) -> str:
    address = row.network.get("address", "dhcp")
    return "" if address == "dhcp" else address.partition("/")[0]


@dataclass(frozen=True, slots=True)
class RowResult:
    """What became of one row."""

    row: FleetRow
    serial: str
    state: str  # done, skipped, failed
    text: str = ""


Work = Callable[[str, str, FleetRow], Awaitable[ProvisioningResult]]  # port, serial at it, row


def is_done(row: FleetRow, fingerprint: str, receipts: Path, fleet_secret: bytes, serial: str = "") -> bool:
    """Tell whether a receipt with a fitting seal says that this box is as the row wants it."""
    receipt = load_receipt(receipts, serial or row.serial)
    if receipt is None or receipt.get("row") != fingerprint:
        return False
    return receipt_fits(box_secret(fleet_secret, str(receipt["serial"])), receipt)


@dataclass(frozen=True, slots=True)
class FleetRun:
    """One run over a file: `fingerprints` by line, ports by the serial number found at each."""

    rows: Sequence[FleetRow]
    fingerprints: Mapping[int, str]
    receipts: Path
    fleet_secret: bytes

    def done_rows(self) -> dict[int, str]:
        """Return line -> serial of rows whose receipt fits; rows without a serial claim any receipt of their own."""
        found = {}
        kept = {path.stem: load_receipt(self.receipts, path.stem) for path in self.receipts.glob("*.json")}
        by_row = {str(receipt.get("row")): serial for serial, receipt in kept.items() if receipt}
        for row in self.rows:
            serial = row.serial or by_row.get(self.fingerprints[row.line], "")
            if serial and is_done(row, self.fingerprints[row.line], self.receipts, self.fleet_secret, serial):
                found[row.line] = serial
        return found

    def assign(self, boxes: Mapping[str, str]) -> list[tuple[FleetRow, str, str]]:
        """Return (row, port, serial): named rows get their box, rows without a serial the next free one."""
        done = self.done_rows()
        open_rows = [row for row in self.rows if row.line not in done]
        taken = {row.serial for row in self.rows if row.serial} | set(done.values())
        free = [serial for serial in sorted(boxes) if serial not in taken]
        pairs = []
        for row in open_rows:
            serial = row.serial or (free.pop(0) if free else "")
            if serial in boxes:
                pairs.append((row, boxes[serial], serial))
        return pairs

    def left(self, boxes: Mapping[str, str]) -> list[str]:
        """Return the serials of connected boxes that no row is for."""
        meant = {serial for _, _, serial in self.assign(boxes)} | set(self.done_rows().values())
        return sorted(set(boxes) - meant)

    async def run(
        self, boxes: Mapping[str, str], work: Work, *, jobs: int, report: Callable[[RowResult], None]
    ) -> list[RowResult]:
        """Provision every box that is there, `jobs` at a time; one failure does not stop the others."""
        done, results = self.done_rows(), []
        for row in self.rows:
            if row.line in done:
                results.append(RowResult(row, done[row.line], "skipped", "as its receipt says"))
                report(results[-1])
        pairs = self.assign(boxes)
        limit = trio.CapacityLimiter(jobs)

        async def one(row: FleetRow, port: str, serial: str) -> None:
            async with limit:
                try:
                    outcome = await work(port, serial, row)
                    if outcome.receipt is not None:
                        save_receipt(self.receipts, outcome.receipt)
                except (ProvisioningError, LinkLost) as exc:
                    results.append(RowResult(row, serial, "failed", str(exc)))
                else:
                    results.append(RowResult(row, serial, "done", ", ".join(outcome.changes)))
                report(results[-1])

        async with trio.open_nursery() as nursery:
            for row, port, serial in pairs:
                nursery.start_soon(one, row, port, serial)
        met = {result.row.line for result in results}
        for row in self.rows:
            if row.line not in met:
                results.append(RowResult(row, row.serial, "failed", f"E101 no box {row.serial or 'left'} at any port"))
                report(results[-1])
        return sorted(results, key=lambda result: result.row.line)
