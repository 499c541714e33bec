"""Clients in other languages as small programs of their own, built once into .build/, with what they print as values.

python -m tests.interop.programs builds what takes a minute where nothing is cached: `make test` does at its start.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.jars import ROOT, Unavailable, alone

HERE = Path(__file__).parent
BUILD, CACHE = ROOT / ".build" / "interop", ROOT / ".cache"
MINUTES_S = 900
RUN_S = 75
# Quick to build rather than to run: not optimised, without what debuggers and C want.
GO_BUILD = ["go", "build", "-gcflags=all=-N -l", "-ldflags=-s -w"]
PYTHON_CLIENT = "5.1.2"


@dataclass(frozen=True, slots=True)
class Program:
    """A built program; each run gets a subcommand and arguments and gives the objects it printed."""

    name: str
    command: tuple[str, ...]

    def start(self, *arguments: object, **environ: str) -> "subprocess.Popen[str]":
        command, environment = [*self.command, *map(str, arguments)], {**os.environ, **environ}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    def run(self, *arguments: object, **environ: str) -> list[dict[str, Any]]:
        return finished(self.start(*arguments, **environ))


def finished(process: "subprocess.Popen[str]") -> list[dict[str, Any]]:
    """Return what a program printed once it has ended; a failure carries what it said."""
    try:
        out, errors = process.communicate(timeout=RUN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, errors = process.communicate()
    assert process.returncode == 0, f"{process.args!r} ended with {process.returncode}: {errors[-2000:]}\n{out[-1000:]}"
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def _build(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    try:
        subprocess.run(
            command, cwd=folder, env={**os.environ, **environment}, check=True, capture_output=True, timeout=MINUTES_S
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().splitlines()
        raise Unavailable(f"{command[0]} could not build {folder.name}: {said[-1] if said else error}") from error


def go_program() -> Program:
    """Return the program on the official Go client. Raises Unavailable."""
    return Program("go", (str(build_go(HERE / "go", "go-client")),))


def build_go(folder: Path, name: str) -> Path:
    """Build a folder by its sums and return the program; those of one client, as by its name, wait for each other.

    Raises Unavailable.
    """
    if shutil.which("go") is None:
        raise Unavailable("no go here: apt-get install golang-go")
    BUILD.mkdir(parents=True, exist_ok=True)
    caches = {"GOPATH": str(CACHE / "go"), "GOCACHE": str(CACHE / "go-build"), "GOFLAGS": "-modcacherw"}
    with alone(name.partition("-")[0]):
        _build([*GO_BUILD, "-o", str(BUILD / name), "."], folder, {**caches, "CGO_ENABLED": "0"})
    return BUILD / name


def go5_program() -> Program:
    """Return the program on the official Go client of RocketMQ 5. Raises Unavailable."""
    return Program("go5", (str(build_go(HERE / "go5", "go5-client")),))


def node_program() -> Program:
    """Return the program on the Node client. Raises Unavailable."""
    return Program("node", ("node", str(install_node(HERE / "node", BUILD / "node") / "main.js")))


def node5_program() -> Program:
    """Return the program on the official Node client of RocketMQ 5. Raises Unavailable."""
    return Program("node5", ("node", str(install_node(HERE / "node5", BUILD / "node5") / "main.js")))


def rust5_program() -> Program:
    """Return the program on the official Rust client of RocketMQ 5. Raises Unavailable."""
    return Program("rust5", (str(build_rust(HERE / "rust5", "rust5-client")),))


def build_rust(folder: Path, name: str) -> Path:
    """Build a folder by its lock and return the program; what it needs is built once. Raises Unavailable."""
    if shutil.which("cargo") is None:
        raise Unavailable("no cargo here: apt-get install cargo, 1.78 or newer, or rustup")
    BUILD.mkdir(parents=True, exist_ok=True)
    cache = CACHE.resolve()  # by another path cargo would build all of it again
    own = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "config.toml"
    told = ["--config", str(own)] if own.exists() else []  # a mirror, say
    target = cache / "cargo-target"
    caches = {"CARGO_HOME": str(cache / "cargo"), "CARGO_TARGET_DIR": str(target)}
    with alone("cargo"):
        _build(["cargo", "build", "--quiet", "--locked", *told], folder, caches)
        shutil.copy(target / "debug" / "rust5", BUILD / name)  # each program of this crate has the same place there
    return BUILD / name


def python5_program() -> Program:
    """Return the program on the official Python client of RocketMQ 5, with an environment. Raises Unavailable."""
    folder = BUILD / "python5"
    python = folder / "bin" / "python"
    with alone("python5"):
        if not (folder / f".complete-{PYTHON_CLIENT}").exists():
            folder.mkdir(parents=True, exist_ok=True)
            _build([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], folder, {})
            wanted = f"rocketmq-python-client=={PYTHON_CLIENT}"
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
            pip += ["install", "-q", wanted]
            _build(pip, folder, {"PIP_CACHE_DIR": str(CACHE / "pip")})
            (folder / f".complete-{PYTHON_CLIENT}").touch()
    return Program("python5", (str(python), str(HERE / "python5" / "main.py")))


def install_node(source: Path, folder: Path) -> Path:
    """Copy the files of a folder to another one and install what its lock names there. Raises Unavailable."""
    lacking = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    if lacking:
        raise Unavailable(f"no {' and no '.join(lacking)} here: apt-get install nodejs npm")
    with alone("node"):
        _install_node(source, folder)
    return folder


def _install_node(source: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        shutil.copy(file, folder)
    complete = folder / "node_modules" / ".complete"  # an install that was cut off is begun again
    if not complete.exists():
        quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--legacy-peer-deps", "--loglevel=error"]
        _build(["npm", "ci", *quiet], folder, {"npm_config_cache": str(CACHE / "npm")})
        complete.touch()


if __name__ == "__main__":
    for build in (go_program, go5_program):  # one after the other: both need Go's own packages
        try:
            build()
        except Unavailable as error:
            print(error, file=sys.stderr)
