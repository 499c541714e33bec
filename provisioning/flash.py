"""Writes a disk image to a disk that is surely meant: checked first, sparse, read back with the cache dropped."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from provisioning.errors import ProvisioningError

BLOCK = 1 << 20
LARGEST = 2 << 40
ZEROS = bytes(BLOCK)
LABEL = b"EFI PART"  # at byte 512 of a disk with a GPT
ESP_AT = BLOCK  # where the image's FAT partition begins
FACT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")


@dataclass(frozen=True, slots=True)
class TargetDisk:
    """What a target says about itself."""

    path: Path
    size: int
    model: str
    removable: bool
    mounted: tuple[str, ...]
    is_block: bool


def examine(path: Path, *, sysfs: Path = Path("/sys/class/block"), mounts: Path = Path("/proc/mounts")) -> TargetDisk:
    """Describe a block device, or a plain file that stands for one. Raises E301."""
    if not path.exists() or stat.S_ISREG(path.stat().st_mode):
        return TargetDisk(path, path.stat().st_size if path.exists() else 0, "plain file", True, (), False)
    if not stat.S_ISBLK(path.stat().st_mode):
        raise ProvisioningError("E301", f"{path} is neither a disk nor a file")
    node = sysfs / path.resolve().name
    whole = node / "size"
    if not whole.exists() or (node / "partition").exists():
        raise ProvisioningError("E301", f"{path} is not a whole disk: pass the disk, not a partition")
    used = tuple(line.split()[1] for line in mounts.read_text().splitlines() if line.startswith(str(path.resolve())))
    removable = _text(node / "removable") == "1" or "/usb" in str(node.resolve())
    return TargetDisk(
        path, int(_text(whole)) * 512, _text(node / "device/model") or "unknown model", removable, used, True
    )


def check_target(disk: TargetDisk, *, force: bool) -> None:
    """Raise E301 unless overwriting this disk is plausible; `force` allows all but a mounted one."""
    if disk.mounted:
        raise ProvisioningError("E301", f"{disk.path} is mounted at {', '.join(disk.mounted)}: unmount it first")
    if force or not disk.is_block:
        return
    if not disk.removable:
        raise ProvisioningError("E301", f"{disk.path} ({disk.model}) is not removable: use --force to write it anyway")
    if disk.size > LARGEST:
        raise ProvisioningError(
            "E301", f"{disk.path} has {disk.size >> 30} GiB, over 2 TiB: use --force to write it anyway"
        )


@contextmanager
def open_image(path: Path) -> Iterator[IO[bytes]]:
    """Yield the image's bytes, unpacked when its name ends in .zst, .xz or .gz. Raises E303."""
    tools = {".zst": "zstd", ".xz": "xz", ".gz": "gzip"}
    tool = tools.get(path.suffix)
    if tool is None:
        with path.open("rb") as source:
            yield source
        return
    with path.open("rb") as packed:  # no name: zstd and xz leave out what is a link
        try:
            process = subprocess.Popen([tool, "-dc"], stdin=packed, stdout=subprocess.PIPE)
        except FileNotFoundError as exc:
            raise ProvisioningError("E303", f"the program {tool} is missing: `apt-get install {tool}`") from exc
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.stdout.close()
        if process.wait() not in (0, -13):
            raise ProvisioningError("E303", f"{path} is damaged: fetch it again")


@dataclass(frozen=True, slots=True)
class FlashResult:
    """The one verdict: bytes of the image, bytes really written, its hash as read back."""

    size: int
    real: int
    sha256: str


def write_image(image: Path, disk: TargetDisk, show: Callable[[str, int, int], None]) -> FlashResult:
    """Write, sync, drop the cache, read back, compare. Raises E301, E302, E303."""
    digest, size, real = hashlib.sha256(), 0, 0
    total = image.stat().st_size if image.suffix not in (".zst", ".xz", ".gz") else 0
    flags = os.O_RDWR | os.O_CREAT | (os.O_EXCL if disk.is_block else os.O_TRUNC)
    try:
        handle = os.open(disk.path, flags, 0o600)
    except OSError as exc:
        raise ProvisioningError("E301", f"cannot open {disk.path}: {exc.strerror}") from exc
    try:
        with open_image(image) as source:
            while block := source.read(BLOCK):
                if disk.is_block and size + len(block) > disk.size:
                    raise ProvisioningError("E301", f"the image is larger than {disk.path} ({disk.size >> 20} MiB)")
                digest.update(block)
                if disk.is_block or block != ZEROS[: len(block)]:
                    real += len(block) if _write_unless_zero(handle, block, size, disk.is_block) else 0
                size += len(block)
                show("write", size, total)
        if not disk.is_block:
            os.ftruncate(handle, size)
        os.fsync(handle)
        found = _read_back(handle, size, show)
    finally:
        os.close(handle)
    if found != digest.hexdigest():
        raise ProvisioningError("E302", f"{disk.path} reads back different bytes: the disk is faulty, use another")
    return FlashResult(size, real, found)


def check_image(image: Path) -> None:
    """Raise E303 unless a file begins like a disk with a partition table."""
    try:
        with open_image(image) as source:
            label = source.read(512 + len(LABEL))[512:]
    except OSError as exc:
        raise ProvisioningError("E303", f"cannot read {image}: {exc.strerror}") from exc
    if label != LABEL:
        raise ProvisioningError("E303", f"{image} is not a disk image: `make image` makes rocketbox-VERSION.img.zst")


def check_facts(facts: Mapping[str, str]) -> None:
    """Raise E301 or E303 when these could not be written onto a disk, before anything is."""
    for name, value in facts.items():
        if not FACT.fullmatch(value):
            raise ProvisioningError(
                "E301", f"{value!r} is not a valid {name}: letters, digits, dots and dashes, up to 32"
            )
    if facts and shutil.which("mcopy") is None:
        raise ProvisioningError("E303", "the program mcopy is missing: `apt-get install mtools`")


def write_facts(disk: TargetDisk, facts: Mapping[str, str]) -> None:
    """Write serial number and model onto the FAT partition of a flashed disk; the first boot takes them. E301, E303."""
    check_facts(facts)
    for name, value in facts.items():
        words = ["mcopy", "-o", "-i", f"{disk.path}@@{ESP_AT}", "-", f"::/rocketbox/{name}.txt"]
        done = subprocess.run(words, input=f"{value}\n", capture_output=True, text=True, check=False)
        if done.returncode:
            text = f"{disk.path} has no rocketbox image that could take a {name}: {done.stderr.strip()[:200]}"
            raise ProvisioningError("E303", text)


def _write_unless_zero(handle: int, block: bytes, at: int, is_block: bool) -> bool:
    """Write a block; on a disk zeros are written only where something else is now."""
    if is_block and block == ZEROS[: len(block)] and os.pread(handle, len(block), at) == block:
        return False
    rest = memoryview(block)
    while rest:
        done = os.pwrite(handle, rest, at)
        rest, at = rest[done:], at + done
    return True


def _read_back(handle: int, size: int, show: Callable[[str, int, int], None]) -> str:
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    digest, at = hashlib.sha256(), 0
    while at < size:
        block = os.pread(handle, min(BLOCK, size - at), at)
        if not block:
            break
        digest.update(block)
        at += len(block)
        show("read back", at, size)
    return digest.hexdigest()


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
