"""The rules of docs/alerts*.yml over series that a real process sends: promtool runs them."""

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

DOCS = Path(__file__).parents[2] / "docs"
NEEDED = pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool: sudo make system-packages")
BEFORE_MIN, AFTER_MIN = 30, 90
AGES = {  # what grows in a minute while nothing happens
    "rocketmq_consumer_lag_latency_milliseconds": 60_000,
    "rocketbox_gateway_box_last_seen_seconds": 60,
    "rocketbox_gateway_box_last_landed_seconds": 60,
}


def rules_of(page: str) -> dict[str, dict[str, str]]:
    """Return the rules of a page of docs/ by their alert."""
    groups = yaml.safe_load((DOCS / page).read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def samples(text: str) -> list[Sample]:
    """Return what a scrape holds."""
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def written(sample: Sample, values: str, job: str = "rocketbox") -> dict[str, str]:
    """Return one series of a promtool test."""
    labels = ",".join(f"{name}={value!r}".replace("'", '"') for name, value in sample.labels.items())
    named = f'{sample.name}{{instance="b",job="{job}"{"," + labels if labels else ""}}}'
    return {"series": named, "values": values}


def promtool(
    folder: Path, inputs: list[dict[str, str]], tests: list[dict[str, object]], rules: Iterable[Path] = ()
) -> str:
    """Return what promtool finds wrong, nothing when all tests hold."""
    file = folder / "test.yml"
    test = {"interval": "1m", "input_series": inputs, "promql_expr_test": tests}
    file.write_text(yaml.safe_dump({"rule_files": [*map(str, rules)], "evaluation_interval": "1m", "tests": [test]}))
    said = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True)
    return "" if said.returncode == 0 else said.stdout + said.stderr


def two_scrapes(before: Iterable[Sample], after: Iterable[Sample], job: str) -> list[dict[str, str]]:
    """Return the series of a process that sent `before` for half an hour and `after` from then on."""
    first = {(one.name, tuple(sorted(one.labels.items()))): one for one in before}
    then = {(one.name, tuple(sorted(one.labels.items()))): one for one in after}
    inputs = []
    for key in first.keys() | then.keys():
        old, new = first.get(key), then.get(key)
        begin = f"{old.value:g}x{BEFORE_MIN}" if old else f"_x{BEFORE_MIN + 1}"  # axn are n + 1 samples
        grows = AGES.get(key[0], 0)
        end = f"{new.value:g}+{grows}x{AFTER_MIN}" if new else f"_x{AFTER_MIN}"
        inputs.append(written(new or old, f"{begin} {end}", job))  # type: ignore[arg-type]
    return inputs


def silent_then_firing(
    folder: Path,
    rule: dict[str, str],
    before: Iterable[Sample],
    after: Iterable[Sample],
    *,
    job: str = "rocketbox",
) -> str:
    """Return "" if an alert is silent over the first scrape of a process and fires after the second."""
    alert = rule["alert"]
    file = folder / f"{alert}.yml"  # this rule alone: promtool takes seconds for all of them
    file.write_text(yaml.safe_dump({"groups": [{"name": "one", "rules": [rule]}]}))
    asked = set(re.findall(r"\b(?:up|(?:rocketbox|rocketmq|process)_[a-z_]+)\b", rule["expr"]))
    first, second = ([one for one in scrape if one.name in asked] for scrape in (before, after))
    series = two_scrapes(first, second, job)
    firing = f'count(max_over_time(ALERTS{{alertname="{alert}",alertstate="firing"}}[80m])) > bool 0'
    tests: list[dict[str, object]] = [
        {"expr": firing, "eval_time": f"{BEFORE_MIN}m", "exp_samples": []},
        {"expr": firing, "eval_time": f"{BEFORE_MIN + 75}m", "exp_samples": [{"labels": "{}", "value": 1}]},
    ]
    return promtool(folder, series, tests, [file])
