"""`python -m uplink_spark` on a machine that has what a box has, and neither numpy nor pyspark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.import_path import import_path
from uplink_spark.commands import COMMANDS

ROOT = Path(__file__).parents[2]
EACH_HELP = """
import sys
from uplink_spark.__main__ import main
for name in sys.argv[1:]:
    try:
        main([name, "--help"])
    except SystemExit as end:
        assert end.code == 0, (name, end.code)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the libraries of a box, and no other."""
    folder = tmp_path_factory.mktemp("site")
    for line in (ROOT / ".lock-box.txt").read_text().splitlines():
        if "==" in line:
            installed = distribution(line.partition("==")[0])
            tops = {file.parts[0] for file in installed.files or () if file.parts[0] not in ("..", "__pycache__")}
            for top in tops:
                (folder / top).symlink_to(str(installed.locate_file(top)))
    return folder


def python(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python without its site-packages: it finds the standard library, the box's libraries and the checkout."""
    environ = {**os.environ, "PYTHONPATH": f"{site}:{import_path()}"}
    return subprocess.run([sys.executable, "-S", *words], env=environ, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_every_help_is_there_without_numpy(site: Path) -> None:
    absent = python(site, "-c", "import numpy")
    assert "No module named 'numpy'" in absent.stderr
    done = python(site, "-m", "uplink_spark", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    names = [command.name for command in COMMANDS]
    assert all(name in done.stdout for name in names)
    done = python(site, "-c", EACH_HELP, *names)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("usage: ") == len(names)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "gateway --landing DIR",
        "boxes --landing DIR",
        "check --landing DIR",
        "clean --landing DIR",
        "sweep DIR --landing DIR",
    ],
)
def test_a_command_names_the_package_it_lacks_and_how_to_install_it(words: str, site: Path, tmp_path: Path) -> None:
    done = python(site, "-m", "uplink_spark", *words.replace("DIR", str(tmp_path)).split())
    assert done.returncode == 2
    step = "pip install 'rocketbox[gateway]', or make setup in a checkout"
    lacks = re.fullmatch(rf"{words.split()[0]} needs (numpy|zstandard), which is not installed: (.*)\n", done.stderr)
    assert lacks is not None, done.stderr
    assert lacks[2] == step
    assert list(tmp_path.iterdir()) == []
