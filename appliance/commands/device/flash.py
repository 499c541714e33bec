"""`rocketbox flash app|disk`: a signed bundle over the serial line, or an image onto a disk."""

import argparse
from pathlib import Path

from appliance.commands.device import provision
from appliance.device.bench_console import Console, add_box_arguments, add_output_arguments
from provisioning.errors import ProvisioningError
from provisioning.flash import check_facts, check_image, check_target, examine, write_facts, write_image


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    app = verbs.add_parser("app", help="install a bundle into a box's idle slot")
    app.add_argument("bundle", type=Path, metavar="FILE.rbx")
    add_box_arguments(app)
    app.add_argument("--downgrade", action="store_true", help="allow an older version")
    app.add_argument("--retry", action="store_true", help="allow a version that was rolled back")
    app.add_argument("--receipts", type=Path, default=Path("receipts"), metavar="DIR")
    app.set_defaults(name="", site="", config=None, set=[], address="", gateway="", dns="", key=[])
    disk = verbs.add_parser("disk", help="write an image to a whole disk and read it back")
    disk.add_argument("image", type=Path, metavar="IMAGE")
    disk.add_argument("--to", type=Path, required=True, metavar="DISK", help="/dev/sdX, or a file")
    disk.add_argument("--serial", metavar="SERIAL", help="serial number the box takes at its first boot")
    disk.add_argument("--model", default="x1", help="model of the box, with --serial")
    disk.add_argument("--force", action="store_true", help="allow a fixed disk, or one over 2 TiB")
    add_output_arguments(disk)


def run(arguments: argparse.Namespace) -> int:
    """Flash; return the exit code."""
    if arguments.verb == "app":
        return provision.run(arguments)
    console = Console(as_json=arguments.json, yes=arguments.yes)
    try:
        return flash_disk(arguments, console)
    except ProvisioningError as exc:
        return console.fail(exc)
    except KeyboardInterrupt:
        console.warn(f"interrupted: {arguments.to} holds a part of the image, flash it again")
        return provision.INTERRUPTED


def flash_disk(arguments: argparse.Namespace, console: Console) -> int:
    """Check, ask, write, read back. Raises ProvisioningError."""
    if not arguments.image.exists():
        raise ProvisioningError("E303", f"{arguments.image} does not exist")
    disk = examine(arguments.to)
    console.say("Disk", f"{disk.path}, {disk.model}, {disk.size / 1e9:.1f} GB")
    check_target(disk, force=arguments.force)
    facts = {"serial": arguments.serial, "model": arguments.model} if arguments.serial else {}
    check_facts(facts)
    check_image(arguments.image)
    if arguments.dry_run:
        return 0
    if disk.is_block and not console.ask(f"Everything on {disk.path} will be lost. Write?"):
        console.warn("nothing was written: not confirmed (--yes confirms)")
        return provision.NOT_AGREED
    written = write_image(arguments.image, disk, console.show)
    write_facts(disk, facts)
    text = f"{written.size / 1e6:.0f} MB, {written.real / 1e6:.0f} MB of them written, read back equal"
    console.say("Done", text, sha256=written.sha256)
    return 0
