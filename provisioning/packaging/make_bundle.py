"""`make bundle`: the product of this checkout as a signed bundle.

    python -m provisioning.packaging.make_bundle WORK [--version V] [--key private.pem] [--models x1,x2] [--oldest V]
        [--arch arm64] [--quick]

Without --key a key pair for tests is made in WORK; its public half must be put into a box's /usr/lib/rocketbox/keys/.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from pathlib import Path

from provisioning.bundle import SMALLEST, Manifest, build_bundle, describe_part, make_key, pack_app
from provisioning.errors import ProvisioningError
from provisioning.packaging.app_tree import SBOM, build_tree, project_version, python_version
from provisioning.packaging.library import LIBRARIES

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # Debian's name of a processor and the kernel's
HERE = next((arch for arch, machine in MACHINES.items() if machine == platform.machine()), None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m provisioning.packaging.make_bundle", description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--version")
    parser.add_argument("--key", type=Path, help="Ed25519 private key, PEM; its file name is the key's id")
    parser.add_argument("--models", default="", help="comma-separated; empty: any")
    parser.add_argument("--oldest", default="0", help="oldest version this one may follow")
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--arch", choices=MACHINES, default=HERE, required=HERE is None, help="processor of the box")
    parser.add_argument("--root", type=Path, help="bundle this root file system (of make image) instead of the product")
    parser.add_argument("--quick", action="store_true", help="compress little, for tests: half a minute less")
    arguments = parser.parse_args()
    try:
        out = make(arguments)
    except ProvisioningError as exc:
        print(exc, file=sys.stderr)
        return exc.exit_status
    print(f"{out} {out.stat().st_size / 1e6:.2f} MB")
    return 0


def make(arguments: argparse.Namespace) -> Path:
    """Build the part and the bundle around it, return the bundle."""
    machine = MACHINES[arguments.arch]
    work, top = arguments.work, Path(__file__).resolve().parents[2]
    work.mkdir(parents=True, exist_ok=True)
    version = arguments.version or project_version(top)
    name, kind = f"rocketbox-{version}" + (f"-{arguments.arch}" if arguments.arch != "amd64" else ""), "app"
    files: dict[str, tuple[int, int, str]] = {}
    if arguments.root:
        name, kind, content = f"{name}-image", "root", arguments.root
    else:
        build_tree(work / "tree", top, arguments.python, version, machine=machine, compiled=top / LIBRARIES)
        content = work / f"{name}.tar.xz"
        files = pack_app(work / "tree", content, 0 if arguments.quick else SMALLEST)
    key = arguments.key or test_key(work)
    manifest = Manifest(
        version=version,
        models=tuple(filter(None, arguments.models.split(","))),
        arch=machine,
        python=python_version(arguments.python),
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        key_id=key.stem,
        oldest=arguments.oldest,
        parts=(describe_part(content, kind),),
        files=files,
        sbom=SBOM if files else "",
    )
    out = Path(work / f"{name}.rbx")
    build_bundle(out, manifest, [content], key)
    return out


def test_key(work: Path) -> Path:
    """Return a key for tests, made once."""
    key = work / "test-signing.pem"
    if not key.exists():
        make_key(key, work / "test.pem")
    return key


if __name__ == "__main__":
    sys.exit(main())
