"""The catalogue of conditions, its order, and the page that lists them."""

import re
from pathlib import Path

from appliance.health.conditions import CATALOGUE, KINDS, STATES, Condition, documentation, ordered, worst

ROOT = Path(__file__).parents[3]


def test_the_operators_page_has_the_table_of_all_conditions() -> None:
    assert documentation() in (ROOT / "docs/operate.md").read_text()


def test_every_condition_names_an_alert_and_a_test_that_exist() -> None:
    alerts = set(re.findall(r"alert: (\w+)", (ROOT / "docs/alerts.yml").read_text()))
    assert {kind.alert for kind in CATALOGUE} - alerts == set()
    for kind in CATALOGUE:
        file, _, name = kind.test.partition("::")
        test, _, walk = name.removesuffix("]").partition("[")
        text = next((ROOT / "tests/appliance").rglob(file)).read_text()
        assert all(f"def {each}(" in text for each in (test, walk) if each), kind.test


def test_conditions_come_in_the_order_of_the_catalogue_and_the_worst_of_a_kind_first() -> None:
    dead = [Condition("dead_letters", "t", "n", group, mark) for group, mark in (("a", 1), ("b", 9))]
    found = ordered([*dead, Condition("data_given_up", "t", "n"), Condition("log_failed", "t", "n")])
    assert [one.key for one in found] == ["log_failed", "data_given_up", "dead_letters:b", "dead_letters:a"]


def test_every_kind_has_a_state_a_code_and_a_name_of_its_own() -> None:
    assert len(KINDS) == len(CATALOGUE)
    assert {kind.state for kind in CATALOGUE} <= set(STATES)
    assert all(re.fullmatch(r"D\d{3}", kind.code) for kind in CATALOGUE)


def test_the_worst_state_wins() -> None:
    assert worst([]) == "ok"
    assert worst(["read_only", "failing"]) == "read_only"
    assert Condition("dead_letters", "t", "n", "a").to_json() == {
        "id": "dead_letters:a",
        "state": "degraded",
        "code": "D603",
        "text": "t",
        "next": "n",
    }
