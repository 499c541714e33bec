"""The core with one line of safety removed, each a patch of a named function; the simulator must see every one."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from storage_driver.consensus import elections, leading, safety, vote_file
from storage_driver.consensus.hard_state import HardState
from storage_driver.consensus.member_state import MemberState
from storage_driver.consensus.members import Members
from storage_driver.consensus.quorum import kth_largest, majority
from tests.group_sim import scripts


class Mutation(NamedTuple):
    """One line less. `shapes`: kinds of groups that show it, by number in SHAPES. `first`: the turn to look from."""

    name: str
    owner: Any
    attribute: str
    instead: Callable[..., Any]
    shapes: tuple[int, ...] = (0, 1, 2, 3, 4)
    also: tuple[tuple[Any, str, Callable[..., Any]], ...] = ()
    first: int = 0


def _yes(*_: object, **__: object) -> bool:
    return True


def _no(*_: object, **__: object) -> bool:
    return False


def _forget(state: MemberState, hard: HardState) -> None:
    state.hard = hard


def _start_unheard(self: MemberState, me: str, rules: Any, start: Any, now_s: float) -> None:
    _INIT(self, me, rules, start, now_s)
    self.heard_s = -1e9


def _forget_in_memory(state: MemberState) -> None:
    state.log.forget_unappended()


def _votes_alone(members: Members, synced: dict[str, int], copies: int) -> int:
    return kth_largest((synced.get(name, 0) for name in members.voters), majority(len(members.voters)))


_INIT = MemberState.__init__

SCRIPTED = (  # too rare for chance
    (Mutation("counting commits older terms", safety, "may_commit", _yes), scripts.figure_8),
    (
        Mutation("a start forgets that a leader was heard", MemberState, "__init__", _start_unheard),
        scripts.restart_within_a_lease,
    ),
    (Mutation("two changes of members at once", safety, "may_change_members", _yes), scripts.two_open_changes),
    (
        Mutation("rows of bytes that are gone stay in the file", MemberState, "forget_unappended", _forget_in_memory),
        scripts.row_without_bytes,
    ),
    (
        Mutation(
            "a member with damaged votes votes as if it knew",
            vote_file,
            "after_damage",
            lambda before, least_term: before._replace(term=max(before.term, least_term)),
        ),
        scripts.vote_that_was_damaged,
    ),
)
MUTATIONS = (
    Mutation("a new disk votes as if it knew", safety, "may_elect", _yes, (0, 2), first=250),
    Mutation("a vote for any log", safety, "has_all", _yes),
    Mutation("the longer log wins, not the later term", safety, "has_all", lambda t, e, ot, oe: (e, t) >= (oe, ot)),
    Mutation("a witness forgets its row when it votes", safety, "row_counts", lambda hard, t, e: (t, e), (3,)),
    Mutation("two votes in a term", safety, "vote_is_free", _yes, first=140),
    Mutation("a vote that is not synced", MemberState, "promise", _forget),
    Mutation("voters ignore a living leader", safety, "refuses_to_vote", _no, (0, 1, 2, 3)),
    Mutation("a lease that does not end", safety, "lease_holds", _yes, (0, 1, 2, 3)),
    Mutation(
        "a lease kept after handing over",
        safety,
        "lease_holds",
        lambda now_s, sent_s, lease_s, given_up: now_s < sent_s + lease_s,
        (0, 1, 2, 3),
        first=140,
    ),
    Mutation("committed above the own disk", safety, "bounded_by_own", lambda log_offset, own: log_offset, (0, 1)),
    Mutation("reports before the logs match", safety, "may_report", _yes),
    Mutation(
        "a cut by an old answer",
        safety,
        "answers_this",
        _yes,
        also=((safety, "was_leaders", _no), (safety, "may_match", _yes)),
    ),
    Mutation(
        "a witness counts as a copy", leading, "on_majority", _votes_alone, (2,), ((safety, "witness_counts", _yes),)
    ),
    Mutation(
        "a forced term that others may have", elections, "forced_term", lambda me, term, further=0: term + 1, (5,)
    ),
)


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    """Run with the line removed."""
    with ExitStack() as stack:
        for owner, attribute, instead in ((mutation.owner, mutation.attribute, mutation.instead), *mutation.also):
            stack.enter_context(patch.object(owner, attribute, instead))
        yield
