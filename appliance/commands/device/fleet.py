"""`rocketbox fleet apply boxes.csv`: many boxes, several ports at a time, repeatable."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from appliance.commands.device.provision import INTERRUPTED, NOT_AGREED, add_target_arguments
from appliance.device.bench_console import Console, add_bench_arguments, load_bench, run_until_interrupted
from appliance.device.fleet_members import FleetGroups, public_part
from appliance.device.provisioning_run import bundle_version, provision_box
from provisioning.errors import LinkLost, ProvisioningError
from provisioning.fleet import FleetRow, FleetRun, RowResult, read_rows, text_of
from provisioning.flow import DesiredState, ProvisioningResult, load_receipt
from provisioning.host import Bench, choose_ports, find
from provisioning.labels import Label, labels_csv, labels_page
from provisioning.ownership import owner_id
from provisioning.port import candidates
from uplink_spark.bounds import whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    apply = verbs.add_parser("apply", help="provision all connected boxes of a CSV file")
    apply.add_argument("file", type=Path, metavar="boxes.csv")
    add_bench_arguments(apply)
    add_target_arguments(apply)
    apply.add_argument(
        "--port",
        "--ports",
        action="append",
        default=[],
        metavar="A,B,…",
        help="serial devices or socket://host:port (default: all adapters)",
    )
    apply.add_argument(
        "--groups",
        type=Path,
        default=Path("groups"),
        metavar="DIR",
        help="certificates of groups: a folder for each, a CA in it is used again; keep it secret",
    )
    apply.add_argument("--jobs", type=whole(1), default=4, metavar="N", help="boxes at the same time")
    apply.add_argument(
        "--labels",
        type=Path,
        default=Path("labels.csv"),
        metavar="FILE",
        help="labels as CSV, and as a page with the suffix .html",
    )


def run(arguments: argparse.Namespace) -> int:
    """Apply a file; return the exit code of the worst box."""
    console = Console(as_json=arguments.json, yes=arguments.yes)
    try:
        return run_until_interrupted(_apply, arguments, load_bench(arguments), console)
    except ProvisioningError as exc:
        return console.fail(exc)
    except KeyboardInterrupt:
        console.warn("interrupted: finished boxes have their receipt, run the same command again for the rest")
        return INTERRUPTED


def _agreed(planned: Sequence[tuple[FleetRow, str, str]], arguments: argparse.Namespace, console: Console) -> bool:
    """Show the plan; return whether it is to be carried out, or to be shown alone."""
    for row, port, serial in planned:
        console.say("Plan", f"{row.name}: {serial} at {port}", name=row.name, serial=serial)
    if not planned or arguments.dry_run:
        return True
    if console.ask(f"Set up {len(planned)} boxes, and claim those without an owner?"):
        return True
    console.warn("nothing was changed: the plan was not confirmed (--yes confirms)")
    return False


@dataclass(frozen=True, slots=True)
class FleetFile:
    """What a fleet file wants of its boxes; `configs` by line."""

    rows: Sequence[FleetRow]
    configs: Mapping[int, bytes | None]
    groups: FleetGroups
    version: str

    def run_of(self, receipts: Path, fleet_secret: bytes) -> FleetRun:
        """Return a run over the boxes, with the certificates that are there now."""
        prints = {}
        for row in self.rows:
            certificates = public_part(self.groups.keys(row))
            prints[row.line] = row.fingerprint(self.configs[row.line] or b"", self.version, certificates)
        return FleetRun(self.rows, prints, receipts, fleet_secret)

    def wanted(self, row: FleetRow, arguments: argparse.Namespace, fingerprint: str) -> DesiredState:
        """Return what one box should be like."""
        return DesiredState(
            config=self.configs[row.line],
            keys=self.groups.keys(row),
            network=row.network,
            bundle=arguments.bundle,
            version=self.version,
            downgrade=arguments.downgrade,
            retry=arguments.retry,
            row=fingerprint,
        )


async def read_file(arguments: argparse.Namespace) -> FleetFile:
    """Return what the file wants. Raises E401, E303."""
    try:
        rows = read_rows(text_of(await trio.Path(arguments.file).read_bytes()))
    except OSError as exc:
        raise ProvisioningError("E401", f"cannot read {arguments.file}: {exc.strerror}") from exc
    except ProvisioningError as exc:
        raise ProvisioningError(exc.code, f"{arguments.file}: {exc.text}", **exc.facts) from exc
    groups, boxes = FleetGroups(rows, arguments.groups), [row for row in rows if row.box]
    configs = {row.line: config_of(row, arguments.file.parent, groups) for row in boxes}
    return FleetFile(boxes, configs, groups, bundle_version(arguments.bundle))


async def _apply(arguments: argparse.Namespace, bench: Bench, console: Console) -> int:
    file = await read_file(arguments)
    boxes = await boxes_at(ports_of(arguments, console), arguments.baud, console)
    before = file.run_of(arguments.receipts, bench.fleet_secret)
    planned = before.assign(boxes)
    tell_left(before.left(boxes), console)
    if (arguments.dry_run or not arguments.yes) and not _agreed(planned, arguments, console):
        return NOT_AGREED
    if arguments.dry_run:
        return 0
    file.groups.make()
    fleet = file.run_of(arguments.receipts, bench.fleet_secret)

    async def work(port: str, serial: str, row: FleetRow) -> ProvisioningResult:
        wanted = file.wanted(row, arguments, fleet.fingerprints[row.line])
        return await provision_box(port, wanted, bench, arguments, console, serial=serial, quiet=True)

    def report(result: RowResult) -> None:
        console.say(result.state.capitalize(), f"{result.row.name:<20} {result.serial:<14} {result.text}")

    results = await fleet.run(boxes, work, jobs=max(1, arguments.jobs), report=report)
    for text in file.groups.told():
        console.say("Witness", text)
    write_labels(arguments.labels, results, arguments.receipts, bench, console)
    count = {state: sum(one.state == state for one in results) for state in ("done", "skipped", "failed")}
    console.say("Total", f"{count['done']} done, {count['skipped']} skipped, {count['failed']} failed", **count)
    return max((exit_of(one) for one in results), default=0)


def tell_left(left: Sequence[str], console: Console) -> None:
    """Say which connected boxes no row is for."""
    if left:
        names = ", ".join(left[:8]) + (f" and {len(left) - 8} more" if len(left) > 8 else "")
        console.warn(f"no line of the file is for {names}: left as they are; a line is one box")


def exit_of(result: RowResult) -> int:
    """Return the exit status of one row: that of its E-code."""
    return ProvisioningError(result.text[:4], "").exit_status if result.state == "failed" else 0


def config_of(row: FleetRow, folder: Path, groups: FleetGroups) -> bytes | None:
    """Return a row's configuration; its file is named relative to the CSV file. Raises E401 with the line."""
    template = folder / row.config if row.config else None
    try:
        return groups.configuration(row, template)
    except ProvisioningError as exc:
        text = exc.text.replace("; column ", f"; line {row.line}, column ")
        where = f"line {row.line}, " if text.startswith("column ") else f"line {row.line}: "
        raise ProvisioningError(exc.code, where + text, **exc.facts) from exc


def ports_of(arguments: argparse.Namespace, console: Console) -> list[str]:
    named = [name.strip() for several in arguments.port for name in several.split(",") if name.strip()]
    return named or choose_ports(candidates(), console.ask)


async def boxes_at(ports: list[str], baud: int, console: Console) -> dict[str, str]:
    """Return serial -> port of every box that answers; the other ports are told and left alone."""
    found: dict[str, str] = {}

    async def look(port: str) -> None:
        try:
            found[str((await find([port], baud=baud)).identity["serial"])] = port
        except (ProvisioningError, LinkLost) as exc:
            console.warn(f"{port}: {exc}")

    async with trio.open_nursery() as nursery:
        for port in ports:
            nursery.start_soon(look, port)
    return found


def write_labels(file: Path, results: list[RowResult], receipts: Path, bench: Bench, console: Console) -> None:
    """Write labels of all finished boxes as CSV, and as a page where the QR library is there."""
    labels = []
    for one in results:
        receipt = load_receipt(receipts, one.serial) if one.state != "failed" else None
        if receipt is not None:
            address = one.row.network.get("address", "dhcp")
            owner = bench.owner_id or owner_id(bench.fleet_secret)
            labels.append(Label(one.serial, one.row.name, one.row.site, address, str(receipt["version"]), owner))
    file.write_text(labels_csv(labels))
    try:
        file.with_suffix(".html").write_text(labels_page(labels))
    except ProvisioningError as exc:
        console.warn(str(exc))
