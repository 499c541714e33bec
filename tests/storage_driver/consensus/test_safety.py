from storage_driver.consensus import safety
from storage_driver.consensus.hard_state import HardState


def test_a_candidate_needs_the_last_term_first_then_the_length() -> None:
    assert safety.has_all(3, 100, 2, 900)
    assert safety.has_all(3, 100, 3, 100)
    assert not safety.has_all(2, 900, 3, 100)
    assert not safety.has_all(3, 99, 3, 100)


def test_a_witness_asks_for_its_row_and_a_box_for_its_log() -> None:
    assert safety.row_counts(HardState(4, "", 3, 500), 0, 0) == (3, 500)
    assert safety.row_counts(HardState(4), 3, 700) == (3, 700)


def test_a_vote_is_given_once_per_term() -> None:
    assert safety.vote_is_free(HardState(4), "a")
    assert safety.vote_is_free(HardState(4, "a"), "a")
    assert not safety.vote_is_free(HardState(4, "b"), "a")


def test_marks_are_bounded() -> None:
    assert safety.bounded_by_own(300, 200) == 200
    assert safety.counted(900, 500) == 500
    assert not safety.may_commit(199, 200)
    assert safety.may_commit(200, 200)


def test_a_lease_ends_and_a_refusal_ends() -> None:
    assert safety.lease_holds(11.5, 10.0, 1.6, given_up=False)
    assert not safety.lease_holds(11.6, 10.0, 1.6, given_up=False)
    assert not safety.lease_holds(10.5, 10.0, 1.6, given_up=True)
    assert safety.refuses_to_vote(11.9, 10.0, 2.0)
    assert not safety.refuses_to_vote(12.0, 10.0, 2.0)


def test_a_cut_stays_above_committed_unless_a_person_took_it_upon_himself() -> None:
    assert safety.may_cut(100, 100, may_lose=False)
    assert not safety.may_cut(99, 100, may_lose=False)
    assert safety.may_cut(99, 100, may_lose=True)


def test_bytes_continue_a_log_at_its_end_behind_the_same_term() -> None:
    assert safety.follows_on(100, 2, 100, 2)
    assert not safety.follows_on(100, 3, 100, 2)
    assert not safety.follows_on(90, 2, 100, 2)


def test_members_change_once_the_change_before_is_committed() -> None:
    assert safety.may_change_members(500, 400, 450)
    assert not safety.may_change_members(500, 400, 500)
    assert not safety.may_change_members(399, 400, -1)


def test_terms_are_not_used_up() -> None:
    assert safety.may_follow(2, 1)
    assert safety.may_follow(5 << 32, 0), "who has just begun joins an old group"
    assert safety.may_follow((1 << 32) + 7, 7)
    assert not safety.may_follow((1 << 32) + 8, 7)
    assert not safety.may_follow(1 << 62, 0)
    assert not safety.may_follow((1 << 63) - 1, 1)


def test_a_new_disk_votes_where_all_boxes_have_everything_and_none_can_have_voted() -> None:
    assert safety.boxes_have_all(2, 2, has_witness=False, voter_is_filling=True)
    assert not safety.boxes_have_all(2, 2, has_witness=True, voter_is_filling=True)
    assert safety.boxes_have_all(2, 2, has_witness=True, voter_is_filling=False)
    assert not safety.boxes_have_all(2, 3, has_witness=False, voter_is_filling=False)
    assert safety.knows_its_votes(is_new_witness=False, knows_terms=False)
    assert not safety.knows_its_votes(is_new_witness=True, knows_terms=False)
