"""`rocketbox update FILE.rbx`: on the box itself, from a stick or any folder, a signed bundle into the idle slot."""

import argparse
import shutil
import sys
from pathlib import Path

from appliance.admin import NAME
from appliance.commands.device.handing_over import hand_over
from provisioning.box_files import BoxFiles
from provisioning.bundle import InstallOptions, Manifest, Target, check_fits, check_parts, open_bundle, read_part
from provisioning.errors import ProvisioningError
from provisioning.root_slots import ImageError, RootPaths, install, load
from provisioning.slots import NO_SLOTS, SlotError

HELPER = ("/usr/bin/python3", "-I", "/usr/lib/rocketbox/escalate.py")
AGAIN = "use --again to replace the other slot"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("bundle", type=Path, metavar="FILE.rbx")
    parser.add_argument("--downgrade", action="store_true", help="allow an older version")
    parser.add_argument("--retry", action="store_true", help="allow a version that was rolled back")
    parser.add_argument(
        "--again", action="store_true", help="allow the running version: it replaces the one in the other slot"
    )
    parser.add_argument("--reboot", action="store_true", help="reboot into the new version after the installation")
    parser.add_argument("--root", type=Path, default=Path("/"), metavar="DIR", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Check and install; return the exit code."""
    try:
        text = update(arguments)
    except ProvisioningError as exc:
        print(f"rocketbox: {exc}", file=sys.stderr)
        return exc.exit_status
    except PermissionError as exc:
        print(f"rocketbox: {exc}: run it as root", file=sys.stderr)
        return 2
    except OSError as exc:  # a stick that was pulled, no room for the slot
        print(f"rocketbox: {exc}; the running version is unchanged", file=sys.stderr)
        return 2
    print(text, flush=True)
    if arguments.reboot:
        for told in hand_over(arguments.root / "run/rocketbox" / NAME):
            print(told, flush=True)
        places = RootPaths()
        places.run([*HELPER, "planned", "update", "rocketbox update"])
        places.run(["systemctl", "--no-block", "reboot"])
    return 0


def update(arguments: argparse.Namespace) -> str:
    """Install a bundle of either kind, return what to tell. Raises ProvisioningError E30x."""
    path, files = arguments.bundle, BoxFiles(arguments.root)
    if not path.exists():
        raise ProvisioningError("E303", f"{path} does not exist")
    manifest = open_bundle(path, files.trusted_keys)
    wishes = InstallOptions(downgrade=arguments.downgrade, retry=arguments.retry, again=arguments.again)
    if any(part.kind == "root" for part in manifest.parts):
        return update_image(path, manifest, files, wishes)
    if not files.slots.folder.is_dir():
        raise ProvisioningError("E302", NO_SLOTS)
    slots = files.slots.load()
    running = files.slots.running() or slots.active
    version = slots.version(running)
    check_fits(manifest, Target(files.fact("model", "generic"), version, slots.bad, free_bytes(files)), wishes)
    if manifest.version == version and not wishes.again:
        back = f"it can go back to {slots.version(slots.idle)} in slot {slots.idle}"
        raise ProvisioningError(
            "E305", f"{version} is already running, in slot {running}: nothing was written, {back}; {AGAIN}"
        )
    if slots.trial is not None:
        trial = f"slot {slots.trial} ({slots.version(slots.trial)}) is on trial: nothing was written"
        raise ProvisioningError("E306", f"{trial}; commit it or roll it back first")
    back = f"if it fails the box returns to {slots.version(slots.active)} in slot {slots.active}"
    gone = slots.version(slots.idle)
    print(f"slot {slots.idle} ({gone}) is replaced by {manifest.version}; {back}", flush=True)
    slot = install_app(path, manifest, files)
    return f"{manifest.version} is in slot {slot}, on trial from the next boot; {back}"


def update_image(path: Path, manifest: Manifest, files: BoxFiles, wishes: InstallOptions) -> str:
    """Write a root file system into the idle partition."""
    places = RootPaths(files.root)
    try:
        running, version = places.running()
        bad = tuple(map(str, load(places).get("bad", ())))
        check_fits(manifest, Target(files.fact("model", "generic"), version, bad), wishes)
        if manifest.version == version and not wishes.again:
            raise ProvisioningError(
                "E305", f"image {version} is already running, in root {running}: nothing was written; {AGAIN}"
            )
        back = f"if it fails the box returns to {version} in root {running}"
        check_parts(path, manifest)
        part = next(one for one in manifest.parts if one.kind == "root")
        print(f"image {manifest.version} goes into the other root; {back}", flush=True)
        with path.open("rb") as source:
            source.seek(part.at)
            slot = install(places, source, part.size, part.sha256, manifest.version)
    except ImageError as exc:
        raise ProvisioningError("E306" if "trial" in str(exc) else "E302", str(exc)) from exc
    return f"image {manifest.version} is in root {slot}, on trial from the next boot; {back}"


def install_app(path: Path, manifest: Manifest, files: BoxFiles) -> str:
    """Unpack the product into the idle slot."""
    check_parts(path, manifest)
    app = next(one for one in manifest.parts if one.kind == "app")
    archive = files.slots.folder / "update.app"
    try:
        with archive.open("wb") as out:
            for block in read_part(path, app):
                out.write(block)
        return files.slots.install(archive, manifest.files, manifest.version)
    except SlotError as exc:
        raise ProvisioningError("E306" if "trial" in str(exc) else "E302", str(exc)) from exc
    finally:
        archive.unlink(missing_ok=True)


def free_bytes(files: BoxFiles) -> int:
    """Return the room for slots."""
    files.slots.folder.mkdir(parents=True, exist_ok=True)
    return shutil.disk_usage(files.slots.folder).free
