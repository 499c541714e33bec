import pytest

from storage_driver.consensus.core import Core
from storage_driver.consensus.effects import Start, TermTable
from storage_driver.consensus.hard_state import HardState
from storage_driver.consensus.members import Members, MembersAt
from storage_driver.consensus.messages import (
    Append,
    FollowerReply,
    LeaderHeartbeat,
    Match,
    Position,
    PreVote,
    PreVoteReply,
    Synced,
    Unrelated,
    WitnessRow,
    WitnessSynced,
)
from storage_driver.consensus.rules import Rules
from storage_driver.consensus.terms import Row

CONFIGS = (MembersAt(-1, Members(("a", "b"), ("w",))),)
OF_THREE = (MembersAt(-1, Members(("a", "b", "c"))),)
ROWS = (Row(1, 0), Row(2, 100))


def follower(rules: Rules | None = None, committed: int = 50) -> Core:
    core = Core("b", rules or Rules(), Start(HardState(2), TermTable(ROWS, CONFIGS), 0, 300, committed), 0.0)
    core.step(1.0, "a", LeaderHeartbeat(3, 0, -1, 1.0))
    return core


def test_a_log_that_differs_is_cut_to_the_common_point_and_counts_only_then() -> None:
    core = follower()
    assert core.synced(1.1, 300).send == ()
    assert core.step(1.1, "a", Append(3, 300, 50, 3, 300, 2, 0, 0, ())).accepted is None
    effects = core.step(1.2, "a", Match(3, 2, 300, 150, ROWS, CONFIGS, 1000))
    assert effects.cut is not None
    assert (effects.cut.log_offset, effects.cut.below_committed) == (150, False)
    assert core.step(1.3, "a", Append(3, 150, 50, 3, 150, 2, 0, 0, ())).accepted is None
    done = core.cut_done(1.4, 150)
    assert done.send == (("a", Synced(3, 150)),)
    accepted = core.step(1.5, "a", Append(3, 150, 50, 3, 150, 2, 0, 0, ()))
    assert accepted.accepted is not None
    assert accepted.table == TermTable((*ROWS, Row(3, 150)), CONFIGS)
    with pytest.raises(ValueError, match="was not asked for"):
        core.cut_done(1.6, 150)


def test_an_answer_to_an_older_position_cuts_nothing() -> None:
    core = follower()
    assert core.step(1.2, "a", Match(3, 2, 250, 150, ROWS, CONFIGS, 1000)).cut is None
    core.step(1.3, "a", Match(3, 2, 300, 300, ROWS, CONFIGS, 1000))
    assert core.step(1.4, "a", Match(3, 2, 300, 150, ROWS, CONFIGS, 1000)).cut is None  # it matches already


def test_nothing_below_committed_is_cut_but_by_a_persons_will() -> None:
    core = follower(committed=200)
    effects = core.step(1.2, "a", Match(3, 2, 300, 150, ROWS, CONFIGS, 1000))
    assert effects.cut is None
    assert "committed up to 200" in core.status.trouble
    pair = follower(Rules(elections="manual", acknowledge="one"), committed=200)
    cut = pair.step(1.2, "a", Match(3, 2, 300, 150, ROWS, CONFIGS, 1000)).cut
    assert cut is not None
    assert cut.below_committed
    foreign = follower(Rules(elections="manual", acknowledge="one"), committed=200)
    assert foreign.step(1.2, "a", Match(3, 2, 300, 0, (), CONFIGS, 1000)).cut is None


def test_missing_bytes_are_asked_for_and_doubled_ones_are_reported_again() -> None:
    core = follower()
    core.step(1.2, "a", Match(3, 2, 300, 300, ROWS, CONFIGS, 1000))
    core.step(1.25, "a", LeaderHeartbeat(3, 0, 300, 1.25))
    ahead = core.step(1.3, "a", Append(3, 400, 50, 3, 300, 3, 0, 0, ()))
    assert ahead.send == (("a", Position(3, ROWS, 0, 300)),)
    assert core.step(1.3, "a", Append(3, 450, 50, 3, 300, 3, 0, 0, ())).send == ()  # once between heartbeats
    behind = core.step(1.4, "a", Append(3, 250, 50, 2, 100, 2, 0, 250, ()))
    assert behind.accepted is None
    assert behind.send == (("a", Synced(3, 300)),)
    assert behind.committed == 250


def test_lost_bytes_are_noticed_at_a_heartbeat_and_lost_reports_are_repeated() -> None:
    core = follower()
    core.step(1.2, "a", Match(3, 2, 300, 300, ROWS, CONFIGS, 1000))
    first = core.step(1.3, "a", LeaderHeartbeat(3, 100, 400, 1.3))
    again = core.step(1.8, "a", LeaderHeartbeat(3, 100, 400, 1.8))
    assert ("a", FollowerReply(3, 1.3, 300)) in first.send
    assert ("a", Position(3, ROWS, 0, 300)) in again.send


def test_bytes_that_were_never_appended_leave_no_row() -> None:
    core = follower()
    core.step(1.2, "a", Match(3, 2, 300, 300, ROWS, CONFIGS, 1000))
    core.step(1.25, "a", LeaderHeartbeat(3, 0, 300, 1.25))
    assert core.step(1.3, "a", Append(3, 300, 50, 3, 300, 2, 0, 0, ())).table is not None
    asked = core.step(1.4, "a", Append(3, 350, 50, 3, 300, 3, 0, 0, ()))  # the driver dropped the one before
    assert asked.table == TermTable(ROWS, CONFIGS)
    assert asked.send == (("a", Position(3, ROWS, 0, 300)),)


def test_an_empty_log_begins_where_the_leaders_does() -> None:
    core = Core("b", Rules(), Start(HardState(), TermTable((), CONFIGS), 0, 0, 0), 0.0)
    core.step(1.0, "a", LeaderHeartbeat(3, 0, -1, 1.0))
    effects = core.step(1.2, "a", Match(3, 0, 0, 4096, ROWS, CONFIGS, 1000))
    assert effects.cut is not None
    assert effects.cut.restart
    done = core.cut_done(1.3, 4096)
    assert done.table == TermTable(ROWS, CONFIGS)
    assert done.send == (("a", Synced(3, 4096)),)


def test_a_foreign_log_is_left_alone() -> None:
    core = follower()
    core.step(1.2, "a", Unrelated(3, "no term in common"))
    assert "no term in common" in core.status.trouble
    assert core.step(1.3, "a", Match(3, 2, 300, 150, ROWS, CONFIGS, 1000)).cut is None


def test_what_can_be_continued_no_longer_is_told_until_it_goes_on() -> None:
    core = follower()
    core.step(1.2, "a", Match(3, 2, 300, 300, ROWS, CONFIGS, 1000))
    core.step(1.3, "a", Unrelated(3, "the log of a begins at 500, yours agrees up to 300"))
    assert "begins at 500" in core.status.trouble
    assert core.step(1.4, "a", Append(3, 300, 50, 3, 300, 2, 0, 0, ())).accepted is not None, "it was late"
    assert core.status.trouble == ""


def test_a_witness_keeps_the_highest_row() -> None:
    core = Core("w", Rules(copies=1), Start(HardState(), TermTable((), CONFIGS), 0, 0, 0), 0.0)
    first = core.step(1.0, "a", WitnessRow(3, 3, 500))
    assert first.hard_state == HardState(3, "", 3, 500)
    assert first.send == (("a", WitnessSynced(3, 3, 500)),)
    assert core.step(1.1, "a", WitnessRow(3, 3, 400)).send == ()


def test_bytes_are_taken_behind_the_same_term_of_a_log_that_matches() -> None:
    core = follower()
    assert core.step(1.2, "a", Append(3, 300, 50, 3, 300, 3, 0, 0, ())).accepted is None  # the byte before is of term 2
    core.step(1.3, "a", Match(3, 2, 300, 300, ROWS, CONFIGS, 1000))
    assert core.step(1.4, "a", Append(3, 300, 50, 3, 300, 3, 0, 0, ())).accepted is None
    assert core.step(1.5, "a", Append(3, 300, 50, 3, 300, 2, 0, 0, ())).accepted is not None


def test_nobody_hands_on_bytes_of_a_term_that_is_yet_to_come() -> None:
    core = follower()
    core.step(1.1, "a", Match(3, 2, 300, 300, ROWS, CONFIGS, 1000))
    assert core.step(1.2, "a", Append(3, 300, 50, 4, 300, 2, 0, 0, ())).accepted is None
    empty = Core("b", Rules(), Start(HardState(), TermTable((), CONFIGS), 0, 0, 0), 0.0)
    empty.step(1.0, "a", LeaderHeartbeat(3, 0, -1, 1.0))
    assert empty.step(1.1, "a", Match(3, 0, 0, 4096, (*ROWS, Row(4, 200)), CONFIGS, 1000)).cut is None


def test_a_member_remembers_what_its_leader_told_of_committed() -> None:
    core = Core("b", Rules(), Start(HardState(2), TermTable(ROWS, CONFIGS), 0, 300, 50), 0.0)
    assert (core.told_committed, core.heard_s) == (50, None)
    core.step(1.0, "a", LeaderHeartbeat(3, 900, -1, 1.0))
    core.tick(9.0, 0.5)
    core.tick(19.0, 0.5)  # it has become a candidate
    assert (core.told_committed, core.heard_s) == (900, 1.0)
    core.step(20.0, "w", LeaderHeartbeat(4, 400, -1, 20.0))
    assert (core.told_committed, core.heard_s) == (400, 20.0)  # a leader by force has less


def filling() -> Core:
    """A follower of three whose disk is new."""
    return Core("b", Rules(), Start(HardState(filling=True), TermTable((), OF_THREE), 0, 0, 0), 0.0)


def fill(core: Core, committed: int, leader_end: int = 300) -> bool:
    """Let a leader of term 2 ship [0, 200) to it; return whether the member counts itself as filled."""
    core.step(1.0, "a", LeaderHeartbeat(2, committed, -1, 1.0))
    core.step(1.1, "a", Match(2, 0, 0, 0, (), OF_THREE, leader_end))
    core.step(1.2, "a", Append(2, 0, 200, 2, 0, 0, 0, committed, ()))
    core.appended(1.3, 200)
    core.synced(1.4, 200)
    core.step(1.5, "a", LeaderHeartbeat(2, committed, 200, 1.5))
    return not core._state.hard.filling


def test_a_new_disk_counts_once_it_has_all_that_the_old_one_may_have_acknowledged() -> None:
    others = {"a": 2, "c": 1}

    def told(terms: dict[str, int], committed: int, leader_end: int) -> bool:
        core = filling()
        asked = core.connected(0.5, "a").send
        question = next(message.term for _, message in asked if isinstance(message, PreVote))
        for name, term in terms.items():
            core.step(0.6, name, PreVoteReply(term, question, granted=False))
        return fill(core, committed, leader_end)

    assert told(others, committed=200, leader_end=200)
    assert not told(others, committed=200, leader_end=300), "its old disk may have acknowledged up to 300 in this term"
    assert not told({"a": 2}, committed=200, leader_end=200), "c may know a leader of a later term"
    assert not told({"a": 2, "c": 3}, committed=200, leader_end=200), "c knows one"
