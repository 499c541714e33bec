"""docs/metrics.md is what the catalogue says, a row a metric."""

from pathlib import Path

import pytest

from appliance.__main__ import main
from appliance.metrics.docs import document
from appliance.metrics.families import FAMILIES, NODE

DOCS = Path(__file__).parents[3] / "docs"


def test_the_documentation_is_what_the_command_prints() -> None:
    assert (DOCS / "metrics.md").read_text() == document(), "rocketbox metrics --docs > docs/metrics.md"


def test_the_command_needs_no_box_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "--docs"]) == 0
    assert capsys.readouterr().out == document()


def test_each_metric_has_one_row_with_its_kind_labels_and_bound() -> None:
    listed = [cells_of(line) for line in document().splitlines() if line.startswith("| `")]
    assert len(listed) == len(FAMILIES)
    rows = {cells[0]: cells for cells in listed}
    for family in FAMILIES.values():
        _, kind, meaning, labels, most = rows[f"`{family.name}`"]
        assert (kind, meaning, most) == (family.kind, family.meaning, str(family.most))
        assert labels.startswith("node") == (family.labels[: len(NODE)] == NODE)
        assert all(f"`{label}`" in labels for label in family.labels if label not in NODE)


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split(" | ")]
