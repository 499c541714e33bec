"""Two root partitions: a new image into the idle one, tried by the boot loader's count, kept or forgotten.

Standard library and slots.py only: the system's Python runs it
(`/usr/lib/rocketbox/image.py VERB`). A boot entry exists only while everything it names is synced; systemd-boot takes
the tries off in the entry's file name before it starts the kernel, so a kernel that hangs is given up as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from provisioning.slots import sync_folder

TRIES = 3
BLOCK = 1 << 20
ENTRY = re.compile(r"rocketbox-(?P<version>.+?)(\+(?P<left>\d+)(-(?P<done>\d+))?)?\.conf")
BOOT_FILES = ("vmlinuz", "initrd")
FACTORY = ("serial", "model")
NEWEST = 999_999  # boot entries are sorted upwards: the latest installed gets the smallest key


class ImageError(Exception):
    """An image cannot be installed or kept: the text says which and why."""


class BootEntry(NamedTuple):
    """A boot entry: `left` tries, None when it is kept for good."""

    path: Path
    version: str
    left: int | None


class RootPaths(NamedTuple):
    """Where things are; a test hands in folders and plain files."""

    root: Path = Path("/")
    run: Callable[[Sequence[str]], object] = lambda words: subprocess.run(words, check=True)

    @property
    def images(self) -> Path:
        return self.root / "var/lib/rocketbox-images"

    @property
    def trial_mark(self) -> Path:
        return self.root / "run/rocketbox-image-trial"

    def partition(self, slot: str) -> Path:
        return self.root / f"dev/disk/by-partlabel/rocketbox-{slot}"

    def running(self) -> tuple[str, str]:
        """Return slot and version of the root that runs, from the kernel's command line. Raises ImageError."""
        words = (self.root / "proc/cmdline").read_text().split()
        found = dict(word.split("=", 1) for word in words if "=" in word)
        slot, version = found.get("root", "").removeprefix("PARTLABEL=rocketbox-"), found.get("rocketbox.image", "")
        if slot not in ("a", "b") or not version:
            raise ImageError("this machine was not booted from a rocketbox image: use the package or `flash app`")
        return slot, version

    @contextmanager
    def mounted(self, device: Path, name: str, *options: str) -> Iterator[Path]:
        """Mount a partition for as long as it is needed; a FAT that is not mounted cannot be torn by a power cut."""
        target = self.root / "run" / name
        target.mkdir(parents=True, exist_ok=True)
        self.run(["mount", *options, str(device), str(target)])
        try:
            yield target
        finally:
            os.sync()
            self.run(["umount", str(target)])

    def esp(self) -> AbstractContextManager[Path]:
        return self.mounted(self.root / "dev/disk/by-partlabel/esp", "rocketbox-esp", "-o", "umask=0077")


def entries(esp: Path) -> list[BootEntry]:
    """Return the product's boot entries."""
    found = []
    for path in sorted((esp / "loader/entries").glob("rocketbox-*.conf")):
        fits = ENTRY.fullmatch(path.name)
        if fits:
            left = fits["left"]
            found.append(BootEntry(path, fits["version"], None if left is None else int(left)))
    return found


def load(places: RootPaths) -> dict[str, Any]:
    """Return what is remembered: `versions` by slot, `trial`, `bad`, `serial`; nothing known is a box just flashed."""
    try:
        return dict(json.loads((places.images / "state.json").read_text()))
    except (OSError, ValueError):
        return {}


def save(places: RootPaths, state: Mapping[str, Any]) -> None:
    """Replace the memory durably."""
    places.images.mkdir(parents=True, exist_ok=True)
    write_synced(places.images / "state.json.new", json.dumps(state).encode())
    os.replace(places.images / "state.json.new", places.images / "state.json")
    sync_folder(places.images)


def install(places: RootPaths, source: BinaryIO, size: int, sha256: str, version: str) -> str:
    """Write a checked root into the idle partition, read it back, give it a boot entry; return the slot.

    Cut off anywhere, the box boots what it booted before: the idle slot's entry goes first and comes back last.
    """
    slot, now = places.running()
    if places.trial_mark.exists():
        raise ImageError(f"image {now} is on trial itself: wait for its self-test, or reboot")
    if version == now:
        raise ImageError(f"image {version} is already running, in root {slot}")
    other, state = "b" if slot == "a" else "a", load(places)
    with places.esp() as esp:
        for one in entries(esp):
            if one.version != now:
                one.path.unlink()
    state["versions"] = {slot: now, other: version}
    write_partition(places.partition(other), source, size, sha256)
    with places.mounted(places.partition(other), "rocketbox-new-root", "-o", "ro") as fresh, places.esp() as esp:
        for name in BOOT_FILES:
            target = esp / "rocketbox" / other / name
            target.parent.mkdir(parents=True, exist_ok=True)
            write_synced(target, (fresh / "usr/lib/rocketbox/boot" / name).read_bytes())
        serial = int(state.get("serial", 0)) + 1
        options = (fresh / "usr/lib/rocketbox/boot/options").read_text().strip()
        save(places, state | {"trial": version, "serial": serial})
        text = entry_text(version, other, serial, options)
        write_synced(esp / f"loader/entries/rocketbox-{version}+{TRIES}.conf", text.encode())
    return other


def entry_text(version: str, slot: str, serial: int, options: str) -> str:
    """Return a boot loader entry (UAPI.1, type 1). Sorted by the order of installation, not by version."""
    lines = [
        f"title Rocketbox {version}",
        f"version {version}",
        f"sort-key rocketbox-{NEWEST - serial:06d}",
        f"linux /rocketbox/{slot}/vmlinuz",
        f"initrd /rocketbox/{slot}/initrd",
        f"options root=PARTLABEL=rocketbox-{slot} rocketbox.image={version} {options}",
    ]
    return "\n".join(lines) + "\n"


def write_partition(device: Path, source: BinaryIO, size: int, sha256: str) -> None:
    """Copy `size` bytes onto a partition and compare what it reads back. Raises ImageError."""
    handle = os.open(device, os.O_RDWR)
    try:
        room = os.lseek(handle, 0, os.SEEK_END)
        if size > room:
            raise ImageError(f"the image has {size >> 20} MiB, {device.name} {room >> 20} MiB: flash the whole disk")
        at = 0
        while at < size and (block := source.read(min(BLOCK, size - at))):
            os.pwrite(handle, block, at)
            at += len(block)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        digest, at = hashlib.sha256(), 0
        while at < size and (block := os.pread(handle, min(BLOCK, size - at), at)):
            digest.update(block)
            at += len(block)
    finally:
        os.close(handle)
    if digest.hexdigest() != sha256:
        raise ImageError(f"{device.name} reads back different bytes: the disk is faulty, or the bundle changed")


def at_boot(places: RootPaths) -> dict[str, Any]:
    """Note what this boot means: on trial, back from a failed trial, or neither; return the memory."""
    (slot, version), known = places.running(), load(places)
    state = known | {"versions": {**known.get("versions", {}), slot: version}}
    with places.esp() as esp:
        found = entries(esp)
        take_factory_facts(places, esp)
        failed = [one for one in found if one.version == known.get("trial") != version]
        for one in failed:
            if one.left == 0:
                one.path.unlink()
                state = forgotten(state)
        if not failed and known.get("trial") != version:
            state["trial"] = None  # cut off before its entry was written: it never ran
    if any(one.version == version and one.left is not None for one in found):
        places.trial_mark.write_text(version + "\n")
    if state != known:
        save(places, state)
    return state


def forgotten(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the memory without its trial; that version is remembered as bad."""
    gone = state.get("trial")
    bad = [one for one in state.get("bad", []) if one != gone]
    record = {"version": gone, "reason": state.get("reason", "no try left"), "wall_s": int(time.time())}
    kept = {key: value for key, value in state.items() if key != "reason"}
    return kept | {"trial": None, "bad": [*bad, gone], "rolled_back": record}


def take_factory_facts(places: RootPaths, esp: Path) -> None:
    """Copy serial number and model, written onto the FAT by whoever flashed the disk, to their place, once.

    An empty one there is what a power cut left of the first time.
    """
    target = places.root / "var/lib/rocketbox-factory"
    for name in FACTORY:
        source = esp / f"rocketbox/{name}.txt"
        kept = target / name
        if source.exists() and not (kept.exists() and kept.stat().st_size):
            target.mkdir(parents=True, exist_ok=True)
            write_synced(kept, (source.read_text().strip() + "\n").encode())
            sync_folder(target)


def keep(places: RootPaths) -> str:
    """Take the count off the running image's entry, return the version."""
    _, version = places.running()
    with places.esp() as esp:
        for one in entries(esp):
            if one.version == version and one.left is not None:
                os.replace(one.path, one.path.with_name(f"rocketbox-{version}.conf"))
    state = load(places)
    if state.get("trial") == version:
        before = [one for one in state.get("committed", []) if one != version]
        save(places, state | {"trial": None, "committed": [*before, version]})
    places.trial_mark.unlink(missing_ok=True)
    return version


def give_up(places: RootPaths, reason: str) -> None:
    """Let the running image have no more try: the next boot is the other one. A kept image stays what it is."""
    _, version = places.running()
    with places.esp() as esp:
        for one in entries(esp):
            if one.version == version and one.left is not None:
                os.replace(one.path, one.path.with_name(f"rocketbox-{version}+0-{TRIES}.conf"))
                save(places, load(places) | {"reason": reason})


def bind_slots(places: RootPaths) -> None:
    """Give every image its own slots for `flash app`, so that going back to an image goes back to its product."""
    state, (_, version) = load(places), places.running()
    own = places.images / version
    own.mkdir(parents=True, exist_ok=True)
    for path in places.images.iterdir():
        if path.is_dir() and path.name not in (version, *state.get("versions", {}).values()):
            places.run(["chmod", "-R", "u+w", str(path)])
            shutil.rmtree(path, ignore_errors=True)
    places.run(["mount", "--bind", str(own), str(places.root / "opt")])


def write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


def main(arguments: list[str], places: RootPaths | None = None) -> int:
    """Verbs: boot, commit, give-up REASON, status."""
    places, verb = places or RootPaths(), arguments[0] if arguments else ""
    try:
        if verb == "boot":
            bind_slots(places)  # first: the product starts even when the boot loader's partition is gone
            print(json.dumps(at_boot(places) | {"on_trial": places.trial_mark.exists()}))
        elif verb == "commit":
            print(f"image={keep(places)} kept")
        elif verb == "give-up":
            give_up(places, arguments[1] if len(arguments) > 1 else "asked for")
        elif verb == "status":
            slot, version = places.running()
            print(json.dumps(load(places) | {"running": version, "partition": slot}))
        else:
            print(f"usage: image.py {main.__doc__}", file=sys.stderr)
            return 2
    except (ImageError, OSError, subprocess.CalledProcessError) as exc:
        print(f"<3>{exc}", file=sys.stderr)
        return 1
    return 0
