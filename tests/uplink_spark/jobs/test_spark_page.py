"""docs/spark.md: the walk of a newcomer's first day, its blocks as they are written, in their order.

In a network and a process namespace of its own: the ports are those of the page, and nothing outlives the test.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark_home import make_spark_home
from tests.systemd.pages import read_blocks, script

TOP = Path(__file__).parents[3]
PAGE = TOP / "docs" / "spark.md"
BLOCKS = read_blocks(PAGE, ("", "python", "toml"))
NAMESPACES = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")


def test_every_block_of_the_page_says_where_it_runs_or_why_not() -> None:
    assert {block.place for block in BLOCKS} == {"centre", ""}
    for block in BLOCKS:
        assert block.commands
        assert "background" not in block.options or any(block.has("background", each) for each in block.commands), block


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
