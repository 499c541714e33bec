import pytest

from storage_driver.consensus.members import Members, check_change, check_members
from storage_driver.errors import ConsensusRefused

THREE = Members(("a", "b"), ("w",), ("l",))


def test_voters_are_boxes_and_witnesses() -> None:
    assert THREE.voters == ("a", "b", "w")
    assert THREE.all == ("a", "b", "w", "l")
    check_members(THREE)


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        (Members(()), "one box"),
        (Members(("a", "a")), "twice"),
        (Members(("a",), ("w", "v")), "witnesses"),
        (Members(("a" * 17,)), "16 bytes"),
        (Members(("",)), "16 bytes"),
        (Members(tuple(f"m{number}" for number in range(17))), "17 members"),
    ],
)
def test_what_cannot_be_a_group_is_refused(members: Members, reason: str) -> None:
    with pytest.raises(ConsensusRefused, match=reason):
        check_members(members)


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        (Members(("a", "b", "l"), (), ("w",)), "2 voters"),
        (Members(("b",), ("w",), ("l",)), "a leads"),
        (Members(("a", "b", "n"), ("w",), ("l",)), "learner first"),
        (Members(("a", "b"), (), ("l", "w")), "under a new id"),
    ],
)
def test_what_one_step_cannot_do_is_refused(members: Members, reason: str) -> None:
    with pytest.raises(ConsensusRefused, match=reason):
        check_change(THREE, members, "a")


@pytest.mark.parametrize(
    "members",
    [
        Members(("a", "b", "l"), ("w",)),
        Members(("a",), ("w",), ("l",)),
        Members(("a", "b"), (), ("l",)),
        Members(("a", "b"), ("w",), ("l", "m")),
        Members(("a", "b"), ("w",)),
    ],
)
def test_one_voter_at_a_time_and_any_learners_may_change(members: Members) -> None:
    check_change(THREE, members, "a")
