"""What programs print: columns for people, lines with a priority for the journal."""

from __future__ import annotations

import io
import logging

import pytest

from uplink_spark.console import JournalFormatter, print_table


def test_columns_are_as_wide_as_their_widest_cell_and_lines_end_without_blanks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(["A", "LONG"], [["wide", 1], ["", 20]])
    assert capsys.readouterr().out == "A     LONG\nwide     1\n-       20\n"
    print_table(["A", "B"], [])
    assert capsys.readouterr().out == "A  B\n"


def test_control_characters_of_others_names_reach_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["A"], [["a\x1b[2J"], [None], [1.5]])
    assert capsys.readouterr().out == "A\na?[2J\n-\n1.5\n"


def test_a_log_line_begins_with_its_priority_for_the_journal() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JournalFormatter("logger={}"))
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL, 25):
        handler.handle(logging.LogRecord("g", level, "", 0, "m", None, None))
    lines = stream.getvalue().splitlines()
    assert [line[:3] for line in lines] == ["<7>", "<6>", "<4>", "<3>", "<2>", "<6>"]
    assert lines[0] == "<7>logger=g m"


def test_each_line_of_a_traceback_has_the_priority() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JournalFormatter("{}:"))
    error = ValueError("x")
    handler.handle(logging.LogRecord("g", logging.ERROR, "", 0, "two\nlines", None, (ValueError, error, None)))
    assert stream.getvalue() == "<3>g: two\n<3>lines\n<3>ValueError: x\n"
