"""Rules of configuration values: borders, wrong kinds, and texts whose sentence continues `KEY = VALUE:`."""

import math
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.configuration.config_rules import (
    Choice,
    Flag,
    Many,
    Network,
    Real,
    Record,
    Rule,
    Text,
    Whole,
    value_from_text,
)


@dataclass(frozen=True)
class Pair:
    network: str
    port: int = 7


RECORD = Record(
    Pair, {"from": Network(), "port": Whole(1, 9)}, needed=frozenset({"from"}), attributes={"from": "network"}
)


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (Whole(1, 9), [1, 9], [0, 10, True, 1.0, "1", None, [], 1 << 200]),
        (Real(0, 0.5), [0, 0.5, 0.0], [0.51, -0.01, True, "0", math.nan, math.inf, None]),
        (Flag(), [True, False], [0, 1, "true", None]),
        (Text(r"[a-z]{1,3}", "1 to 3 letters"), ["a", "abc"], ["", "abcd", "a\n", "A", 1, None, ["a"]]),
        (Choice(("on", "off")), ["on"], ["ON", "", 1, None, ["on"], {}]),
        (Network(), ["10.1.0.0/16", "10.1.2.3", "10.1.2.3/8", "2001:db8::/32"], ["10.1", "x", "10.0.0.0/33", "", 7]),
        (Many(Whole(1, 9), 2), [[], [1], (1, 9)], [[1, 2, 3], [0], "11", {1: 2}, 1]),
        (RECORD, [{"from": "10.0.0.0/8"}], [{}, {"port": 1}, {"from": "x"}, {"from": "10.0.0.0/8", "to": 1}, [], "x"]),
    ],
)
def test_a_rule_takes_what_it_says_and_nothing_else(rule: Rule, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        rule.read(value)
    for value in bad:
        with pytest.raises(ValueError, match=r"^(must be|unknown key|.* is missing|.* items|.* = .*:|.*; allow)"):
            rule.read(value)


def test_what_a_record_holds_reaches_its_attributes_and_a_fault_inside_names_its_key() -> None:
    assert RECORD.read({"from": "10.0.0.0/8", "port": 9}) == Pair("10.0.0.0/8", 9)
    assert RECORD.read({"from": "::/0"}) == Pair("::/0")
    with pytest.raises(ValueError, match="port = 99: must be 1 to 9"):
        RECORD.read({"from": "::/0", "port": 99})
    with pytest.raises(ValueError, match="unknown key 'prot'; known keys: from, port"):
        RECORD.read({"prot": 1})


def test_a_whole_number_for_a_real_one_is_a_float() -> None:
    assert isinstance(Real(0, 5).read(3), float)


@pytest.mark.parametrize(
    ("rule", "text", "value"),
    [
        (Whole(0, 99), "42", 42),
        (Flag(), "true", True),
        (Text(), '"quoted"', '"quoted"'),  # texts are taken as they are
        (Text(), "true", "true"),
        (Choice(("a", "b")), "b", "b"),
        (Many(Text()), '["a", "b"]', ("a", "b")),
        (Network(), "10.0.0.0/8", "10.0.0.0/8"),
        (RECORD, '{ from = "10.0.0.0/8", port = 2 }', Pair("10.0.0.0/8", 2)),
    ],
)
def test_a_text_means_what_the_rule_wants(rule: Rule, text: str, value: object) -> None:
    assert value_from_text(rule, text) == value


@pytest.mark.parametrize("text", ["", "abc", "1 2", "[", "'", "0x", "1979-05-27", "{ a = 1", "yes"])
def test_a_text_that_is_no_value_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        value_from_text(Whole(0, 9), text)


@settings(max_examples=25)
@given(st.text(max_size=20))
def test_any_text_is_a_value_or_a_value_error(text: str) -> None:
    for rule in (Whole(0, 9), Real(0, 1), Flag(), Many(Whole(0, 9)), RECORD, Network()):
        try:
            value_from_text(rule, text)
        except ValueError:  # and nothing else
            continue
