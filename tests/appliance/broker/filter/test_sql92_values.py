"""Comparisons of SQL92 filters against Java's rules; the prepared forms against the general one."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.broker.filter.sql92_values import (
    INT32,
    INT64,
    Incomparable,
    Value,
    double_of,
    equal,
    equal_text,
    int_of,
    order,
    ordered_text,
)

FAILS = "fails"


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("-0", 0), ("+7", 7), ("007", 7), ("2147483647", 2**31 - 1), ("-2147483648", -(2**31))],
)
def test_whole_numbers_are_read_as_java_does(text: str, value: int) -> None:
    assert int_of(text, INT32) == value


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "1.0", "0x1", "1L", "--1", "+", "2147483648", "-2147483649", "1_0", "\u00b2"]
)
def test_what_java_refuses_as_a_whole_number_compares_with_nothing(text: str) -> None:
    with pytest.raises(Incomparable):
        int_of(text, INT32)


def test_a_text_of_a_million_digits_is_refused_before_it_is_read() -> None:
    with pytest.raises(Incomparable):
        int_of("9" * 1_000_000, INT64)


def test_a_million_digits_that_end_in_a_letter_are_no_fraction_at_first_sight() -> None:
    """The place of the point is tried once, not once for each digit, or this never ends."""
    with pytest.raises(Incomparable):
        double_of("1" * 1_000_000 + "x")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        (" 1.5 ", 1.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("-1E-2", -0.01),
        ("1d", 1.0),
        ("1.5F", 1.5),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("1e400", math.inf),
        ("NaN", math.inf),
    ],
)
def test_fractions_are_read_as_java_does(text: str, value: float) -> None:
    assert double_of(text) == value


@pytest.mark.parametrize("text", ["", ".", "e5", "1e", "inf", "nan", "infinity", "1_0", "1dd", "0x1p3x", "1,5", "--1"])
def test_what_java_refuses_as_a_fraction_compares_with_nothing(text: str) -> None:
    with pytest.raises(Incomparable):
        double_of(text)


numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, 1, 2**31, -(2**31) - 1]), st.floats(allow_nan=False)
)
texts = st.one_of(st.text(max_size=4), numbers.map(str), st.sampled_from(["", " 7 ", "NaN", "1d", "true", "abc"]))
constants = st.one_of(numbers, st.text(max_size=4))


def outcome(call: object, *arguments: object) -> object:
    try:
        return call(*arguments)  # type: ignore[operator]
    except Incomparable:
        return FAILS


@settings(max_examples=80)
@given(texts, constants)
def test_a_prepared_equality_says_what_the_general_one_says(text: str, constant: str | int | float) -> None:
    assert outcome(equal_text("p", constant), {"p": text}) == outcome(equal, text, constant)
    assert equal_text("p", constant)({}) is None


@settings(max_examples=80)
@given(texts, numbers, st.sampled_from([">", ">=", "<", "<="]))
def test_a_prepared_comparison_says_what_the_general_one_says(text: str, number: int | float, sign: str) -> None:
    found = outcome(order, text, number)
    wanted = found if found == FAILS else {">": found > 0, ">=": found >= 0, "<": found < 0, "<=": found <= 0}[sign]  # type: ignore[operator]
    assert outcome(ordered_text("p", sign, number), {"p": text}) == wanted
    assert ordered_text("p", sign, number)({}) is None


@settings(max_examples=60)
@given(numbers, numbers)
def test_order_turns_around_and_agrees_with_equality(a: int | float, b: int | float) -> None:
    assert order(a, b) == -(order(b, a) or 0)
    assert (order(a, b) == 0) == equal(a, b)


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (None, None, True),
        (None, "x", None),
        ("x", None, False),
        ("x", "x", True),
        ("1", "1.0", False),
        (1, 1.0, True),
        (True, True, True),
        (True, 1, False),
        ("TRUE", True, True),
        ("no", True, False),
        ("no", False, True),
        (True, "true", FAILS),
        ("x", 1, FAILS),
        ("1.0", 1, FAILS),
        ("1", 1.0, True),
        ("2147483648", 5, FAILS),
        ("2147483648", 2**31, True),
    ],
)
def test_equality_has_three_values_and_failures(left: Value, right: Value, result: object) -> None:
    assert outcome(equal, left, right) == result
