"""docs/spark.md: the walk of a newcomer's first day, its blocks as they are written, in their order.

In a network and a process namespace of its own: the ports are those of the page, and nothing outlives the test.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.spark_home import make_spark_home
from tests.systemd.pages import read_blocks, script

TOP = Path(__file__).parents[3]
PAGE = TOP / "docs" / "spark.md"
BLOCKS = read_blocks(PAGE, ("", "python", "toml"))
NAME = re.compile(r"[A-Za-z][\w-]*")
NAMESPACES = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")


def test_every_block_of_the_page_says_where_it_runs_or_why_not() -> None:
    assert {block.place for block in BLOCKS} == {"centre", ""}
    for block in BLOCKS:
        assert block.commands
        assert "background" not in block.options or any(block.has("background", each) for each in block.commands), block


def test_what_a_program_of_the_page_imports_comes_by_the_pip_commands_of_the_page() -> None:
    extras = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    named = {name for word in re.findall(r"pip install '?([^'`\n]+)", PAGE.read_text()) for name in NAME.findall(word)}
    brought = [
        *extras["dependencies"],
        *(one for name in named for one in extras["optional-dependencies"].get(name, ())),
    ]
    there = {NAME.findall(one)[0] for one in brought} | named | set(sys.stdlib_module_names) | {"uplink_spark"}
    programs = [
        ast.parse(block.text) for block in BLOCKS if block.place and block.options.get("file", "").endswith(".py")
    ]
    for node in (node for program in programs for node in ast.walk(program)):
        modules = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert {module.partition(".")[0] for module in modules} <= there


@pytest.mark.soak
def test_the_page_of_spark_holds_from_the_first_command_to_the_last(tmp_path: Path) -> None:
    if os.getuid() or shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("wants root, unshare and ip: a network of its own for the page's ports")
    lines = script([block for block in BLOCKS if block.place], logs=str(tmp_path))
    (tmp_path / "page.sh").write_text(f"ip link set lo up\n{lines}")
    home = tmp_path / "home"
    home.mkdir()
    java = {} if (TOP / ".venv/java").exists() is False else {"JAVA_HOME": str(TOP / ".venv/java")}
    settings = make_spark_home(tmp_path)
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {"HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **java}
    environment |= {
        name: settings[name] for name in ("SPARK_CONF_DIR", "SPARK_DAEMON_JAVA_OPTS", "SPARK_LAUNCHER_OPTS")
    }
    done = subprocess.run(
        [*NAMESPACES, "bash", str(tmp_path / "page.sh")],
        cwd=home, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False,
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-6000:]
