"""docs/clients.md: each program of the page against a box, as it stands there but for the ports."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.import_path import import_path
from tests.interop import jars
from tests.interop.programs import (
    HERE,
    Program,
    build_go,
    build_rust,
    node5_program,
    node_program,
    python5_program,
)
from tests.interop.served import GrpcBox
from tests.interop.wire import make_topic

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
BLOCK = re.compile(r"<!-- run: (\w+) -->\n```\w+\n(.*?)```", re.DOTALL)
PROGRAMS = dict(BLOCK.findall(PAGE.read_text()))
RUN_S = 100


@pytest.fixture(scope="module")
def box(module_path: Path) -> Iterator[GrpcBox]:
    box = GrpcBox(module_path / "data")
    box.start()
    make_topic(box.broker, "orders", 1)
    yield box
    assert box.stop() == 0, box.log_tail()


def run(command: list[str], folder: Path, **environ: str) -> str:
    environment = {**os.environ, "HOME": str(folder), **environ}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=RUN_S)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


class Started(NamedTuple):
    """The command that runs a program of the page, and what its environment has besides."""

    command: list[str]
    environ: dict[str, str]


def java(folder: Path, source: str, classes: list[Path]) -> Started:
    """Return what compiles and runs one file."""
    listed = subprocess.run([jars.java(), "--list-modules"], capture_output=True, text=True, check=True).stdout
    if "jdk.compiler" not in listed:
        raise jars.Unavailable("this Java has no compiler, so programs in Java are not tried")
    file = write(folder / "Orders.java", source)
    return Started([*jars.java_command(), "-cp", ":".join(map(str, classes)), str(file)], {})


def node(folder: Path, source: str, program: Callable[[], Program]) -> Started:
    modules = Path(program().command[1]).parent / "node_modules"
    return Started(["node", str(write(folder / "orders.js", source))], {"NODE_PATH": str(modules)})


def python(folder: Path, source: str, interpreter: str) -> Started:
    return Started([interpreter, str(write(folder / "orders.py", source))], {"PYTHONPATH": import_path()})


def rust(folder: Path, source: str) -> Started:
    """A program with the dependencies of the test's own."""
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(HERE / "rust5" / name, folder)
    (folder / "src").mkdir()
    write(folder / "src" / "main.rs", source)
    return Started([str(build_rust(folder, "rust5-page"))], {})


def go(folder: Path, source: str, sums: str) -> Started:
    for name in ("go.mod", "go.sum"):
        shutil.copy(HERE / sums / name, folder)
    write(folder / "main.go", source)
    return Started([str(build_go(folder, f"{sums}-page"))], {})


def write(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


STARTS: dict[str, Callable[[Path, str], Started]] = {
    "java5": lambda folder, source: java(folder, source, jars.fetch("5.0.8", "rocketmq-client-java")),
    "java4": lambda folder, source: java(folder, source, jars.fetch("4.9.7")),
    "python5": lambda folder, source: python(folder, source, python5_program().command[0]),
    "python4": lambda folder, source: python(folder, source, sys.executable),
    "node5": lambda folder, source: node(folder, source, node5_program),
    "node4": lambda folder, source: node(folder, source, node_program),
    "rust5": rust,
    "go5": lambda folder, source: go(folder, source, "go5"),
    "go4": lambda folder, source: go(folder, source, "go"),
}
SOAK = {"rust5": pytest.mark.soak}  # what the Rust client needs is two minutes of both cores to build
BUILT = "go5"  # last: `make test` begins at its start to build what it needs


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=SOAK.get(name, ())) for name in sorted(PROGRAMS, key=BUILT.__eq__)]
)
def test_a_program_of_the_page_gets_what_it_sent(name: str, box: GrpcBox, tmp_path: Path) -> None:
    source = PROGRAMS[name].replace("127.0.0.1:8081", box.endpoint).replace("127.0.0.1:9876", box.namesrv)
    try:
        started = STARTS[name](tmp_path, source)
    except jars.Unavailable as error:
        pytest.skip(str(error))
    said = run(started.command, tmp_path, **started.environ)
    assert re.search(r"got .*17", said), said


def test_every_program_is_run() -> None:
    assert set(PROGRAMS) == set(STARTS)
