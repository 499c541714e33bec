"""Each line of safety, removed, shows: in a seed, in a script, or in the named test of what it is for."""

from collections import deque
from collections.abc import Callable

import pytest

from storage_driver.consensus import elections, leading, safety
from storage_driver.consensus.member_state import MemberState
from tests.group_sim.mutations import MUTATIONS, SCRIPTED, Mutation, mutated
from tests.group_sim.records import Fault
from tests.group_sim.schedules import SHAPES, play
from tests.storage_driver.consensus import (
    test_dledger_faults,
    test_elections,
    test_following,
    test_leading,
    test_leaving,
)

MOST_SEEDS, MOST_TRIES = 2000, 12


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_seed_fails_without_the_line(mutation: Mutation) -> None:
    turns = range(mutation.first, mutation.first + MOST_SEEDS)
    seeds = (turn * len(SHAPES) + shape for turn in turns for shape in mutation.shapes)
    with mutated(mutation), pytest.raises(Fault):
        deque(map(play, seeds), maxlen=0)


@pytest.mark.slow
@pytest.mark.parametrize(("mutation", "script"), SCRIPTED, ids=lambda each: getattr(each, "name", ""))
def test_a_script_fails_without_the_line_and_not_with_it(mutation: Mutation, script: Callable[[int], bool]) -> None:
    came = list(map(script, range(MOST_TRIES)))
    assert any(came)
    with mutated(mutation), pytest.raises(Fault):
        deque(map(script, range(MOST_TRIES)), maxlen=0)


def _at_once(state: MemberState, now_s: float) -> None:
    elections._begin(state, now_s, pre=False)


NAMED = (
    (
        Mutation("bytes behind any term", safety, "follows_on", lambda start, term, end, own_term: start == end),
        test_following.test_bytes_are_taken_behind_the_same_term_of_a_log_that_matches,
    ),
    (
        Mutation("bytes before the logs match", safety, "may_take", lambda *_: True),
        test_following.test_a_log_that_differs_is_cut_to_the_common_point_and_counts_only_then,
    ),
    (
        Mutation("a cut below committed", safety, "may_cut", lambda *_: True),
        test_following.test_nothing_below_committed_is_cut_but_by_a_persons_will,
    ),
    (
        Mutation("a witness with a new disk votes at once", safety, "knows_its_votes", lambda *_: True),
        test_elections.test_a_witness_with_a_new_disk_votes_above_the_terms_of_all_boxes_and_not_before_it_knows_them,
    ),
    *(
        (
            Mutation(name, safety, attribute, lambda *_, **__: True),
            test_following.test_a_new_disk_counts_once_it_has_all_that_the_old_one_may_have_acknowledged,
        )
        for name, attribute in (
            ("a new disk is filled before what its old one acknowledged in this term", "has_term_of_old_disk"),
            ("a new disk is filled in a term that may be over", "is_newest"),
        )
    ),
    (
        Mutation("a report above the leader's end", safety, "counted", lambda reported, end: reported),
        test_leading.test_a_report_above_the_own_end_counts_up_to_the_end,
    ),
    (
        Mutation("no pre-vote", elections, "on_timeout", _at_once),
        test_dledger_faults.test_an_isolated_follower_comes_back_without_disturbing,
    ),
    (
        Mutation("no check of the quorum", leading, "lost_quorum", lambda *_: False),
        test_leaving.test_a_leader_without_a_majority_steps_down_and_has_no_lease_before,
    ),
)


@pytest.mark.parametrize(("mutation", "test"), NAMED, ids=lambda each: getattr(each, "name", ""))
def test_the_named_test_fails_without_the_line(mutation: Mutation, test: Callable[[], None]) -> None:
    test()
    with mutated(mutation), pytest.raises(AssertionError):
        test()
