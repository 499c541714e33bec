"""`rocketbox factory make SERIAL --model M`: what a box is given once, on the box itself, as root."""

import argparse
from pathlib import Path

from appliance.device.bench_console import Console, add_output_arguments
from provisioning.errors import ProvisioningError
from provisioning.factory import make_box
from uplink_spark.bounds import amount


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    make = verbs.add_parser("make", help="write serial number and model (only once), then burn in")
    make.add_argument("serial", metavar="SERIAL")
    make.add_argument("--model", required=True)
    make.add_argument("--seconds", type=amount(), default=60, help="duration of the disk test in seconds")
    make.add_argument("--root", type=Path, default=Path("/"), metavar="DIR", help="folder of a simulated box")
    add_output_arguments(make)


def run(arguments: argparse.Namespace) -> int:
    """Make a box; return the exit code."""
    console = Console(as_json=arguments.json, yes=arguments.yes)
    folder = arguments.root / "var/lib/rocketbox-factory"
    scratch = arguments.root / "var/lib/rocketbox"
    if arguments.dry_run:
        console.say("Plan", f"{folder}: serial {arguments.serial}, model {arguments.model}, burn-in on {scratch}")
        return 0
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        made = make_box(
            folder, arguments.serial, arguments.model, scratch=scratch, seconds=arguments.seconds, show=console.show
        )
    except ProvisioningError as exc:
        return console.fail(exc)
    except OSError as exc:
        return console.fail(ProvisioningError("E501", f"{exc}: run as root, on the box"))
    console.say("Done", f"{made['serial']}, model {made['model']}: burn-in ok, receipt in {folder}", **made)
    return 0
