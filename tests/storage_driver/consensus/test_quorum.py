from storage_driver.consensus.members import Members
from storage_driver.consensus.quorum import has_majority, kth_largest, majority, on_majority

THREE = Members(("a", "b", "c"))
PAIR = Members(("a", "b"))
WITH_WITNESS = Members(("a", "b"), ("w",))


def test_a_majority_is_more_than_half() -> None:
    assert [majority(voters) for voters in range(1, 6)] == [1, 2, 2, 3, 3]
    assert kth_largest([5, 9, 1], 2) == 5
    assert has_majority(THREE, ("a", "c", "c", "stranger"))
    assert not has_majority(THREE, ("a", "stranger", "a"))


def test_a_majority_of_boxes_has_what_is_committed() -> None:
    assert on_majority(THREE, {"a": 300, "b": 200, "c": 100}, 2) == 200
    assert on_majority(THREE, {"a": 300}, 2) == 0
    assert on_majority(PAIR, {"a": 300, "b": 200}, 2) == 200
    assert on_majority(Members(("a",)), {"a": 300}, 2) == 300


def test_a_witness_stands_for_a_box_only_where_one_copy_is_enough() -> None:
    synced = {"a": 300, "b": 100, "w": 300}
    assert on_majority(WITH_WITNESS, synced, 2) == 100
    assert on_majority(WITH_WITNESS, synced, 1) == 300
    assert on_majority(WITH_WITNESS, {"a": 300, "b": 300, "w": 0}, 2) == 300


def test_learners_do_not_count() -> None:
    assert on_majority(Members(("a", "b"), (), ("l",)), {"a": 300, "l": 300}, 2) == 0
