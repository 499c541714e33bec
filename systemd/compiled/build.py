"""Compile the modules that every message passes into one library: mypyc writes C, a C compiler does the rest.

python systemd/compiled/build.py OUT [--if-changed] [--sealed] [--target SOABI HEADERS CC]... [--modules MODULE...]

pyproject.toml names the modules ([tool.rocketbox] compiled), unless --modules does. OUT gets `rocketbox.SOABI.so` and
`rocketbox.SOABI.json`, which `appliance/compiled.py` reads. Without --target it is for the Python that runs this; each
adds one for another Python or machine: folders of headers, separated by colons, and the compiler's command. With
--if-changed it does nothing where the library fits the sources. --sealed is for packages, in which no source is edited:
the list of sources and their times stays out. Without a C compiler or the headers of Python it says so in one line and
exits 0, since pure Python runs everywhere.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
sys.path.insert(0, str(TOP))

from provisioning.packaging.library import digest_of  # noqa: E402, of the checkout

FLAGS = ("-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-fwrapv", "-DNDEBUG", "-w", "-ffunction-sections")
NO_TABLES = ("-fno-asynchronous-unwind-tables", "-fno-unwind-tables")  # for debuggers: 8 % of the library
# mypyc 2.4: a slice of bytes that ends before it begins asks for a negative size, and raises SystemError.
SLICE = ("Py_ssize_t slice_len = endn - startn;", "Py_ssize_t slice_len = endn > startn ? endn - startn : 0;")


class Target(NamedTuple):
    """A Python to compile for: SOABI (`cpython-311-x86_64-linux-gnu`), folders of headers, the C compiler's words."""

    soabi: str
    headers: tuple[str, ...]
    compiler: tuple[str, ...]

    @property
    def python(self) -> str:
        """`3.11`, by the SOABI."""
        number = self.soabi.split("-")[1]
        return f"{number[0]}.{number[1:]}"


class CannotCompile(Exception):
    """What is missing on this machine, in words."""


def own_python() -> Target:
    """Return the Python that runs this. Raises CannotCompile without a C compiler or without Python's headers."""
    wanted = shlex.split(os.environ.get("CC", ""))
    found = next((path for name in (*wanted[:1], "cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if found is None:
        raise CannotCompile("no C compiler; as root: apt-get install gcc")
    headers = sysconfig.get_path("include")
    if not Path(headers, "Python.h").exists():
        raise CannotCompile(f"no Python.h in {headers}; as root: apt-get install python3-dev")
    return Target(str(sysconfig.get_config_var("SOABI")), (headers,), (found, *wanted[1:]))


def compiled_modules() -> list[str]:
    """Return the modules to compile, `package.module` each."""
    tables = tomllib.loads((TOP / "pyproject.toml").read_text())
    return [str(name) for name in tables["tool"]["rocketbox"]["compiled"]]


def generate(modules: Sequence[str], python: str, folder: Path) -> list[str]:
    """Let mypyc write C for `modules` and a Python (`3.13`) into `folder`; return the names of the sources it read.

    In a process of its own: mypyc takes hundreds of megabytes, and ends the process when a source has an error.
    """
    words = [sys.executable, str(HERE / "generate.py"), str(folder), python]
    words += [name.replace(".", "/") + ".py" for name in modules]
    done = subprocess.run(words, cwd=TOP, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"build.py: mypyc refuses the sources:\n{done.stdout}{done.stderr}")
    runtime = next(Path(name) for name in (folder / "lib-rt.txt").read_text().splitlines())
    shutil.copytree(runtime, folder / "lib-rt", dirs_exist_ok=True)
    ops = folder / "lib-rt/bytes_ops.c"
    ops.write_text(ops.read_text().replace(*SLICE))
    shutil.copy(HERE / "library.c", folder)
    read = (Path(TOP, name).resolve() for name in (folder / "read.txt").read_text().splitlines())
    ours = (path for path in read if path.is_relative_to(TOP) and ".venv" not in path.parts and path.is_file())
    return sorted(str(path.relative_to(TOP)) for path in ours)


def link(folder: Path, target: Target, library: Path) -> None:
    """Compile everything in `folder` for `target`, a file per processor at a time, and link it as `library`."""
    runtime = (folder / "runtime.txt").read_text().splitlines()
    files = sorted(folder.glob("*.c")) + [folder / "lib-rt" / name for name in runtime]
    objects = Path(tempfile.mkdtemp(dir=folder))
    include = [f"-I{path}" for path in (folder, folder / "lib-rt", *target.headers)]

    def one(at: int) -> str:
        made = str(objects / f"{at}.o")
        run([*target.compiler, *FLAGS, *NO_TABLES, *include, "-c", str(files[at]), "-o", made])
        return made

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as workers:
        made = list(workers.map(one, range(len(files))))
    run([*target.compiler, "-shared", "-s", "-Wl,--build-id=none,--gc-sections", *made, "-o", str(library)])
    shutil.rmtree(objects)


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"build.py: {shlex.join(command[-3:])} failed:\n{done.stderr[-4000:]}")


def state_of(sources: Iterable[str]) -> list[tuple[str, int, int]]:
    """Return each source with its size in bytes and its time in ns, by which `appliance/compiled.py` sees a change."""
    return [(name, (TOP / name).stat().st_size, (TOP / name).stat().st_mtime_ns) for name in sources]


def described(modules: Sequence[str], sources: Sequence[str], *, sealed: bool) -> dict[str, Any]:
    """Return what a library is made from: digests of its sources and of how they are compiled.

    Raises FileNotFoundError for a source that is gone.
    """
    how = hashlib.sha256(f"{importlib.metadata.version('mypy')} {list(modules)}".encode())
    for path in sorted(file for file in HERE.iterdir() if file.is_file()):
        how.update(path.read_bytes())
    return {
        "modules": list(modules),
        "how": how.hexdigest(),
        "read": list(sources),
        "digest": digest_of(TOP, sources),
        "sources": [] if sealed else state_of(sources),
    }


def still_fits(file: Path, modules: Sequence[str], *, sealed: bool) -> bool:
    """Tell whether a library is made from what is there now; if so its list of sources gets their present times."""
    try:
        was: dict[str, Any] = json.loads(file.read_bytes())
        now = described(modules, was["read"], sealed=sealed)
        fits = file.with_suffix(".so").exists() and all(was[key] == now[key] for key in ("modules", "how", "digest"))
    except (FileNotFoundError, ValueError, KeyError):
        return False
    if fits:
        file.write_text(json.dumps(now))
    return fits


def build(modules: Sequence[str], targets: Sequence[Target], out: Path, *, sealed: bool) -> None:
    """Put the library for each target into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    (TOP / ".build").mkdir(exist_ok=True)
    for python in sorted({each.python for each in targets}):
        with tempfile.TemporaryDirectory(dir=TOP / ".build") as scratch:
            told = described(modules, generate(modules, python, Path(scratch)), sealed=sealed)
            for target in (each for each in targets if each.python == python):
                compile_for(target, Path(scratch), told, out / f"rocketbox.{target.soabi}.so")


def compile_for(target: Target, folder: Path, told: Mapping[str, Any], library: Path) -> None:
    """Make one library of the C in `folder`, and its description; the library comes last and at once."""
    began = time.monotonic()
    link(folder, target, folder / "library.so")
    library.with_suffix(".json").write_text(json.dumps(told))
    os.replace(folder / "library.so", library)
    size, took = library.stat().st_size / 1e6, time.monotonic() - began
    print(f"compiled {len(told['modules'])} modules for {target.soabi}: {size:.1f} MB, {took:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="compile the modules that every message passes")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--if-changed", action="store_true", help="do nothing where the library fits the sources")
    parser.add_argument("--sealed", action="store_true", help="for a package: no list of sources that may change")
    parser.add_argument("--target", nargs=3, action="append", default=[], metavar=("SOABI", "HEADERS", "CC"))
    parser.add_argument("--modules", nargs="+", default=None, metavar="MODULE", help="these, not pyproject.toml's")
    arguments = parser.parse_args()
    try:
        given = [
            Target(soabi, tuple(headers.split(":")), tuple(shlex.split(cc))) for soabi, headers, cc in arguments.target
        ]
        targets = given or [own_python()]
    except CannotCompile as exc:
        print(f"not compiled, Rocketbox runs as pure Python: {exc}")
        return
    modules = arguments.modules or compiled_modules()
    files = ((each, arguments.out / f"rocketbox.{each.soabi}.json") for each in targets)
    sealed, check = arguments.sealed, arguments.if_changed
    missing = [each for each, file in files if not (check and still_fits(file, modules, sealed=sealed))]
    if missing:
        build(modules, missing, arguments.out, sealed=sealed)


if __name__ == "__main__":
    main()
