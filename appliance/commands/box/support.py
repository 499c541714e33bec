"""`rocketbox support`: one file for whoever helps: what the box knows about itself, without secrets and messages.

On the box it works with the service stopped, the network down and the disk full; --port fetches it over a serial line.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appliance.commands.box.status import health_path
from appliance.commands.settings import config_file, data_folder, no_folder
from appliance.support.bundle import CAP_BYTES, MIB, NowhereToWrite, make_bundle, write_bundle
from appliance.support.sources import BoxFolders
from uplink_spark.bounds import amount

if TYPE_CHECKING:
    from appliance.device.bench_console import Console
    from provisioning.host import Bench, BenchConversation

DONE, NOT_WRITTEN, WRONG_WORDS = 0, 1, 2
NAME = "rocketbox-support-%Y%m%d-%H%M%S.tar.gz"

EXAMPLE = """examples:
  rocketbox support --to /media/stick/press-17.tar.gz
  rocketbox support --to - | ssh me@desk "cat > press-17.tar.gz"
  rocketbox support --over-serial --port /dev/ttyUSB0
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.epilog, parser.formatter_class = EXAMPLE, argparse.RawDescriptionHelpFormatter
    from appliance.device.bench_console import add_box_arguments

    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file of the box")
    parser.add_argument("--data", type=Path, metavar="DIR", help="state of the box")
    parser.add_argument("--to", default="", metavar="FILE", help="where to write it; - is standard output")
    parser.add_argument(
        "--max-mib", type=amount(), default=CAP_BYTES / MIB, metavar="N", help="largest size of the file"
    )
    parser.add_argument("--over-serial", action="store_true", help="fetch it from the box at a serial port (--port)")
    add_box_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Make or fetch the bundle and say what is in it."""
    wanted = Path(arguments.to or time.strftime(NAME, time.gmtime()))
    if arguments.over_serial:
        return _fetch(arguments, wanted)
    if arguments.data is not None and (why := no_folder(arguments.data)):
        print(f"rocketbox: support: {why}", file=sys.stderr)
        return WRONG_WORDS
    place = BoxFolders(data_folder(arguments), health_path(arguments).parent, config_file(arguments))
    made = make_bundle(place, cap=int(arguments.max_mib * MIB))
    if arguments.to == "-":
        sys.stdout.buffer.write(made.data)
        return DONE
    try:
        path = write_bundle(made.data, wanted)
    except NowhereToWrite as exc:
        print(f"rocketbox: {exc}", file=sys.stderr)
        return NOT_WRITTEN
    if arguments.json:
        print(json.dumps({"file": str(path), "bytes": len(made.data), **made.manifest}))
    else:
        print(described(path, len(made.data), made.manifest))
    return DONE


def described(path: Path, size: int, manifest: dict[str, Any]) -> str:
    """Return what was collected as a person reads it."""
    redacted = sum(manifest["redacted"].values())
    lines = [f"{path}: {size / MIB:.2f} MiB, {len(manifest['collected'])} files, {redacted} secrets removed"]
    lines += [f"  missing   {row['name']}: {row['reason']}" for row in manifest["missing"]]
    lines += [f"  left out  {row['name']}: {row['reason']}" for row in manifest["left_out"]]
    return "\n".join(lines)


def _fetch(arguments: argparse.Namespace, wanted: Path) -> int:
    from appliance.device.bench_console import Console, load_bench, run_until_interrupted
    from provisioning.errors import ProvisioningError

    to_pipe = arguments.to == "-"
    console = Console(as_json=arguments.json, yes=arguments.yes, out=sys.stderr if to_pipe else None)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "support.tar.gz") if to_pipe else wanted
        try:
            run_until_interrupted(_over_serial, arguments, path, load_bench(arguments), console)
        except ProvisioningError as exc:
            return console.fail(exc)
        if to_pipe:
            sys.stdout.buffer.write(path.read_bytes())
            return DONE
    console.say("Support", str(wanted), file=str(wanted))
    return DONE


async def _over_serial(arguments: argparse.Namespace, wanted: Path, bench: Bench, console: Console) -> int:
    from appliance.device.provisioning_run import box_line, find_box
    from provisioning.errors import ProvisioningError
    from provisioning.host import keep_trying

    found = await find_box(arguments, console)

    async def work(talk: BenchConversation, identity: dict[str, Any]) -> None:
        if not identity["claimed"]:
            raise ProvisioningError("E201", "the box has no owner yet and gives no data: run `rocketbox provision`")
        console.say("Box", box_line(identity))
        await talk.own(identity, bench)
        if arguments.fast > talk.line.baud:
            await talk.speed_up(arguments.fast)
        await talk.get("support", wanted)

    await keep_trying(
        found.port,
        work,
        show=console.show,
        baud=arguments.baud,
        serial=str(found.identity["serial"]),
        lost=lambda text: console.warn(f"link lost ({text})"),
    )
    return DONE
