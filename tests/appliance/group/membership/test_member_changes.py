"""Changes of the members go step by step."""

import pytest

from appliance.group.membership.member_changes import joined, removed
from storage_driver.consensus.members import Members, check_change
from storage_driver.errors import ConsensusRefused

PAIR = Members(("a", "b"))
NEW = "d=h:10912"


def test_a_box_copies_the_log_before_it_votes_and_a_witness_votes_at_once() -> None:
    learns = joined(PAIR, NEW)
    assert learns == Members(("a", "b"), (), ("d",), (NEW,))
    votes = joined(learns, NEW)
    assert votes == Members(("a", "b", "d"), (), (), (NEW,))
    assert joined(votes, NEW) is None
    witness = joined(PAIR, "w=h:10912 witness")
    assert witness == Members(("a", "b"), ("w",), (), ("w=h:10912 witness",))
    for old, new in ((PAIR, learns), (learns, votes), (PAIR, witness)):
        check_change(old, new, "a")


def test_who_is_removed_is_gone_from_every_list() -> None:
    full = Members(("a", "b", "d"), ("w",), ("e",), (NEW, "e=h:10912"))
    assert removed(full, "d") == Members(("a", "b"), ("w",), ("e",), ("e=h:10912",))
    assert removed(full, "e") == Members(("a", "b", "d"), ("w",), (), (NEW,))
    assert removed(full, "w").witnesses == ()


@pytest.mark.parametrize(
    ("members", "text", "words"),
    [(PAIR, "d", "does not name a member"), (Members(("a", "b", "c"), (), ("e",)), NEW, "remove one first")],
)
def test_what_cannot_join_is_refused(members: Members, text: str, words: str) -> None:
    with pytest.raises(ConsensusRefused, match=words):
        joined(members, text)


def test_a_stranger_is_not_removed() -> None:
    with pytest.raises(ConsensusRefused, match="x is not a member; these are: a, b"):
        removed(PAIR, "x")
