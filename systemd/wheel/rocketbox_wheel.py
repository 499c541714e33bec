"""The build backend: setuptools, then a wheel that takes no name from other packages, and the same bytes each time.

The six folders lie at the top of the repository under plain names, and PyPI has a `watchdog` of its own. In a wheel
they lie below `rocketbox`: OPEN is what others import (rocketbox.pth names its folder, behind every package that is
installed), the rest is on the path of the command `rocketbox` alone. docs/installing.md says why.

    python systemd/wheel/rocketbox_wheel.py OUT [SO...]     both archives, and a wheel with each library
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import runpy
import shutil
import sys
import tarfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]

Settings = Mapping[str, str | list[str] | None] | None

OPEN = ("netstack", "storage_driver", "uplink_spark")  # imports none of the others; Spark's workers need it
GLIBC = "manylinux_2_28"  # the oldest C library that systemd/compiled/libraries.sh compiles for
OWN = ("appliance", "provisioning", "watchdog")
LAUNCHER = '''"""Rocketbox. Start it as `rocketbox` or `python -m rocketbox`; import netstack and uplink_spark."""

import sys
from pathlib import Path


def main() -> int:
    """Run a command with the box's own folders in front of everything that is installed."""
    here = Path(__file__).resolve().parent
    sys.path[:0] = [str(here / "own"), str(here / "open")]
    from appliance.__main__ import main as run

    return run()
'''
ADDED = {
    "rocketbox/__init__.py": LAUNCHER,
    "rocketbox/__main__.py": "import sys\n\nfrom rocketbox import main\n\nsys.exit(main())\n",
    "rocketbox.pth": "rocketbox/open\n",
}


def epoch() -> int:
    """Return the time that every file of an archive gets; a zip file knows none before 1980."""
    return max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800)


def place(name: str) -> str:
    """Return where a file of setuptools' wheel lies in ours."""
    folder = name.partition("/")[0]
    return f"rocketbox/open/{name}" if folder in OPEN else f"rocketbox/own/{name}" if folder in OWN else name


def content(name: str, data: bytes) -> bytes:
    if name.endswith(".dist-info/entry_points.txt"):
        return data.replace(b"appliance.__main__:main", b"rocketbox:main")
    return b"rocketbox\n" if name.endswith(".dist-info/top_level.txt") else data


def record(files: Mapping[str, bytes], name: str) -> bytes:
    rows = []
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(data)}")
    return "\n".join([*rows, f"{name},,", ""]).encode()


def rewrite_wheel(path: Path) -> None:
    """Put the six folders below `rocketbox`, and write the archive anew."""
    with zipfile.ZipFile(path) as archive:
        found = {place(name): content(name, archive.read(name)) for name in archive.namelist() if name[-1] != "/"}
    write_wheel(path, found | {name: text.encode() for name, text in ADDED.items()})


def write_wheel(path: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a wheel in order, with one time and one mode, and their RECORD."""
    (listed,) = (name for name in files if name.endswith(".dist-info/RECORD"))
    ordered = {name: files[name] for name in sorted(files) if name != listed}
    ordered[listed] = record(ordered, listed)
    when = time.gmtime(epoch())[:6]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in ordered.items():
            row = zipfile.ZipInfo(name, when)
            row.compress_type, row.create_system, row.external_attr = zipfile.ZIP_DEFLATED, 3, 0o100644 << 16
            archive.writestr(row, data)


def compiled_wheel(pure: Path, library: Path) -> Path:
    """Write beside a pure wheel the one that has a library of compiled modules too; pip prefers it where it fits."""
    _, number, machine, *_ = library.name.removeprefix("rocketbox.").split("-")  # cpython-311-x86_64-linux-gnu.so
    tag = f"cp{number}-cp{number}-{GLIBC}_{machine}"
    with zipfile.ZipFile(pure) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    (about,) = (name for name in files if name.endswith(".dist-info/WHEEL"))
    files[about] = files[about].replace(b"Tag: py3-none-any", f"Tag: {tag}".encode()).replace(b": true", b": false")
    for file in (library, library.with_suffix(".json")):
        files[f"rocketbox/own/appliance/native/{file.name}"] = file.read_bytes()
    made = pure.with_name(pure.name.replace("py3-none-any", tag))
    write_wheel(made, files)
    return made


def rewrite_sdist(path: Path) -> None:
    """Write the archive anew in order, with one time, one owner and one mode of each kind."""
    made = io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as new:
        for row in sorted(old.getmembers(), key=lambda one: one.name):
            row.mtime, row.uid, row.gid, row.uname, row.gname, row.pax_headers = epoch(), 0, 0, "", "", {}
            row.mode = 0o755 if row.isdir() or row.mode & 0o100 else 0o644
            new.addfile(row, old.extractfile(row) if row.isfile() else None)
    path.write_bytes(gzip.compress(made.getvalue(), 9, mtime=epoch()))


def make_proto_modules() -> None:
    """Make the modules of the gRPC messages, which no checkout has, where they lack."""
    runpy.run_path(str(Path(__file__).parents[1] / "proto_modules.py"), run_name="__main__")


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    make_proto_modules()
    shutil.rmtree("build", ignore_errors=True)  # of an earlier build: what was deleted since would come along
    name: str = build_meta.build_wheel(wheel_directory, config_settings)
    shutil.rmtree("build", ignore_errors=True)
    rewrite_wheel(Path(wheel_directory, name))
    return name


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    make_proto_modules()
    wanted = Path("MANIFEST.in")  # where setuptools looks for it, and nobody else should
    shutil.copy(Path(__file__).with_name("MANIFEST.in"), wanted)
    try:
        name: str = build_meta.build_sdist(sdist_directory, config_settings)
    finally:
        wanted.unlink()
    rewrite_sdist(Path(sdist_directory, name))
    return name


if __name__ == "__main__":
    out, libraries = Path(sys.argv[1]).absolute(), [Path(name) for name in sys.argv[2:]]  # setuptools writes over it
    out.mkdir(parents=True, exist_ok=True)
    print(build_sdist(str(out)), wheel := build_wheel(str(out)))
    for each in libraries:
        print(compiled_wheel(out / wheel, each).name)
