import pytest

from storage_driver.consensus.effects import Start, TermTable
from storage_driver.consensus.hard_state import HardState
from storage_driver.consensus.log_state import LogState
from storage_driver.consensus.members import Members, MembersAt
from storage_driver.consensus.terms import Row

ONE, TWO = Members(("a",)), Members(("a",), (), ("b",))
TABLE = TermTable((Row(1, 0), Row(3, 100)), (MembersAt(-1, ONE),))


def test_a_start_ignores_rows_and_members_of_bytes_that_are_gone() -> None:
    table = TermTable((*TABLE.rows, Row(7, 200)), (*TABLE.configs, MembersAt(200, TWO)))
    log = LogState(Start(HardState(7), table, 0, 200, 900))
    assert log.table == TABLE
    assert (log.last_term, log.members, log.committed, log.synced) == (3, ONE, 200, 200)


def test_members_are_in_force_when_their_record_is_appended_and_no_longer_after_a_cut() -> None:
    log = LogState(Start(HardState(3), TABLE, 0, 200, 0))
    log.add_config(MembersAt(200, TWO))
    assert log.members == ONE
    log.extend(250)
    assert log.members == TWO
    assert log.last_change == 200
    log.cut(200)
    assert (log.members, log.table) == (ONE, TABLE)


def test_a_row_without_bytes_goes_with_the_next() -> None:
    log = LogState(Start(HardState(3), TABLE, 0, 200, 0))
    log.begin_row(Row(5, 200))
    assert log.last_term == 3
    log.forget_unappended()
    assert log.table == TABLE
    log.begin_row(Row(6, 200))
    log.extend(210)
    assert log.last_term == 6
    with pytest.raises(ValueError, match="term 6 at 300"):
        log.begin_row(Row(6, 300))


def test_an_empty_log_begins_where_it_is_told() -> None:
    log = LogState(Start(HardState(), TermTable((), (MembersAt(-1, TWO),)), 0, 0, 0))
    log.restart(150, TABLE.rows, (MembersAt(-1, ONE), MembersAt(120, TWO)))
    assert (log.first, log.end, log.synced, log.last_term, log.members) == (150, 150, 150, 3, TWO)
