"""Collects, redacts and packs: a tar.gz made in memory, with a manifest, never above its cap."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import tarfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.errors import ApplianceError
from appliance.support.redaction import Redactor
from appliance.support.sources import BoxFolders, SupportFile, known_secrets, parts

MIB = 1 << 20
CAP_BYTES = 8 * MIB
MANIFEST_ROOM = 64 << 10
MEMORY_FOLDERS = (Path("/run/rocketbox"), Path("/dev/shm"), Path("/run"))


class NowhereToWrite(ApplianceError):
    """No folder takes the bundle."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The packed bytes and what is said about them."""

    data: bytes
    manifest: dict[str, Any]


def make_bundle(place: BoxFolders, *, cap: int = CAP_BYTES, now_s: float | None = None) -> Bundle:
    """Return a bundle of at most `cap` bytes; what cannot be had is listed as missing."""
    redactor = Redactor(known_secrets(place))
    made_s = time.time() if now_s is None else now_s
    rows: dict[str, list[Any]] = {"collected": [], "missing": [], "left_out": []}
    packed, left = [], cap - MANIFEST_ROOM
    for part in parts(place):
        content, row = _fetched(part, redactor)
        if content is None:
            rows["missing"].append(row)
            continue
        needed = len(gzip.compress(content, 6)) + 1024  # a bound: together they pack better
        if needed > left:
            rows["left_out"].append(
                {"name": part.name, "bytes": len(content), "reason": f"over the limit of {cap} bytes"}
            )
            continue
        left -= needed
        packed.append((part.name, content))
        rows["collected"].append(row)
    manifest = {
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(made_s)),
        "cap_bytes": cap,
        **rows,
        "redacted": dict(redactor.counts),
    }
    packed.insert(0, ("manifest.json", (json.dumps(manifest, indent=1) + "\n").encode()))
    return Bundle(_packed(packed, int(made_s)), manifest)


def _fetched(part: SupportFile, redactor: Redactor) -> tuple[bytes | None, dict[str, Any]]:
    try:
        text = part.fetch()
    except (OSError, ValueError, subprocess.SubprocessError, EOFError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        return None, {"name": part.name, "reason": reason or type(exc).__name__}
    before = redactor.counts.total()
    content = redactor.file(part.name, text).encode(errors="backslashreplace")  # half a surrogate pair is no UTF-8
    cut = max(0, len(content) - part.most)
    row = {"name": part.name, "bytes": len(content) - cut, "redacted": redactor.counts.total() - before}
    if cut:
        row["cut_bytes"] = cut
    return content[cut:], row


def _packed(files: list[tuple[str, bytes]], made_s: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=6) as archive:
        for name, content in files:
            member = tarfile.TarInfo(f"rocketbox-support/{name}")
            member.size, member.mtime, member.mode = len(content), made_s, 0o600
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def write_bundle(data: bytes, wanted: Path) -> Path:
    """Write where it is wanted, else into memory when the disk is full; return where. Raises NowhereToWrite."""
    reasons = []
    for path in (wanted, *(folder / wanted.name for folder in MEMORY_FOLDERS)):
        try:
            _write(data, path)
        except OSError as exc:
            reasons.append(f"{path}: {exc.strerror or exc}")
            with suppress(OSError):  # a name may be too long to be looked for
                path.unlink(missing_ok=True) if path.is_file() else None
        else:
            return path
    raise NowhereToWrite("; ".join(reasons) + "; `rocketbox support --to -` writes to standard output")


def _write(data: bytes, path: Path) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
