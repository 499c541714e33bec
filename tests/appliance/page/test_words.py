"""Figures and texts as the page shows them."""

from __future__ import annotations

import pytest

from appliance.page import words
from tests.costs import peak


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "–"), (0, "0 s"), (0.25, "250 ms"), (59, "59 s"), (90, "1 min"), (5400, "1.5 h"), (200_000, "2.3 d")],
)
def test_durations_have_the_unit_that_matters(seconds: float | None, shown: str) -> None:
    assert words.span(seconds) == shown


def test_sizes_counts_and_rates_are_short() -> None:
    assert [words.size(n) for n in (0, 1023, 1536, 20 << 20, 3 << 40)] == [
        *("0 B", "1023 B", "1.5 KiB", "20 MiB", "3.0 TiB"),
    ]
    assert [words.count(n) for n in (1234567, 25_000_000)] == ["1\u202f234\u202f567", "25.0 M"]
    assert [words.rate(n) for n in (0, 0.25, 7.26, 1234.5)] == ["0", "0.25", "7.3", "1\u202f234"]


def test_curves_stay_in_their_box_and_break_where_nothing_is_known() -> None:
    assert words.curve([]) == words.curve([None, None]) == ""
    assert words.curve([0, 5, 10]) == "M0.0 27.0L40.0 14.5L80.0 2.0H120.0"
    assert words.curve([None, 1.0, None]) == "M40.0 2.0H80.0"
    assert words.curve([1.0, None, 1.0]).count("M") == 2
    assert words.curve([0, 0], closed=True) == "M0.0 27.0L60.0 27.0H120.0V28H0.0Z"
    assert words.curve([0.5], top=1.0) == "M0.0 14.5H120.0"


def test_bodies_are_shown_as_what_they_are() -> None:
    assert words.body_text(b'{"a":1}') == ("JSON", '{\n  "a": 1\n}')
    assert words.body_text("grün\n".encode()) == ("text", "grün\n")
    kind, text = words.body_text(bytes(range(20)))
    assert kind == "bytes"
    assert text.splitlines()[0].startswith("000000  00 01 02")
    assert words.body_text(b"[" * 100_000)[0] == "text"  # nested too deep for a parser


def test_a_body_cut_within_a_letter_is_still_a_text() -> None:
    assert words.body_text("x€€€".encode(), 6) == ("text", "x€")
    assert words.body_text(("ü" * words.PREVIEW_BYTES).encode()[1:])[0] == "bytes"  # it begins within one
    assert words.body_text("€".encode()[:2])[0] == "bytes"  # nobody cut it


def test_half_a_surrogate_pair_in_json_is_shown_as_it_was_written() -> None:
    kind, text = words.body_text(b'{"a":"\\ud800"}')
    assert (kind, text.encode()) == ("JSON", b'{\n  "a": "\\ud800"\n}')


def test_commands_are_set_as_code_and_markup_stays_text() -> None:
    assert words.commands("run `a <b>` & see") == "run <code>a &lt;b&gt;</code> &amp; see"
    assert words.commands("one ` alone") == "one ` alone"


def test_json_that_indents_would_blow_up_is_shown_as_it_came() -> None:
    deep = "[" * 500 + ",".join(["1"] * 30_000) + "]" * 500
    with peak() as most:
        assert words.body_text(deep.encode()) == ("JSON", deep)
    assert most() < 4 << 20
