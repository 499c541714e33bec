"""Every parser of a peer's bytes stays within its row of docs/threat-model.md, in steps and in memory."""

from pathlib import Path

import pytest

from tests.costs import peak, steps
from tests.fuzz.parsers import PARSERS, Parser, corpus_of, outcome, table

PAGE = Path(__file__).parent.parent.parent / "docs" / "threat-model.md"
EACH = pytest.mark.parametrize("parser", PARSERS, ids=[row.name.replace(" ", "_") for row in PARSERS])


@EACH
@pytest.mark.slow
def test_the_worst_inputs_cost_no_more_than_the_row_says(parser: Parser) -> None:
    dearest = 0
    for data in parser.worst():
        with peak() as most, steps() as taken:
            said = outcome(parser, data)
        assert taken() <= parser.most_steps, f"{data[:60]!r} ({len(data)} bytes): {said}"
        assert most() <= parser.most_bytes, f"{data[:60]!r} ({len(data)} bytes): {said}"
        dearest = max(dearest, taken())
    assert parser.most_steps <= 4 * dearest, "a bound far above what anything costs says nothing"


@EACH
def test_the_corpus_is_read_or_refused_within_bounds(parser: Parser) -> None:
    paths = sorted(corpus_of(parser).iterdir())
    assert paths, "each parser has some"
    assert sum(path.stat().st_size for path in paths) < 64 << 10, "the corpus stays small"
    for path in paths:
        data = path.read_bytes()
        with steps() as taken:
            outcome(parser, data)
        assert taken() <= parser.most_steps, path.name


def test_the_page_prints_the_rows() -> None:
    page = PAGE.read_text()
    assert table() in page, f"docs/threat-model.md differs; the rows now:\n\n{table()}"
