"""SQL92 filters against the reference's results."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.broker.filter.sql92 import ExpressionError, compile_expression

MATCHES: list[tuple[str, dict[str, str], bool]] = [
    ("a > 5", {"a": "6"}, True),
    ("a > 5", {"a": "6.5"}, False),
    ("a > 5.0", {"a": "6.5"}, True),
    ("a > 5", {"a": "3000000000"}, False),
    ("a > 3000000000", {"a": "4000000000"}, True),
    ("a > 5L", {"a": "6"}, True),
    ("a > 5", {}, False),
    ("a BETWEEN 0 AND 3", {"a": "3"}, True),
    ("a BETWEEN 0 AND 3", {"a": "4"}, False),
    ("a NOT BETWEEN 0 AND 3", {"a": "4"}, True),
    ("a = 'x'", {"a": "x"}, True),
    ("a <> 'x'", {"a": "y"}, True),
    ("a <> 'x'", {}, False),
    ("NOT (a = 'x')", {}, False),
    ("a IS NULL", {}, True),
    ("a IS NULL", {"a": ""}, False),
    ("a IS NOT NULL AND a > 1", {"a": "2"}, True),
    ("(a > 5) IS NULL", {}, True),
    ("a IN ('x','y')", {"a": "y"}, True),
    ("a IN ('x','y')", {"a": "z"}, False),
    ("a NOT IN ('x')", {}, False),
    ("a NOT IN ('x')", {"a": "y"}, True),
    ("a = b", {}, True),
    ("a <> b", {"a": "1"}, True),
    ("a <> b", {"b": "1"}, False),
    ("a > b", {"a": "10", "b": "9"}, True),
    ("a > b", {"a": "x", "b": "9"}, False),
    ("a = TRUE", {"a": "True"}, True),
    ("TRUE = a", {"a": "true"}, False),
    ("a = 5", {"a": "5"}, True),
    ("a = 5", {"a": "+5"}, True),
    ("a = 5", {"a": " 5"}, False),
    ("a = '5'", {"a": "5"}, True),
    ("a = 5", {"a": "5.0"}, False),
    ("a = 5.0", {"a": "5"}, True),
    ("a", {"a": "true"}, False),
    ("NOT a", {"a": "anything"}, True),
    ("NOT a", {}, False),
    ("b > 1 OR a = 'x'", {"b": "zz", "a": "x"}, False),
    ("a = 'x' OR b > 1", {"b": "zz", "a": "x"}, True),
    ("b > 1 OR a = 'x'", {"a": "x"}, True),
    (
        "(TAGS IS NOT NULL AND TAGS IN ('A','B')) AND (n IS NOT NULL AND n BETWEEN 0 AND 3)",
        {"TAGS": "A", "n": "2"},
        True,
    ),
    ("NOT a = 'x'", {"a": "y"}, False),
    ("a = -5", {"a": "-5"}, True),
    ("a > +5", {"a": "6"}, True),
    ("3 < a", {"a": "4"}, True),
    ("3 < a", {"a": "2"}, False),
    ("-a = 5", {"a": "5"}, False),
    ("a = FALSE", {"a": "yes"}, True),
    ("5 = TRUE", {}, False),
    ("a NOT BETWEEN 5 AND 3", {"a": "4"}, True),
    ("a = 'it''s'", {"a": "it's"}, True),
    ("a LIKE 'x%'", {"a": "xx"}, False),
    ("a + 1 = 2", {"a": "1"}, False),
    ("a = 1 2 3", {"a": "1"}, True),
    ("a = 0123", {"a": "0"}, True),
    ("TRUE", {}, True),
    ("NULL", {}, False),
    ("a > 1 = TRUE", {"a": "2"}, True),
    ("a = 1 -- note\n AND b = 2", {"a": "1", "b": "2"}, True),
    ("a /* note */ = 1", {"a": "1"}, True),
    ("A = 'x'", {"a": "x"}, False),
    ("a is not null and not (b in ('q'))", {"a": "1", "b": "r"}, True),
    ("a = 1.", {"a": "1"}, True),
    ("a = .5", {"a": "0.5"}, True),
    ("a = 1e3", {"a": "1000"}, True),
    ("$a_1 = 'x'", {"$a_1": "x"}, True),
    ("a = 'über'", {"a": "über"}, True),
    ("5 > 3", {}, True),
    ("5 > 3.5", {}, True),
    ("a = 'x' AND b > 1 AND c = 'y'", {"a": "x", "c": "n"}, False),
    ("a CONTAINS 'b'", {"a": "abc"}, True),
    ("a contains 'b'", {"a": "x"}, False),
    ("a contains 'B'", {"a": "abc"}, False),
    ("a contains 'b'", {}, False),
    ("a not contains 'b'", {"a": "x"}, True),
    ("a not contains 'b'", {}, False),
    ("NOT (a contains 'b')", {}, True),
    ("NOT a contains 'b'", {"a": "x"}, False),
    ("a contains ''", {"a": "x"}, False),
    ("a not contains ''", {"a": "x"}, False),
    ("a startswith 'ab'", {"a": "abc"}, True),
    ("a not startswith 'ab'", {"a": "abc"}, False),
    ("a startswith 'bc'", {"a": "abc"}, False),
    ("a endswith 'bc'", {"a": "abc"}, True),
    ("a NOT ENDSWITH 'bc'", {"a": "xy"}, True),
    ("a contains 'it''s'", {"a": "it's"}, True),
    ("'abc' contains 'b'", {}, True),
    ("5 contains '5'", {}, False),
    ("(a = 'abc') contains 'a'", {"a": "abc"}, False),
    ("a contains 'b' = TRUE", {"a": "abc"}, True),
    ("a contains 'b' and a endswith 'c'", {"a": "abc"}, True),
    ("a contains 'b' is null", {}, False),
    ("a contains 'b' contains 'c'", {"a": "abc"}, False),
    ("contains = '5' and endswith contains '5'", {"contains": "5", "endswith": "15"}, True),
]

ERRORS = [
    "a = 1 #",
    "a > 9223372036854775808",
    "a > 'x'",
    "a BETWEEN 5 AND 3",
    "a = NULL",
    "a <> NULL",
    "a > 0.0",
    "'x' IN ('x')",
    "a IN (5)",
    "a IN ()",
    "5",
    "'x'",
    "-a",
    "a AND 5",
    "NOT 'x'",
    "TRUE = 5",
    "TRUE = 'x'",
    "TRUE > 5",
    "(a = 1) > 5",
    "a = 1e400",
    "(a = 1",
    "a =",
    "",
    "a = 'x",
    "a IS 5",
    "AND a",
    "a BETWEEN 1",
    "a BETWEEN 'x' AND 'y'",
    "(" * 60 + "a" + ")" * 60,
    "a contains 5",
    "a contains b",
    "a not contains",
    "a contains ('b')",
    "a contains NULL",
    "a contains 'b' > 1",
    "a=1" + " OR a=1" * 10_000,
    "a" + " = TRUE" * 300,
]


@pytest.mark.parametrize(("expression", "properties", "expected"), MATCHES)
def test_an_expression_matches_what_the_reference_matches(
    expression: str, properties: dict[str, str], expected: bool
) -> None:
    assert compile_expression(expression)(properties) is expected


@pytest.mark.parametrize("expression", ERRORS)
def test_what_the_reference_refuses_or_could_hurt_does_not_compile(expression: str) -> None:
    with pytest.raises(ExpressionError):
        compile_expression(expression)


def test_an_error_names_the_place_and_what_was_expected() -> None:
    with pytest.raises(ExpressionError, match="'5' at column 6 where NULL is expected"):
        compile_expression("a IS 5")
    with pytest.raises(ExpressionError, match="'#' at column 7"):
        compile_expression("a = 1 #")


def test_a_failed_expression_fails_again_from_the_cache() -> None:
    for _ in range(2):
        with pytest.raises(ExpressionError):
            compile_expression("a >")


def test_long_flat_chains_compile_and_match() -> None:
    matches = compile_expression(" OR ".join(f"a = '{number}'" for number in range(990)))
    assert matches({"a": "989"})
    assert not matches({"a": "990"})


@pytest.mark.slow
@given(st.text(max_size=60), st.dictionaries(st.sampled_from("abc"), st.text(max_size=12)))
def test_no_text_raises_anything_but_the_expression_error(text: str, properties: dict[str, str]) -> None:
    try:
        matches = compile_expression(text)
    except ExpressionError:
        return
    assert matches(properties) in (True, False)


_WORDS = ["a", "b", "(", ")", "AND", "OR", "NOT", "=", "<>", "<", ">=", "1", "2.5", "'x'", "TRUE", "NULL", "IS", "-"]
_WORDS += ["BETWEEN", "IN", ",", "3000000000"]


@pytest.mark.slow
@given(
    st.lists(st.sampled_from(_WORDS), max_size=14).map(" ".join),
    st.dictionaries(st.sampled_from("ab"), st.sampled_from(["1", "x", "2.5", "true", "-0", "9" * 30, "NaN", "1e5"])),
)
def test_any_sequence_of_words_compiles_or_fails_and_never_raises_later(text: str, properties: dict[str, str]) -> None:
    try:
        matches = compile_expression(text)
    except ExpressionError:
        return
    assert matches(properties) in (True, False)
