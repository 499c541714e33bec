"""`rocketbox provision`: one box from plugged in to receipt, over a serial line."""

import argparse
import time
from pathlib import Path

from appliance.device.bench_console import Console, add_box_arguments, load_bench, run_until_interrupted
from appliance.device.provisioning_run import bundle_version, find_box, provision_box, render_config
from provisioning.errors import ProvisioningError
from provisioning.fleet import network_errors
from provisioning.flow import DesiredState, ProvisioningResult, save_receipt
from provisioning.host import Bench

INTERRUPTED, NOT_AGREED = 130, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add_box_arguments(parser)
    add_target_arguments(parser)
    parser.add_argument("--name", default="", help="broker name, 1 to 40 of a-z 0-9 -")
    parser.add_argument("--site", default="", help="location of the box")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="TOML file for the box; settings that neither it nor --set gives go back to their defaults",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="TABLE.KEY=VALUE", help="a setting; may be repeated"
    )
    parser.add_argument("--address", default="", help="for example 10.1.2.3/24, or dhcp")
    parser.add_argument(
        "--gateway", default="", help="router of the network; for the uplink use --set uplink.gateway=…"
    )
    parser.add_argument("--dns", default="")
    parser.add_argument(
        "--key",
        action="append",
        type=Path,
        default=[],
        metavar="FILE",
        help="file with accounts or a certificate, copied to /etc/rocketbox/keys",
    )


def add_target_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what concerns bundles and receipts."""
    parser.add_argument("--bundle", type=Path, metavar="FILE.rbx", help="also install this version")
    parser.add_argument("--downgrade", action="store_true", help="allow an older version")
    parser.add_argument("--retry", action="store_true", help="allow a version that was rolled back")
    parser.add_argument("--receipts", type=Path, default=Path("receipts"), metavar="DIR")


def run(arguments: argparse.Namespace) -> int:
    """Provision one box; return the exit code."""
    console = Console(as_json=arguments.json, yes=arguments.yes)
    try:
        wanted = wanted_of(arguments)
        return run_until_interrupted(_run, arguments, wanted, load_bench(arguments), console)
    except ProvisioningError as exc:
        return console.fail(exc)
    except KeyboardInterrupt:
        console.warn("interrupted: uploads are kept, run the same command again to continue")
        return INTERRUPTED


def wanted_of(arguments: argparse.Namespace) -> DesiredState:
    """Return what the command line asks for. Raises E401, E303."""
    settings = {}
    for one in arguments.set:
        key, equals, value = one.partition("=")
        if not equals:
            raise ProvisioningError("E401", f"--set {one!r}: write TABLE.KEY=VALUE")
        settings[key] = value
    network = {name: getattr(arguments, name) for name in ("address", "gateway", "dns") if getattr(arguments, name)}
    if errors := network_errors(network):
        raise ProvisioningError("E401", errors[0])
    return DesiredState(
        config=render_config(arguments.config, name=arguments.name, site=arguments.site, settings=settings),
        keys={path.name: _key(path) for path in arguments.key},
        network=network,
        bundle=arguments.bundle,
        version=bundle_version(arguments.bundle),
        downgrade=arguments.downgrade,
        retry=arguments.retry,
    )


def _key(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise ProvisioningError("E401", f"--key {path}: {exc.strerror}") from exc


async def _run(arguments: argparse.Namespace, wanted: DesiredState, bench: Bench, console: Console) -> int:
    began_s = time.monotonic()
    found = await find_box(arguments, console)
    console.say("Port", found.port)
    serial = str(found.identity["serial"])
    outcome = await provision_box(found.port, wanted, bench, arguments, console, serial=serial)
    if outcome.receipt is None and not arguments.dry_run:
        console.warn("no setting was changed: the plan was not confirmed (--yes confirms)")
        return NOT_AGREED
    report(outcome, console, arguments.receipts, time.monotonic() - began_s)
    return 0


def report(outcome: ProvisioningResult, console: Console, receipts: Path, took_s: float) -> None:
    """Tell how it ended, keep the receipt."""
    if outcome.receipt is None:
        console.say("Plan", " · ".join(outcome.changes) or "nothing changes", dry_run=True)
        return
    path = save_receipt(receipts, outcome.receipt)
    checks = ", ".join((outcome.verified or {}).get("checks", [])) or "nothing to compare"
    waits = ((outcome.verified or {}).get("selftest") or {}).get("waits", "")
    console.say("Verify", f"read back ok ({checks}) · self-test ok" + (f", but {waits}" if waits else ""))
    version, slot = outcome.receipt["version"], outcome.receipt["slot"]
    took = f"{int(took_s) // 60}:{int(took_s) % 60:02d}"
    console.say("Done", f"{outcome.serial} runs {version} in slot {slot}      {took}      {path}", receipt=str(path))
