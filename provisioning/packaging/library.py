"""The library of compiled modules for a Python and a machine, as packages take it.

    python -m provisioning.packaging.library TREE --machine aarch64 --python 3.13

`make libraries` puts it into `.build/libraries`; a tree without it runs as pure Python.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from provisioning.errors import ProvisioningError

TOP = Path(__file__).resolve().parents[2]
LIBRARIES = ".build/libraries"  # below a checkout
NATIVE = "appliance/native"


def library_files(top: Path, libraries: Path, machine: str, python: str) -> list[Path]:
    """Return the library for a machine (`aarch64`) and Python (`3.13`) and its description; none if it was not made.

    Raises ProvisioningError when a source has changed since it was compiled.
    """
    library = libraries / f"rocketbox.cpython-{python.replace('.', '')}-{machine}-linux-gnu.so"
    described = library.with_suffix(".json")
    if not described.exists():
        return []
    told = json.loads(described.read_bytes())
    try:
        fits = told["digest"] == digest_of(top, told["read"])
    except FileNotFoundError:
        fits = False
    if not fits:
        raise ProvisioningError("E303", f"the sources changed since {library.name} was compiled: `make libraries`")
    return [library, described]


def copy_library(top: Path, libraries: Path, site: Path, machine: str, python: str) -> bool:
    """Put the library into a tree of packages; return whether there is one. Raises as `library_files`."""
    files = library_files(top, libraries, machine, python)
    for file in files:
        (site / NATIVE).mkdir(exist_ok=True)
        shutil.copyfile(file, site / NATIVE / file.name)
    return bool(files)


def digest_of(top: Path, sources: Iterable[str]) -> str:
    """Return a digest of sources by name and content. Raises FileNotFoundError for one that is gone."""
    digest = hashlib.sha256()
    for name in sources:
        data = (top / name).read_bytes()
        digest.update(f"{name} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m provisioning.packaging.library", description=__doc__)
    parser.add_argument("tree", type=Path, help="the folder that has the package appliance")
    parser.add_argument("--machine", required=True)
    parser.add_argument("--python", required=True)
    arguments = parser.parse_args()
    try:
        copy_library(TOP, TOP / LIBRARIES, arguments.tree, arguments.machine, arguments.python)
    except ProvisioningError as exc:
        print(f"library: {exc}", file=sys.stderr)
        return exc.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
