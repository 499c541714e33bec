import pytest

from storage_driver.consensus.effects import Start, TermTable
from storage_driver.consensus.hard_state import HardState
from storage_driver.consensus.member_state import MemberState
from storage_driver.consensus.members import Members, MembersAt
from storage_driver.consensus.rules import Rules
from storage_driver.consensus.terms import Row
from storage_driver.errors import ConsensusRefused

CONFIGS = (MembersAt(-1, Members(("a", "b"), ("w",))),)


def test_a_vote_file_older_than_the_log_is_refused() -> None:
    with pytest.raises(ConsensusRefused, match="under a new id"):
        MemberState("a", Rules(), Start(HardState(2), TermTable((Row(3, 0),), CONFIGS), 0, 100, 0), 0.0)


def test_a_table_with_rows_above_the_end_is_saved_again_at_once() -> None:
    table = TermTable((Row(1, 0), Row(2, 100)), CONFIGS)
    state = MemberState("a", Rules(), Start(HardState(2), table, 0, 100, 0), 0.0)
    assert state.out.table == TermTable((Row(1, 0),), CONFIGS)
    assert state.is_box
    assert not state.is_witness


def test_a_higher_term_has_no_vote_and_no_leader_yet() -> None:
    state = MemberState("w", Rules(), Start(HardState(2, "a", 2, 50), TermTable((), CONFIGS), 0, 0, 0), 0.0)
    state.leader = "a"
    state.adopt_term(5)
    assert state.out.hard_state == HardState(5, "", 2, 50)
    assert state.status().leader == ""
    assert state.is_witness
