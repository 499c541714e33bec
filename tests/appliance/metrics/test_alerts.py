"""Every alert rule over the series that a real box sends, before anything has happened and after."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.samples import Sample

from tests.appliance.alerting import NEEDED, promtool, rules_of, samples, written
from tests.ports import free_port

ROOT = Path(__file__).parents[3]
RULES = {alert: rule["expr"] for alert, rule in rules_of("alerts.yml").items()}
FIRST_EVENTS = {  # of counters: what the first one is, and the labels that it has
    "RocketboxGaps": ("rocketbox_uplink_gaps_declared_total", {"class": "missing"}),
    "RocketboxUpdateRolledBack": ("rocketbox_update_total", {"result": "rolled_back"}),
    "RocketboxBoots": ("rocketbox_boots_total", {"reason": "panic"}),
    "RocketboxDeadLetters": ("rocketmq_send_to_dlq_messages_total", {"consumer_group": "billing"}),
}
ABSENT = {"up", "rocketbox_flash_wear_ratio", "rocketbox_disk_full_in_seconds"}  # of the scraper; of some disks
ABSENT |= {
    "rocketbox_uplink_quota_seconds_left",
    "rocketbox_uplink_certificate_expiry_seconds",
    "rocketbox_uplink_alarm",
}  # while none
pytestmark = [pytest.mark.slow, NEEDED]


@pytest.fixture(scope="module")
def series(module_path: Path) -> list[Sample]:
    """What a real box sends that has an uplink, a group, and nothing wrong."""
    data = module_path
    file = data / "box.toml"
    file.write_text(
        f"[listen]\nbroker_port = {free_port()}\nnamesrv_port = {free_port()}\n"
        "[uplink]\ngateway = '127.0.0.1:1'\n[store]\nsegment_mib = 16\n[tls]\nmode = 'enforcing'\n"
    )
    program = [sys.executable, "-m", "appliance"]
    with subprocess.Popen(
        [*program, "serve", "--config", str(file), "--data", str(data)], stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as box:
        try:
            assert box.stdout is not None
            assert box.stdout.readline().startswith("ready ")
            at = ["--namesrv", f"127.0.0.1:{re.findall('namesrv_port = (.*)', file.read_text())[0]}"]
            made = subprocess.run([*program, "groups", "create", "billing", *at, "--data", str(data)], cwd=ROOT)
            assert made.returncode == 0
            said = subprocess.run([*program, "metrics", "--data", str(data)], stdout=subprocess.PIPE, cwd=ROOT)
        finally:
            box.terminate()
    return samples(said.stdout.decode())


def test_every_rule_asks_for_series_that_a_box_sends_before_anything_has_happened(series: list[Sample]) -> None:
    names = {sample.name for sample in series}
    asked = {name for rule in RULES.values() for name in re.findall(r"\b(?:rocketbox|rocketmq|process)_[a-z_]+", rule)}
    assert asked - names - ABSENT <= {"rocketmq_consumer_lag_latency_milliseconds"}  # of groups that have offsets


@pytest.mark.parametrize("alert", FIRST_EVENTS)
def test_the_first_event_of_a_box_is_seen(alert: str, series: list[Sample], tmp_path: Path) -> None:
    name, labels = FIRST_EVENTS[alert]
    (found,) = [one for one in series if one.name == name and labels.items() <= one.labels.items()]
    assert found.value == 0
    absent_before = "_x10 0x50 1x60"  # the box is scraped from the eleventh minute on
    tests: list[dict[str, object]] = [
        {"expr": f"count({RULES[alert]})", "eval_time": "50m", "exp_samples": []},
        {"expr": f"count({RULES[alert]})", "eval_time": "65m", "exp_samples": [{"labels": "{}", "value": 1}]},
    ]
    assert promtool(tmp_path, [written(found, absent_before)], tests) == ""


def test_no_rule_but_that_of_the_clock_speaks_of_a_box_that_is_well(series: list[Sample], tmp_path: Path) -> None:
    inputs = [written(one, f"{one.value:g}x120") for one in series if not one.name.endswith("_created")]
    quiet = [name for name in RULES if name not in ("RocketboxClock", "RocketboxProofOld")]
    tests: list[dict[str, object]] = [
        {"expr": f"count({RULES[name]})", "eval_time": "2h", "exp_samples": []} for name in quiet
    ]
    assert promtool(tmp_path, inputs, tests) == ""


def test_a_condition_is_an_alert(series: list[Sample], tmp_path: Path) -> None:
    inputs = [
        written(one, "_x10 0x20 1x60" if one.labels["id"] == "uplink_down" else "_x10 0x80")
        for one in series
        if one.name == "rocketbox_condition"
    ]
    assert len(inputs) > 20
    labels = '{instance="b", id="uplink_down", code="D310"}'
    tests: list[dict[str, object]] = [
        {
            "expr": RULES["RocketboxCondition"],
            "eval_time": "40m",
            "exp_samples": [{"labels": labels, "value": 1}],
        }
    ]
    assert promtool(tmp_path, inputs, tests) == ""


def test_damage_that_only_the_uplink_met_is_an_alert(tmp_path: Path) -> None:
    met = written(Sample("rocketbox_uplink_alarm", {"name": "damage"}, 1), "_x10 1x60")
    found: list[dict[str, object]] = [{"labels": "{}", "value": 1}]
    test: dict[str, object] = {"expr": f"count({RULES['RocketboxDamage']})", "eval_time": "20m", "exp_samples": found}
    assert promtool(tmp_path, [met], [test]) == ""


NO_TRAFFIC = {  # what an idle box has no series of: topics, groups and refusals there were none of yet
    *("rocketmq_messages_in_total", "rocketmq_messages_out_total", "rocketmq_consumer_lag_messages"),
    *("rocketmq_consumer_lag_latency_milliseconds", "rocketbox_refusals_total", "rocketbox_delayed_messages"),
    *("rocketmq_producer_connections", "rocketmq_consumer_connections"),
}


def test_every_panel_of_the_dashboard_shows_what_a_box_sends(series: list[Sample], tmp_path: Path) -> None:
    panels = json.loads((ROOT / "docs/dashboard.json").read_text())["panels"]
    asked = [(panel["title"], each["expr"]) for panel in panels for each in panel.get("targets", [])]
    names = {sample.name for sample in series}
    grows = ("_total", "_bucket", "_count", "_sum")
    sent = [one for one in series if not one.name.endswith("_created")]
    inputs = [written(one, f"{one.value:g}+{int(one.name.endswith(grows))}x60") for one in sent]
    tests: list[dict[str, object]] = []
    for _, expression in asked:
        needed = set(re.findall(r"\b(?:rocketbox|rocketmq|process)_[a-z_]+", expression))
        assert needed - names <= NO_TRAFFIC | ABSENT
        shown = expression.replace("$__rate_interval", "5m").replace("$box", ".*")
        maybe = needed - names or needed & (NO_TRAFFIC | {"rocketbox_condition"})
        there = f"((count({shown}) or vector(0)) {'>=' if maybe else '>'} bool 0)"
        tests.append({"expr": there, "eval_time": "30m", "exp_samples": [{"labels": "{}", "value": 1}]})
    assert promtool(tmp_path, inputs, tests) == ""


def test_panels_of_the_dashboard_have_places_of_their_own_and_ask_the_chosen_source() -> None:
    panels = json.loads((ROOT / "docs/dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${source}"}, panel["title"]
