"""docs/clients.md: each program of the page against a box, as it stands there but for the ports."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import jars
from tests.interop.programs import HERE, build_rust, node5_program, python5_program
from tests.interop.test_grpc import GrpcBox
from tests.interop.wire import make_topic

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
BLOCK = re.compile(r"<!-- run: (\w+) -->\n```\w+\n(.*?)```", re.DOTALL)
PROGRAMS = dict(BLOCK.findall(PAGE.read_text()))
RUN_S = 100


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcBox]:
    box = GrpcBox(tmp_path_factory.mktemp("page") / "data")
    box.start()
    make_topic(box.broker, "orders", 1)
    yield box
    assert box.stop() == 0, box.log_tail()


def run(command: list[str], folder: Path, **environ: str) -> str:
    environment = {**os.environ, "HOME": str(folder), **environ}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=RUN_S)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def java(name: str, classes: list[Path], file: Path) -> list[str]:
    """Return the command that compiles and runs one file."""
    listed = subprocess.run([jars.java(), "--list-modules"], capture_output=True, text=True, check=True).stdout
    if "jdk.compiler" not in listed:
        pytest.skip(f"this Java has no compiler, so the program {name} is not tried")
    return [*jars.java_command(), "-cp", ":".join(map(str, classes)), str(file)]


def rust_program(folder: Path, source: str) -> Path:
    """Return a program with the dependencies of the test's own. Raises jars.Unavailable."""
    (folder / "src").mkdir()
    (folder / "src" / "main.rs").write_text(source)
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(HERE / "rust5" / name, folder)
    return build_rust(folder)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak) if name == "rust5" else name for name in PROGRAMS]
)
def test_a_program_of_the_page_gets_what_it_sent(name: str, box: GrpcBox, tmp_path: Path) -> None:
    source = PROGRAMS[name].replace("127.0.0.1:8081", box.endpoint).replace("127.0.0.1:9876", box.namesrv)
    file = tmp_path / {"python5": "orders.py", "node5": "orders.js"}.get(name, "Orders.java")
    file.write_text(source)
    try:
        if name == "python5":
            said = run([python5_program().command[0], str(file)], tmp_path)
        elif name == "node5":
            modules = Path(node5_program().command[1]).parent / "node_modules"
            said = run(["node", str(file)], tmp_path, NODE_PATH=str(modules))
        elif name == "rust5":
            said = run([str(rust_program(tmp_path, source))], tmp_path)
        elif name == "java5":
            said = run(java(name, jars.fetch("5.0.8", "rocketmq-client-java"), file), tmp_path)
        else:
            said = run(java(name, jars.fetch("4.9.7"), file), tmp_path)
    except jars.Unavailable as error:
        pytest.skip(str(error))
    assert re.search(r"got .*17", said), said


def test_every_program_is_run() -> None:
    assert set(PROGRAMS) == {"java5", "python5", "node5", "rust5", "java4"}
