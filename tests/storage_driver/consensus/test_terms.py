import random

import pytest

from storage_driver.consensus.terms import (
    Row,
    are_rising,
    common_point,
    row_at,
    row_end,
    rows_below,
    term_below,
    with_row,
)

ROWS = (Row(1, 0), Row(3, 100), Row(4, 250))


def test_the_term_of_a_byte_is_that_of_the_newest_row_that_begins_at_or_below_it() -> None:
    assert [term_below(ROWS, at) for at in (0, 1, 100, 101, 250, 251, 900)] == [0, 1, 1, 3, 3, 4, 4]
    assert [row_at(ROWS, at).term for at in (0, 99, 100, 250, 900)] == [1, 1, 3, 4, 4]
    assert row_at(ROWS[1:], 50) == Row(0, 0)


def test_a_row_ends_where_the_next_begins_or_where_the_log_ends() -> None:
    assert [row_end(ROWS, term, 900) for term in (1, 3, 4)] == [100, 250, 900]
    assert row_end(ROWS, 3, 200) == 200


def test_a_cut_takes_the_rows_without_bytes() -> None:
    assert rows_below(ROWS, 250) == ROWS[:2]
    assert rows_below(ROWS, 251) == ROWS
    assert rows_below(ROWS, 0) == ()


def test_a_new_row_replaces_rows_without_bytes_and_its_term_rises() -> None:
    assert with_row(ROWS, Row(6, 250)) == (*ROWS[:2], Row(6, 250))
    with pytest.raises(ValueError, match="term 4 at 300 after term 4"):
        with_row(ROWS, Row(4, 300))


def test_only_rising_rows_are_a_table() -> None:
    assert are_rising(ROWS)
    assert are_rising(())
    assert not are_rising((Row(1, 0), Row(1, 10)))
    assert not are_rising((Row(1, 10), Row(2, 10)))
    assert not are_rising((Row(0, 0),))
    assert not are_rising((Row(1, -1),))


def test_the_common_point_is_the_end_of_the_newest_common_row_in_the_shorter_log() -> None:
    assert common_point(ROWS, 400, ROWS, 300) == 300
    assert common_point(ROWS, 400, ROWS[:2], 200) == 200
    assert common_point(ROWS, 400, (*ROWS[:2], Row(5, 300)), 350) == 250  # ours ends its term 3 earlier
    assert common_point(ROWS, 400, (Row(2, 50),), 350) is None
    assert common_point(ROWS, 400, (Row(2, 0),), 350) == 0
    assert common_point(ROWS, 400, (), 0) is None


def test_the_common_point_is_what_a_comparison_of_all_bytes_finds() -> None:
    seed = random.randrange(1 << 32)
    pick = random.Random(seed)
    for _ in range(500):
        logs: list[list[tuple[int, int]]] = [[(1, 0)]]  # bytes as (term, number); a term continues one log alone
        for term in range(2, pick.randrange(3, 9)):
            base = pick.choice(logs)
            base = base[: pick.randrange(1, len(base) + 1)]
            logs.append(base + [(term, number) for number in range(pick.randrange(1, 6))])
        ours, theirs = pick.choice(logs), pick.choice(logs)
        ours, theirs = ours[: pick.randrange(1, len(ours) + 1)], theirs[: pick.randrange(1, len(theirs) + 1)]
        same = next((at for at, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), None)
        expected = min(len(ours), len(theirs)) if same is None else same
        assert common_point(_rows(ours), len(ours), _rows(theirs), len(theirs)) == expected, seed


def _rows(log: list[tuple[int, int]]) -> tuple[Row, ...]:
    return tuple(Row(term, at) for at, (term, _) in enumerate(log) if at == 0 or log[at - 1][0] != term)
