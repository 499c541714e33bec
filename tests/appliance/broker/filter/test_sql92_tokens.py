"""The words of a filter: longest match, comments, and where an error is."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.broker.filter.sql92 import compile_expression
from appliance.broker.filter.sql92_tokens import END, ExpressionError, Token, Tokens


def words(text: str) -> list[tuple[str, str]]:
    tokens, found = Tokens(text), list[tuple[str, str]]()
    while tokens.next.kind != END:
        taken = tokens.take()
        assert text[taken.at : taken.at + len(taken.text)] == taken.text
        found.append((taken.kind, taken.text))
    return found


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a<=1", ["name", "<=", "int"]),
        ("a<>1", ["name", "<>", "int"]),
        ("a< =1", ["name", "<", "=", "int"]),
        ("1.5 .5 5. 1e3 1.e-3", ["float"] * 5),
        ("10L 0l", ["int", "int"]),
        ("007", ["int", "int", "int"]),
        ("1a", ["int", "name"]),
        ("-1", ["-", "int"]),
        ("'it''s' ''", ["string", "string"]),
        ("$a_1 _", ["name", "name"]),
        ("not Not NOT notx", ["NOT", "NOT", "NOT", "name"]),
        ("is null in between and or true false", ["IS", "NULL", "IN", "BETWEEN", "AND", "OR", "TRUE", "FALSE"]),
        ("a/* b */c", ["name", "name"]),
        ("a--b\nc", ["name", "name"]),
        ("a /**/ /* ' */", ["name"]),
        ("", []),
        (" \t\r\n\f", []),
    ],
)
def test_words_are_the_longest_that_fit(text: str, kinds: list[str]) -> None:
    assert [kind for kind, _ in words(text)] == kinds


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("a ! b", 3),
        ("'open", 1),
        ("a /* open", 3),
        ("\u00fc", 1),
        ('"a"', 1),
        ("a = 1;", 6),
        ("a\u00a0b", 2),
        ("a\0", 2),
    ],
)
def test_what_is_no_word_is_named_with_its_column(text: str, column: int) -> None:
    with pytest.raises(ExpressionError, match=f"at column {column}$"):
        words(text)


def test_nothing_behind_the_word_ahead_is_looked_at() -> None:
    tokens = Tokens("a = 1 !!!")
    assert [tokens.take().text for _ in range(2)] == ["a", "="]
    assert tokens.next == Token("int", "1", 4)
    with pytest.raises(ExpressionError, match="column 7"):
        tokens.take()


def test_after_the_end_there_is_only_the_end() -> None:
    tokens = Tokens("a ")
    tokens.take()
    assert [tokens.take().kind for _ in range(3)] == [END] * 3


pieces = st.lists(
    st.sampled_from(["a", "NOT", "1", "2.5", "'x y'", "''''", "<>", "<=", "(", ")", ",", "-", "5L"]), max_size=12
)


@settings(max_examples=50)
@given(pieces, st.sampled_from([" ", "\n", "/* ' */", "--x\n"]))
def test_words_set_apart_come_back_whatever_sets_them_apart(texts: list[str], between: str) -> None:
    assert [text for _, text in words(between.join(texts))] == texts


@pytest.mark.parametrize(
    "text", ["'" + "''" * 9000, "/*" * 9000, "--" * 9000, "a=1 OR " * 2000 + "--" * 9000, "(" * 9000]
)
def test_a_filter_that_is_none_is_refused_at_its_first_wrong_word_however_long_it_is(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ExpressionError):
        compile_expression(text)
    assert time.process_time() - began < 5


def test_signs_that_begin_no_comment_do_not_look_for_its_end() -> None:
    """Each looked through the rest of the text for a line end before: this took minutes."""
    tokens = Tokens("\n" + "--" * 1900 + " " * 4_000_000)
    kinds = [tokens.take().kind for _ in range(3800)]
    assert kinds == ["-"] * 3800
    assert words("a --b\n--c") == [("name", "a"), ("-", "-"), ("-", "-"), ("name", "c")]
