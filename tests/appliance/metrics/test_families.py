"""The catalogue, its documentation, the alert rules and the dashboard speak of the same metrics."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from appliance.metrics.families import COUNTER, FAMILIES, HISTOGRAM

DOCS = Path(__file__).parents[3] / "docs"
NAME = re.compile(r"\b(?:rocketbox|rocketmq|process)_[a-z_]+")


def names_in(expression: str) -> set[str]:
    found = {name.removesuffix("_") for name in NAME.findall(expression)}
    return {re.sub(r"_(bucket|count|sum)$", "", n) if n not in FAMILIES else n for n in found}


def test_counters_alone_end_in_total() -> None:
    assert [f.name for f in FAMILIES.values() if f.name.endswith("_total") != (f.kind == COUNTER)] == []
    assert [f.name for f in FAMILIES.values() if f.kind == HISTOGRAM] == ["rocketbox_sync_seconds"]


def test_the_rules_ask_for_metrics_that_exist() -> None:
    rules = re.findall(r"expr: (.*)", (DOCS / "alerts.yml").read_text())
    assert len(rules) > 10
    assert {name for rule in rules for name in names_in(rule)} - FAMILIES.keys() == set()


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    panels = json.loads((DOCS / "dashboard.json").read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    assert len(asked) > 20
    assert {name for expression in asked for name in names_in(expression)} - FAMILIES.keys() == set()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool: sudo make system-packages")
@pytest.mark.parametrize("words", [("check", DOCS / "alerts.yml"), ("test", Path(__file__).parent / "alerts_test.yml")])
@pytest.mark.slow
def test_promtool_accepts_the_rules_and_they_fire_when_they_should(words: tuple[str, Path]) -> None:
    command = ["promtool", words[0], "rules", str(words[1])]
    said = subprocess.run(command, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
