"""Builds what the Debian package keeps in its private folder: our packages, and the locked libraries of its processor.

python -m provisioning.packaging.package_tree TARGET --machine aarch64 [--version 1.4.0]

pip takes wheels for the target, whatever this machine is, and checks the digest of each against .lock-box.txt. The name
of a compiled module carries the number of its Python, so the modules of every PYTHONS are side by side in one folder,
and one package fits every release of Debian that has one of these.
"""

from __future__ import annotations

import argparse
import importlib.metadata as metadata
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from provisioning.errors import ProvisioningError
from provisioning.packaging.app_tree import (
    LOCK,
    copy_packages,
    distribution_name,
    locked_versions,
    on_a_box,
    project_version,
    write_own_metadata,
    write_sbom,
)
from provisioning.packaging.library import LIBRARIES, copy_library
from provisioning.packaging.wheels import fetch

PYTHONS = ("3.11", "3.13")  # of Debian bookworm and of trixie
LICENCE = r"\.dist-info/(licenses/)?(LICEN[CS]E|COPYING|NOTICE)[^/]*$"
# Of a library's own notes only these: the rest tells of one Python's wheel.
KEPT = re.compile(rf"^(?!bin/)(?!.*\.dist-info/)|\.dist-info/METADATA$|{LICENCE}")
APACHE = "its text: /usr/share/common-licenses/Apache-2.0"


def build_tree(target: Path, top: Path, machine: str, version: str) -> None:
    """Fill `target`: site-packages, a link to it for each Python, the interpreter, the command, the list of parts."""
    if target.exists():
        shutil.rmtree(target)
    site = target / "site-packages"
    site.mkdir(parents=True)
    copy_packages(top, site)
    for python in PYTHONS:
        copy_library(top, top / LIBRARIES, site, machine, python)
    with tempfile.TemporaryDirectory() as scratch:
        for python in PYTHONS:
            fetch(Path(scratch, python), top / LOCK, machine, python)
            merge(Path(scratch, python), site)
    write_own_metadata(site, version)
    for python in PYTHONS:
        (target / f"lib/python{python}").mkdir(parents=True)
        (target / f"lib/python{python}/site-packages").symlink_to("../../site-packages")
    (target / "bin").mkdir()
    (target / "bin/python").symlink_to("../../../../bin/python3")  # /usr/bin, from /usr/lib/rocketbox/env/bin
    (target / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    write_sbom(target / "sbom.cdx.json", top, [one for one in locked_versions(top) if is_installed(site, one)], version)


def merge(source: Path, site: Path) -> None:
    """Add one Python's libraries to those of another. Raises ProvisioningError when one file has two contents."""
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source).as_posix()
        if not path.is_file() or not on_a_box(name) or not KEPT.search(name):
            continue
        target = site / name
        if target.exists() and target.read_bytes() != path.read_bytes():
            raise ProvisioningError("E303", f"{name} differs between the Pythons {' and '.join(PYTHONS)}")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        target.chmod(0o644)


def is_installed(site: Path, name: str) -> bool:
    return any(distribution_name(one.name) == name for one in metadata.distributions(path=[str(site)]))


def write_copyright(path: Path, site: Path) -> None:
    """Write whose work the package holds, with every licence text, and take those texts out of the libraries."""
    parts = [f"Rocketbox\n\nLicence: Apache-2.0, {APACHE}\n"]
    for folder in sorted(site.glob("*.dist-info")):
        one = metadata.PathDistribution(folder)
        if one.name == "rocketbox":
            continue
        rows = one.metadata.get_all("License-Expression") or one.metadata.get_all("License") or ["in the text below"]
        parts.append(f"{'-' * 80}\n{one.name} {one.version}\n\nLicence: {rows[0].splitlines()[0]}\n")
        for text in sorted(file for file in folder.rglob("*") if re.search(LICENCE, file.as_posix())):
            words = text.read_text()
            full = "TERMS AND CONDITIONS FOR USE, REPRODUCTION" in words  # Debian keeps one copy for all packages
            parts.append(f"{text.name}: {APACHE}\n" if full else f"{text.name}:\n\n{words}")
            text.unlink()
        if (folder / "licenses").is_dir():
            (folder / "licenses").rmdir()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m provisioning.packaging.package_tree", description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("--machine", default=os.uname().machine)
    parser.add_argument("--version")
    parser.add_argument("--copyright", type=Path)
    arguments = parser.parse_args()
    top = Path(__file__).resolve().parents[2]
    try:
        build_tree(arguments.target, top, arguments.machine, arguments.version or project_version(top))
        if arguments.copyright:
            write_copyright(arguments.copyright, arguments.target / "site-packages")
    except ProvisioningError as exc:
        print(f"package_tree: {exc}", file=sys.stderr)
        return exc.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
