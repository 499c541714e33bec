"""`rocketbox doctor`: what is wrong with this box, why, and the next step; exit 0, 1 warnings, 2 errors."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from appliance.commands.box.status import health_path, running_ports
from appliance.commands.settings import add_config_arguments, add_serial_arguments, chosen_config, data_folder
from appliance.errors import ConfigError
from appliance.health.doctor import SHIPPED_SYSCTL, Finding, examine, exit_status
from appliance.health.doctor_facts import gather

MARKS = {"ok": " ", "warning": "!", "error": "✗"}
SYSCTL_FILE = Path("/etc/sysctl.d/60-rocketbox.conf")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add_config_arguments(parser)
    add_serial_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object per finding")
    parser.add_argument("--all", action="store_true", help="also print checks that pass")
    parser.add_argument("--facts", type=Path, metavar="FILE", help="diagnose another box from its facts")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the facts of this box to a file")
    parser.add_argument("--fix", action="store_true", help="apply the shipped kernel settings (root)")


def run(arguments: argparse.Namespace) -> int:
    """Examine; return the exit code."""
    if arguments.over_serial:
        return _of_the_line(arguments)
    findings: list[Finding] = []
    try:
        facts = saved_facts(arguments.facts) if arguments.facts else own_facts(arguments, findings)
        if arguments.save:
            arguments.save.write_text(json.dumps(facts, indent=1) + "\n")
    except OSError as exc:
        print(f"rocketbox: {exc.filename}: {exc.strerror}", file=sys.stderr)
        return 2
    except ValueError as exc:
        print(f"rocketbox: {arguments.facts}: not a file of `rocketbox doctor --save`: {exc}", file=sys.stderr)
        return 2
    findings += examine(facts)
    tell(findings, arguments)
    if arguments.fix and facts.get("container"):
        print("rocketbox: a container has the kernel settings of its host: set them there", file=sys.stderr)
        return 2
    if arguments.fix:
        return fix()
    if exit_status(findings) == 0 and not arguments.json:
        print(f"{len(findings)} checks, nothing wrong")
    return exit_status(findings)


def _of_the_line(arguments: argparse.Namespace) -> int:
    """Tell what the box at a serial port finds wrong with itself; return the exit code."""
    from appliance.device.over_serial import ask_over_serial
    from provisioning.errors import ProvisioningError

    if arguments.fix or arguments.save or arguments.facts:
        print("rocketbox: --fix, --save and --facts are for the box itself, not for --over-serial", file=sys.stderr)
        return 2
    try:
        told = ask_over_serial(arguments, "doctor")
    except ProvisioningError as exc:
        print(f"rocketbox: {exc}", file=sys.stderr)
        return 2
    findings = [Finding(**{name: str(text) for name, text in row.items()}) for row in told["findings"]]
    tell(findings, arguments)
    if not findings and not arguments.json:
        print("nothing wrong")
    return exit_status(findings)


def tell(findings: list[Finding], arguments: argparse.Namespace) -> None:
    """Print findings as they are asked for."""
    for one in findings:
        if arguments.json:
            print(json.dumps(one.to_json()))
        elif one.severity != "ok" or arguments.all:
            print(describe(one))


def saved_facts(path: Path) -> dict[str, Any]:
    """Return the facts of a box that `--save` wrote. Raises OSError, ValueError."""
    facts = json.loads(path.read_text())
    if not isinstance(facts, dict):
        raise ValueError(f"{type(facts).__name__} where an object is expected")
    return facts


def own_facts(arguments: argparse.Namespace, findings: list[Finding]) -> dict[str, Any]:
    """Return the facts of this box; a configuration that cannot be used is a finding."""
    data, config = data_folder(arguments), None
    try:
        config = chosen_config(arguments, data, running_ports(arguments))
    except ConfigError as exc:
        step = "`rocketbox config check`"
        findings.append(Finding("E401", "error", str(exc), "the product does not start with this", step))
    return gather(data, config, health=health_path(arguments))


def describe(one: Finding) -> str:
    """Return a finding as a person reads it."""
    lines = [f"{MARKS[one.severity]} {one.code}  {one.value}"]
    lines += [f"        {one.reason}"] if one.reason else []
    lines += [f"        next: {one.next}"] if one.next else []
    return "\n".join(lines)


def fix() -> int:
    """Write the shipped kernel settings and load them, showing before and after."""
    try:
        before = {key: Path("/proc/sys", key.replace(".", "/")).read_text().strip() for key in SHIPPED_SYSCTL}
        SYSCTL_FILE.write_text("".join(f"{key} = {value}\n" for key, value in SHIPPED_SYSCTL.items()))
        subprocess.run(["sysctl", "-q", "-p", str(SYSCTL_FILE)], check=True)
    except (OSError, subprocess.CalledProcessError) as exc:
        print(f"rocketbox: cannot change kernel settings: {exc}; run as root", file=sys.stderr)
        return 2
    for key, old in before.items():
        print(f"{key}: {old} → {SHIPPED_SYSCTL[key]}")
    return 0
