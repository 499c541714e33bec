"""docs/dashboard.json against Grafana's own types of a dashboard; the queries are asked in test_alerts.py."""

import subprocess
from pathlib import Path

import pytest

from tests.interop.jars import Unavailable
from tests.interop.programs import BUILD, install_node

HERE = Path(__file__).parent
DASHBOARD = (HERE.parents[2] / "docs/dashboard.json").read_text()


@pytest.fixture(scope="module")
def compiler() -> Path:
    """Return a folder with Grafana's types and a compiler for them."""
    try:
        return install_node(HERE / "grafana", BUILD / "grafana")
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.slow
@pytest.mark.xdist_group("dashboard")
@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("", "", ""),
        ('"colorMode": "value"', '"colorMode": "vlaue"', "Type '\"vlaue\"' is not assignable to type"),
        ('"unit"', '"unti"', "unti"),
    ],
    ids=["as it is", "a value Grafana lacks", "a field Grafana lacks"],
)
def test_the_dashboard_is_one_by_grafanas_types(right: str, wrong: str, told: str, compiler: Path) -> None:
    board = DASHBOARD.replace(right, wrong)
    (compiler / "board.ts").write_text(
        f'import type {{ Board }} from "./schema";\nexport const board: Board = {board};\n'
    )
    words: list[str | Path] = ["node", compiler / "node_modules/typescript/bin/tsc", "-p", compiler]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (told == ""), done.stdout
    assert told in done.stdout
