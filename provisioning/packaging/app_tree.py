"""Builds what a slot holds: the six packages and the few libraries they need, compiled, from this environment.

    python -m provisioning.packaging.app_tree TARGET [--python /usr/bin/python3] [--version 1.4.0] [--machine M]
        [--compiled DIR]

For another processor than this machine's the libraries are the locked wheels for it; byte code is the same everywhere.
"""

from __future__ import annotations

import argparse
import importlib.metadata as metadata
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

from provisioning.errors import ProvisioningError
from provisioning.packaging.library import copy_library
from provisioning.packaging.wheels import fetch

PACKAGES = ("appliance", "storage_driver", "netstack", "watchdog", "provisioning", "uplink_spark")
ELSEWHERE = ("uplink_spark/jobs", "uplink_spark/spark", "uplink_spark/spark_source.py", "provisioning/packaging")
AT_THE_CENTRE = ("uplink_spark/centre", "uplink_spark/zone", "uplink_spark/commands", "uplink_spark/__main__.py")
MADE_FROM = ("netstack/grpc/v2/definition.proto", "netstack/grpc/v2/service.proto")
TESTING = "testing*.py"
NOT_ON_A_BOX = re.compile(  # other systems, other ends, test helpers of libraries
    r"psutil/_ps(windows|osx|bsd|aix|sunos)|trio/testing/|_windows|_kqueue|serial/(win32|serialwin32|serialcli|serialjava|"
    r"rfc2217|tools/(miniterm|hexlify_codec|list_ports_(windows|osx))|urlhandler/|threaded/)|"
    r"prometheus_client/(twisted/|aiohttp/|django/|bridge/|openmetrics/parser|parser|multiprocess)|"
    r"jinja2/(ext|sandbox|nativetypes|meta|constants)\.|trio/(_tools/|_repl\.|_wait_for_object)|idna/(cli|codec|compat)\.|"
    r"isal/(igzip\.py|igzip_threaded|isa-l/[^L])|cbor2/tool\.|serial/rs485\.|\.dist-info/(RECORD|INSTALLER|REQUESTED|WHEEL|sboms/)|"
    r"google/protobuf/(compiler/|json_|testdata/|util/|internal/(.*_benchmark|testing_|_parameterized)|"
    r"(descriptor|api|type|struct|any|wrappers|source_context|empty|field_mask)_pb2|json_format|proto_|service|"
    r"(proto|timestamp|duration|any)\.)|"
    r"(^|/)(_?tests?)/|__pycache__"
)
SOURCES = (".pyi", ".c", ".h", ".pyx", ".pxd", ".rs")
LOCK = ".lock-box.txt"
SBOM = "lib/sbom.cdx.json"


def build_tree(
    target: Path, top: Path, python: str, version: str, *, machine: str = "", compiled: Path | None = None
) -> dict[str, str]:
    """Fill `target/lib`, return name -> version of every library in it.

    compiled: the folder of libraries of compiled modules. Raises ProvisioningError.
    """
    number, foreign = python_version(python), machine not in ("", platform.machine())
    site = target / "lib" / f"python{number}" / "site-packages"
    if target.exists():
        shutil.rmtree(target)
    site.mkdir(parents=True)
    copy_packages(top, site)
    leave_out(site, (*AT_THE_CENTRE, *MADE_FROM))  # a slot has no libraries for the centre either
    if compiled is not None:
        copy_library(top, compiled, site, machine or platform.machine(), number)
    libraries = fetch_libraries(top, site, machine, number) if foreign else copy_libraries(top, site)
    for path in site.glob("*.dist-info/METADATA"):  # what follows the headers is the library's README
        path.write_text(path.read_text(encoding="utf-8").partition("\n\n")[0] + "\n", encoding="utf-8")
    write_own_metadata(site, version)
    write_sbom(target / SBOM, top, libraries, version)
    compile_all(python, target, site)
    return {name: one.version for name, one in libraries.items()}


def compile_all(python: str, target: Path, site: Path) -> None:
    """Put the byte code of every module in the place of its source, which nobody reads or edits on a box.

    Without columns, which only tracebacks show: they are a seventh. A source that is put beside it counts instead.
    """
    words = [python, "-X", "no_debug_ranges", "-m", "compileall", "-q", "-b", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([*words, "-s", str(target), str(site)], check=True)
    for source in site.rglob("*.py"):
        source.unlink()


def copy_packages(top: Path, site: Path) -> None:
    """Copy our own six packages without what tests, Spark and a build alone need. Raises ProvisioningError."""
    make_proto_modules(top)
    for name in PACKAGES:
        shutil.copytree(top / name, site / name, ignore=shutil.ignore_patterns("__pycache__", "native", TESTING))
    leave_out(site, ELSEWHERE)


def leave_out(site: Path, names: Iterable[str]) -> None:
    for name in names:
        unwanted = site / name
        shutil.rmtree(unwanted) if unwanted.is_dir() else unwanted.unlink(missing_ok=True)


def make_proto_modules(top: Path) -> None:
    """Make the modules of the gRPC messages, which no checkout has. Raises ProvisioningError without their compiler."""
    words = [sys.executable, str(top / "systemd/proto_modules.py")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ProvisioningError("E304", f"the modules of the gRPC messages cannot be made: {done.stderr.strip()}")


def python_version(python: str) -> str:
    """Return the `3.11` of an interpreter."""
    words = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def copy_libraries(top: Path, site: Path) -> dict[str, metadata.Distribution]:
    """Copy what pyproject names and what that needs; scripts, tests and the centre's libraries stay behind."""
    waiting, locked = wanted_libraries(top), locked_versions(top)
    found: dict[str, metadata.Distribution] = {}
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = metadata.distribution(name)
        if locked.get(name) != found[name].version:
            text = f"{name} {found[name].version} is installed, {LOCK} says {locked.get(name, 'nothing')}"
            raise ProvisioningError("E304", f"{text}: `make setup`; after a change of versions `make lock` first")
        needs = [line for line in found[name].requires or [] if "extra ==" not in line and wanted_here(line)]
        waiting += [distribution_name(line) for line in needs]
        copy_distribution(found[name], site)
    return dict(sorted(found.items()))


def wanted_libraries(top: Path) -> list[str]:
    """Return what pyproject names for a box, and of what makes it faster that which is installed here."""
    project = tomllib.loads((top / "pyproject.toml").read_text())["project"]
    faster = map(distribution_name, project.get("optional-dependencies", {}).get("fast", ()))
    installed = [name for name in faster if any(metadata.Distribution.discover(name=name))]
    return [*map(distribution_name, project["dependencies"]), *installed]


def fetch_libraries(top: Path, site: Path, machine: str, python: str) -> dict[str, metadata.Distribution]:
    """Do as copy_libraries does for another processor. Raises ProvisioningError where a library has no wheel for it."""
    with tempfile.TemporaryDirectory() as folder:
        fetch(Path(folder), top / LOCK, machine, python)
        for path in Path(folder).rglob("*"):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and on_a_box(name) and not name.startswith("bin/"):
                (site / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, site / name)
    found = {distribution_name(one.name): one for one in metadata.distributions(path=[str(site)])}
    return dict(sorted(found.items()))


def locked_versions(top: Path) -> dict[str, str]:
    """Return name -> version of what a box may hold: those whose digests were checked when they were installed."""
    rows = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", (top / LOCK).read_text(), re.MULTILINE)
    return {distribution_name(name): version for name, version in rows}


def distribution_name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def wanted_here(requirement: str) -> bool:
    """Tell whether a requirement's marker holds on a box: Linux, CPython of the slot."""
    marker = requirement.partition(";")[2]
    unfit = ("win32", "nt'", 'nt"', "pypy", "python_version < '3.11'", 'python_version < "3.11"')
    return not any(word in marker and f"!= '{word}" not in marker and f'!= "{word}' not in marker for word in unfit)


def on_a_box(path: str) -> bool:
    """Tell whether a box needs this file of a library: no scripts, no sources in C, no tests."""
    return not (path.startswith("..") or path.endswith(SOURCES) or NOT_ON_A_BOX.search(path))


def copy_distribution(one: metadata.Distribution, site: Path) -> None:
    for file in one.files or []:
        path = str(file)
        if not on_a_box(path):
            continue
        source = Path(str(one.locate_file(file)))
        if source.is_file():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, site / path)
            if path.endswith(".so") and shutil.which("strip"):
                subprocess.run(["strip", "--strip-unneeded", str(site / path)], check=True)


def write_own_metadata(site: Path, version: str) -> None:
    folder = site / f"rocketbox-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: rocketbox\nVersion: {version}\nLicense: Apache-2.0\n"
    )
    (folder / "RECORD").write_text("")


def write_sbom(path: Path, top: Path, libraries: Iterable[str], version: str) -> None:
    """Write what is inside and under which licence, as CycloneDX. Raises ProvisioningError when its tool is missing."""
    words = [sys.executable, str(top / "systemd/sbom.py"), str(path), version, *libraries]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ProvisioningError("E303", f"no list of parts: {last}; `make setup` installs cyclonedx-python-lib")


def project_version(top: Path) -> str:
    return str(tomllib.loads((top / "pyproject.toml").read_text())["project"]["version"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m provisioning.packaging.app_tree", description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--version")
    parser.add_argument("--machine", default=platform.machine())
    parser.add_argument("--compiled", type=Path, help="the folder that `make libraries` filled")
    arguments = parser.parse_args()
    top = Path(__file__).resolve().parents[2]
    if sys.version_info[:2] != tuple(map(int, python_version(arguments.python).split("."))):
        print(f"{arguments.python} is another Python than {sys.executable}: its libraries would not load")
        return 1
    version = arguments.version or project_version(top)
    libraries = build_tree(
        arguments.target, top, arguments.python, version, machine=arguments.machine, compiled=arguments.compiled
    )
    size = sum(path.stat().st_size for path in arguments.target.rglob("*") if path.is_file())
    print(
        f"{arguments.target}: rocketbox {version}, {size / 1e6:.1f} MB, "
        + " ".join(f"{k}={v}" for k, v in libraries.items())
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
