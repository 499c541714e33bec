"""`rocketbox status`: what the box says about itself; the exit code is the state, with --serving whether it serves."""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from appliance.commands.settings import add_config_arguments, add_serial_arguments, data_folder
from appliance.health.health_file import describe, read_health

INSTALLED = Path("/run/rocketbox/health.json")
EXIT = {"ok": 0, "starting": 1, "degraded": 1}
NO_BOX = 2  # or any other state
SERVING = {"ok": 0, "degraded": 0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add_config_arguments(parser)
    add_serial_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the health as one JSON object")
    parser.add_argument(
        "--serving",
        action="store_true",
        help="exit 0 while the box serves (ok, degraded), else 1: for containers",
    )
    parser.add_argument("--watch", action="store_true", help="print again at each change, until Ctrl-C; on the box")


def run(arguments: argparse.Namespace) -> int:
    """Print the state once, or until interrupted."""
    if arguments.over_serial:
        return _of_the_line(arguments)
    path = health_path(arguments)
    health = read_health(path)
    show(health, as_json=arguments.json)
    while arguments.watch:
        try:
            time.sleep(1)
        except KeyboardInterrupt:
            break
        fresh = read_health(path)
        if _essence(fresh) != _essence(health):
            show(fresh, as_json=arguments.json)
        health = fresh
    return _exit_code(health, arguments)


def _of_the_line(arguments: argparse.Namespace) -> int:
    """Print the state of the box at a serial port, once."""
    from appliance.device.over_serial import ask_over_serial
    from provisioning.errors import ProvisioningError

    try:
        health = ask_over_serial(arguments, "status")
    except ProvisioningError as exc:
        print(f"rocketbox: {exc}", file=sys.stderr)
        return NO_BOX
    show(health, as_json=arguments.json)
    return _exit_code(health, arguments)


def _exit_code(health: Mapping[str, Any], arguments: argparse.Namespace) -> int:
    state = str(health.get("state"))
    return SERVING.get(state, 1) if arguments.serving else EXIT.get(state, NO_BOX)


def health_path(arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Path:
    """Return where the product writes its health: the box's own place, or beside the data of `--data`."""
    runtime = environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    if runtime:
        return Path(runtime) / "health.json"
    if arguments.data is None and INSTALLED.exists():
        return INSTALLED
    return data_folder(arguments) / "run/health.json"


def running_ports(arguments: argparse.Namespace) -> dict[str, int]:
    """Return where the box of the data folder listens, as it wrote down itself: settings and their values.

    Empty where no box has run, and where a file is named by `--config`, which then counts.
    """
    said = read_health(health_path(arguments)).get("ports")
    if getattr(arguments, "config", None) is not None or not isinstance(said, dict):
        return {}
    return {f"listen.{name}_port": said[name] for name in ("namesrv", "broker") if isinstance(said.get(name), int)}


def running_page(arguments: argparse.Namespace) -> tuple[str, int] | None:
    """Return host and port of the page, as the box of the data folder wrote down itself; None where it has none."""
    said = read_health(health_path(arguments)).get("page")
    if not isinstance(said, dict) or not isinstance(said.get("port"), int) or not isinstance(said.get("host"), str):
        return None
    return said["host"], said["port"]


def show(health: Mapping[str, Any], *, as_json: bool) -> None:
    print(json.dumps(health) if as_json else describe(health), flush=True)


def _essence(health: Mapping[str, Any]) -> tuple[object, ...]:
    return (health.get("state"), health.get("version"), json.dumps(health.get("reasons")))
