"""Compile the modules that every message passes into one library: mypyc writes C, a C compiler does the rest.

python systemd/compiled/build.py OUT [--if-changed] [--sealed] [--target SOABI HEADERS CC...]...

pyproject.toml names the modules ([tool.rocketbox] compiled). OUT gets `rocketbox.SOABI.so` and `rocketbox.SOABI.json`,
which `appliance/compiled.py` reads. Without --target the library is for the Python that runs this; each --target adds
one for another Python or machine: folders of headers, separated by colons, and the compiler's command. --if-changed
does nothing where the library fits the sources. --sealed is for packages, in which no source is edited: the list of
sources stays out. Without a C compiler or the headers of Python it says so in one line and exits 0, since pure Python
runs everywhere.
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
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
FLAGS = ("-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-fwrapv", "-DNDEBUG", "-w", "-ffunction-sections")
# mypyc 2.4: a slice of bytes that ends before it begins asks for a negative size, and raises SystemError.
SLICE = ("Py_ssize_t slice_len = endn - startn;", "Py_ssize_t slice_len = endn > startn ? endn - startn : 0;")


class Target(NamedTuple):
    """A Python to compile for: SOABI (`cpython-311-x86_64-linux-gnu`), folders of headers, the C compiler's words."""

    soabi: str
    headers: tuple[str, ...]
    compiler: tuple[str, ...]


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


def generate(modules: Sequence[str], folder: Path) -> list[str]:
    """Let mypyc write C for `modules` into `folder`; return the names of the sources that it read.

    In a process of its own: mypyc takes hundreds of megabytes, and ends the process when a source has an error.
    """
    words = [
        sys.executable,
        str(HERE / "generate.py"),
        str(folder),
        *(name.replace(".", "/") + ".py" for name in modules),
    ]
    done = subprocess.run(words, cwd=TOP, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"build.py: mypyc refuses the sources:\n{done.stdout}{done.stderr}")
    runtime = next(Path(name) for name in (folder / "lib-rt.txt").read_text().splitlines())
    shutil.copytree(runtime, folder / "lib-rt", dirs_exist_ok=True)
    ops = folder / "lib-rt/bytes_ops.c"
    ops.write_text(ops.read_text().replace(*SLICE))
    shutil.copy(HERE / "library.c", folder)
    read = (Path(TOP, name).resolve() for name in (folder / "read.txt").read_text().splitlines())
    return sorted(str(path.relative_to(TOP)) for path in read if path.is_relative_to(TOP) and ".venv" not in path.parts)


def link(folder: Path, target: Target, library: Path) -> None:
    """Compile everything in `folder` for `target`, a file per processor at a time, and link it as `library`."""
    runtime = (folder / "runtime.txt").read_text().splitlines()
    files = sorted(folder.glob("*.c")) + [folder / "lib-rt" / name for name in runtime]
    objects = Path(tempfile.mkdtemp(dir=folder))
    include = [f"-I{path}" for path in (folder, folder / "lib-rt", *target.headers)]

    def one(at: int) -> str:
        made = str(objects / f"{at}.o")
        run([*target.compiler, *FLAGS, *include, "-c", str(files[at]), "-o", made])
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


def digest_of(modules: Sequence[str], sources: Iterable[str]) -> str:
    """Return a digest of what a library is made from: modules, sources, this folder and the version of mypyc.

    Raises FileNotFoundError for a source that is gone.
    """
    digest = hashlib.sha256(f"{importlib.metadata.version('mypy')} {modules}".encode())
    for path in (*sorted(HERE.iterdir()), *(TOP / name for name in sources)):
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def still_fits(described: Path, modules: Sequence[str]) -> bool:
    """Tell whether a library is made from what is there now; if so its list of sources gets their present times."""
    try:
        told: dict[str, Any] = json.loads(described.read_bytes())
        names = [name for name, *_ in told["sources"]]
        fits = bool(names) and told["digest"] == digest_of(modules, names)
    except (FileNotFoundError, ValueError, KeyError):
        return False
    if fits:
        described.write_text(json.dumps({**told, "sources": state_of(names)}))
    return fits


def build(modules: Sequence[str], targets: Sequence[Target], out: Path, *, sealed: bool) -> None:
    """Put the library for each target into `out`, each with its description; the library comes last and at once."""
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    (TOP / ".build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TOP / ".build") as scratch:
        sources = generate(modules, Path(scratch))
        told = {
            "digest": digest_of(modules, sources),
            "modules": modules,
            "sources": [] if sealed else state_of(sources),
        }
        for target in targets:
            library = out / f"rocketbox.{target.soabi}.so"
            link(Path(scratch), target, Path(scratch, "library.so"))
            library.with_suffix(".json").write_text(json.dumps(told))
            os.replace(Path(scratch, "library.so"), library)
            size = library.stat().st_size / 1e6
            took = time.monotonic() - began
            print(f"compiled {len(modules)} modules for {target.soabi}: {size:.1f} MB, {took:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="compile the modules that every message passes")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--if-changed", action="store_true", help="do nothing where the library fits the sources")
    parser.add_argument("--sealed", action="store_true", help="for a package: no list of sources that may change")
    parser.add_argument("--target", nargs="+", action="append", default=[], metavar="WORD", help="SOABI HEADERS CC...")
    arguments = parser.parse_args()
    try:
        given = [Target(soabi, tuple(headers.split(":")), tuple(cc)) for soabi, headers, *cc in arguments.target]
        targets = given or [own_python()]
    except CannotCompile as exc:
        print(f"not compiled, Rocketbox runs as pure Python: {exc}")
        return
    modules = compiled_modules()
    described = (arguments.out / f"rocketbox.{each.soabi}.json" for each in targets)
    if not (arguments.if_changed and all(still_fits(each, modules) for each in described)):
        build(modules, targets, arguments.out, sealed=arguments.sealed)


if __name__ == "__main__":
    main()
