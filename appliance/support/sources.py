"""Where the parts of a support bundle come from, the most telling first; each may fail without the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from appliance.health.health_file import read_health
from appliance.metrics.scrape import SOCKET_NAME, scrape
from storage_driver.named_tuple import NamedTuple

KIB = 1 << 10
FILE_BYTES, LOG_BYTES, TABLE_BYTES = 256 * KIB, 2048 * KIB, 1024 * KIB
PROGRAM_S, DOCTOR_S, ASK_S = 20.0, 60.0, 5.0
JOURNAL_LINES = 20_000
TABLES = ("topics", "subscriptionGroup", "consumerOffset", "delayOffset", "transactionCheck")
UNITS = ("rocketbox.service", "rocketbox-slot.service", "rocketbox-commit.service", "rocketbox-selftest.service")
PROC = (
    *("meminfo", "loadavg", "uptime", "version", "mounts", "diskstats", "cmdline", "net/dev", "sys/kernel/tainted"),
    *("pressure/io", "pressure/memory", "pressure/cpu"),
)


class SupportFile(NamedTuple):
    """One file of the bundle: how to get it, how much of its end is kept."""

    name: str
    fetch: Callable[[], str]
    most: int = FILE_BYTES


@dataclass(frozen=True, slots=True)
class BoxFolders:
    """Where a box keeps things; `live` when it is this machine and not a folder."""

    data: Path
    runtime: Path
    config: Path | None
    root: Path = Path("/")
    live: bool = True


def parts(place: BoxFolders) -> Iterator[SupportFile]:
    """Yield everything, the most telling first."""
    health = place.runtime / "health.json"
    yield SupportFile("health.json", lambda: json.dumps(read_health(health), indent=1))
    yield SupportFile("metrics.txt", lambda: scrape(place.runtime / SOCKET_NAME, ASK_S)[1], TABLE_BYTES)
    if place.config is not None:
        yield SupportFile("rocketbox.toml", partial(read, place.config))
        yield SupportFile("rocketbox.toml.good", partial(read, place.config.with_name("rocketbox.toml.good")))
    yield SupportFile("config.txt", partial(rocketbox, place, "config", "show", "--origin"))
    yield from _notes(place)
    if place.live:
        yield SupportFile("journal.txt", journal, LOG_BYTES)
        yield SupportFile(
            "kernel.txt", partial(program, "journalctl", "--no-pager", "-k", "-b", "-n", "2000"), FILE_BYTES
        )
        yield SupportFile("units.txt", partial(program, "systemctl", "status", "--no-pager", "-l", *UNITS))
        yield SupportFile("unit_files.txt", partial(program, "systemctl", "cat", "--no-pager", "rocketbox.service"))
    yield SupportFile("doctor.jsonl", partial(rocketbox, place, "doctor", "--json", "--all", seconds=DOCTOR_S))
    yield SupportFile("store.txt", partial(listing, place.data / "store"))
    yield SupportFile("versions.json", partial(versions, place.root))
    if place.live:
        yield from (SupportFile(f"proc/{name}", partial(read, place.root / "proc" / name)) for name in PROC)
        yield SupportFile("disks.txt", partial(program, "df", "-PT"))
        yield SupportFile("addresses.txt", partial(program, "ip", "-brief", "address"))
        yield SupportFile("sockets.txt", partial(program, "ss", "-ltnp"))
    for name in TABLES:
        yield SupportFile(f"store/{name}.json", partial(read, place.data / f"store/config/{name}.json"), TABLE_BYTES)


def _notes(place: BoxFolders) -> Iterator[SupportFile]:
    """Yield verdicts, boots, exits and what else was noted about starts and ends, the newest verdicts first."""
    folders = {"verdicts": place.data / "verdicts", "watchdog": place.data / "watchdog"}
    for name, folder in folders.items():
        try:
            files = sorted((each for each in folder.iterdir() if each.is_file()), reverse=True)
        except OSError as exc:
            yield SupportFile(f"{name}/", partial(fail, exc))
            continue
        yield from (SupportFile(f"{name}/{file.name}", partial(read, file)) for file in files[:70])


def fail(exc: OSError) -> str:
    raise exc


def read(path: Path) -> str:
    """Return a file's text; of a large one the end."""
    with path.open("rb") as file:
        try:
            file.seek(-2 * TABLE_BYTES, os.SEEK_END)
        except OSError:
            file.seek(0)  # shorter, or of /proc
        return file.read().decode(errors="replace")


def program(*words: str, seconds: float = PROGRAM_S) -> str:
    """Return what a program prints; what it complains about comes after. Raises OSError, TimeoutExpired."""
    path = os.pathsep.join(filter(None, sys.path))  # a command of ours finds what this process finds
    environment = {**os.environ, "LC_ALL": "C", "COLUMNS": "200", "PYTHONPATH": path}
    done = subprocess.run(words, capture_output=True, timeout=seconds, check=False, env=environment)
    complaint = f"\n(exit {done.returncode}) {done.stderr.decode(errors='replace')}" if done.returncode else ""
    return done.stdout.decode(errors="replace") + complaint


def journal() -> str:
    return program("journalctl", "--no-pager", "-o", "short-precise", "-n", str(JOURNAL_LINES), "-u", "rocketbox*")


def rocketbox(place: BoxFolders, *words: str, seconds: float = PROGRAM_S) -> str:
    """Return what another command prints: in a process of its own, that a hanging disk or name server ends."""
    given = ["--config", str(place.config)] if place.config is not None and place.config.exists() else []
    return program(sys.executable, "-m", "appliance", *words, "--data", str(place.data), *given, seconds=seconds)


def listing(store: Path) -> str:
    """Return names, sizes and times below the store, and where links lead; of queues, which are many, only sums."""
    lines, queues, queue_bytes = [], 0, 0
    for folder, below, files in os.walk(store, onerror=fail):
        below.sort()
        linked = [name for name in below if Path(folder, name).is_symlink()]  # walk does not enter them
        for name in sorted(files + linked):
            path = Path(folder, name)
            seen = path.lstat()
            if "consumequeue" in path.parts and not path.is_symlink():
                queues, queue_bytes = queues + 1, queue_bytes + seen.st_size
                continue
            to = f" -> {path.readlink()}" if path.is_symlink() else ""
            changed = int(seen.st_mtime)
            lines.append(f"{seen.st_size:>14} {seen.st_blocks * 512:>14} {changed} {path.relative_to(store)}{to}")
    return "\n".join(["size, on disk, changed, name", *lines, f"consumequeue: {queues} files, {queue_bytes} bytes", ""])


def versions(root: Path) -> str:
    """Return the versions of what runs."""
    from importlib.metadata import distributions

    found: dict[str, Any] = {each.metadata["Name"]: each.version for each in distributions()}
    slots = root / "opt/slots/state.json"
    state = json.loads(slots.read_text()) if slots.exists() else None
    release = root / "etc/os-release"
    return json.dumps(
        {
            "python": sys.version,
            "machine": os.uname().machine,
            "kernel": os.uname().release,
            "slots": state,
            "system": release.read_text() if release.exists() else None,
            "libraries": dict(sorted(found.items())),
        },
        indent=1,
    )


def known_secrets(place: BoxFolders) -> Iterator[str]:
    """Yield everything on this box that is secret, so that it is taken out wherever it was written."""
    data, etc = place.data, place.root / "etc/rocketbox"
    files = [
        data / "page.token",
        data / "uplink.secret",
        etc / "owner",
        *_files(data / "access"),
        *_files(data / "tls"),
    ]
    files += [*_files(etc / "keys"), *_files(data / "certs")]
    for file in files:
        try:
            text = file.read_text(errors="replace")
        except OSError:
            continue
        if file.suffix in (".crt", ".lock", ".csr"):
            continue
        yield from _secrets_in(text)


def _files(folder: Path) -> list[Path]:
    try:
        return [each for each in folder.iterdir() if each.is_file()]
    except OSError:
        return []


def _secrets_in(text: str) -> Iterator[str]:
    """Yield the strings of JSON that are named as secrets; of any other file its lines."""
    from appliance.support.redaction import SECRET_NAME

    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    waiting: list[tuple[str, Any]] = [("", found)]
    if not isinstance(found, dict | list):  # a secret of digits alone is JSON too
        yield from (line for line in text.splitlines() if line and not line.startswith("-----"))
        return
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(f"{name} {key}", each) for key, each in value.items()]
        elif isinstance(value, list):
            waiting += [(name, each) for each in value]
        elif isinstance(value, str) and SECRET_NAME.search(name):
            yield value
