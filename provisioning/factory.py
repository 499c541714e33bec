"""What the factory does once per box: its serial number, and a burn-in with figures."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from provisioning.box_files import write_file
from provisioning.errors import ProvisioningError

SERIAL = re.compile(r"[A-Za-z0-9-]{1,40}")
SYNCS = 200
MEMORY_BLOCK = 16 << 20
DISK_BLOCK = 4 << 20


def make_box(
    folder: Path,
    serial: str,
    model: str,
    *,
    scratch: Path,
    seconds: float = 60.0,
    show: Callable[[str, int, int], None] = lambda stage, done, total: None,
    now_s: Callable[[], float] = time.time,
) -> dict[str, Any]:
    """Write serial number, model and manufacturing receipt, once. Raises E402 on a second serial, E501 on a fault."""
    if not SERIAL.fullmatch(serial) or not SERIAL.fullmatch(model):
        raise ProvisioningError("E402", f"serial {serial!r} and model {model!r}: 1 to 40 of letters, digits, -")
    try:
        before = (folder / "serial").read_text().strip()
    except OSError:
        before = ""
    if before and before != serial:
        raise ProvisioningError("E402", f"this box is {before}: serial number already assigned", serial=before)
    receipt: dict[str, Any] = {"serial": serial, "model": model, "time_s": int(now_s())}
    receipt["memory"] = check_memory(show)
    receipt["disk"] = check_disk(scratch, seconds, show)
    receipt["sync"] = sync_latency(scratch, show)
    receipt["hottest_c"] = hottest_c()
    for name, text in (("model", model), ("receipt.json", json.dumps(receipt, indent=1)), ("serial", serial)):
        write_file(folder / name, text.encode() + b"\n", mode=0o444)
    return receipt


def check_memory(show: Callable[[str, int, int], None], share: float = 0.25) -> dict[str, Any]:
    """Write and read patterns in a share of the free memory. Raises E501."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    count = max(1, int(free * share) // MEMORY_BLOCK)
    held = []
    for at in range(count):
        held.append(bytes([(at * 37 + 1) & 0xFF]) * MEMORY_BLOCK)
        show("memory", at + 1, 2 * count)
    for at, block in enumerate(held):
        if block.count(block[:1]) != MEMORY_BLOCK or block[0] != (at * 37 + 1) & 0xFF:
            raise ProvisioningError("E501", "self-test failed: memory is faulty")
        show("memory", count + at + 1, 2 * count)
    return {"tested_bytes": count * MEMORY_BLOCK}


def check_disk(scratch: Path, seconds: float, show: Callable[[str, int, int], None]) -> dict[str, Any]:
    """Write random blocks for some seconds, then read them from the disk and compare. Raises E501."""
    path, began = scratch / "burn-in", time.monotonic()
    digests: list[bytes] = []
    try:
        with path.open("wb", buffering=0) as out:
            while time.monotonic() - began < seconds / 2 or not digests:
                block = random.Random(len(digests)).randbytes(DISK_BLOCK)
                out.write(block)
                digests.append(hashlib.sha256(block).digest())
                show("disk", int(time.monotonic() - began), int(seconds))
            os.fdatasync(out.fileno())
        with path.open("rb", buffering=0) as source:
            os.posix_fadvise(source.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            for at, digest in enumerate(digests):
                if hashlib.sha256(source.read(DISK_BLOCK)).digest() != digest:
                    raise ProvisioningError("E501", f"self-test failed: disk, block {at} reads back differently")
    except OSError as exc:
        raise ProvisioningError("E501", f"self-test failed: disk, {exc}") from exc
    finally:
        path.unlink(missing_ok=True)
    return {"tested_bytes": len(digests) * DISK_BLOCK, "seconds": round(time.monotonic() - began, 1)}


def sync_latency(scratch: Path, show: Callable[[str, int, int], None]) -> dict[str, float]:
    """Time 200 times 4 KiB and fdatasync; milliseconds."""
    path, took = scratch / "sync-latency", []
    with path.open("wb", buffering=0) as out:
        for at in range(SYNCS):
            began = time.perf_counter()
            os.pwrite(out.fileno(), b"x" * 4096, 4096 * at)
            os.fdatasync(out.fileno())
            took.append((time.perf_counter() - began) * 1000)
            show("sync", at + 1, SYNCS)
    path.unlink()
    took.sort()
    return {"p50_ms": round(took[SYNCS // 2], 3), "p99_ms": round(took[SYNCS * 99 // 100], 3)}


def hottest_c() -> float | None:
    """Return the highest temperature a thermal zone reports."""
    seen = []
    for zone in Path("/sys/class/thermal").glob("thermal_zone*/temp"):
        try:
            seen.append(int(zone.read_text()) / 1000)
        except (OSError, ValueError):
            continue
    return max(seen, default=None)
