from math import inf

import pytest

from storage_driver.consensus.core import Core
from storage_driver.consensus.effects import Effects, Start, TermTable
from storage_driver.consensus.hard_state import HardState
from storage_driver.consensus.members import Members, MembersAt
from storage_driver.consensus.messages import LeaderHeartbeat, Outdated, Synced
from storage_driver.consensus.rules import Rules
from storage_driver.errors import ConsensusRefused

CONFIGS = (MembersAt(-1, Members(("a", "b"))),)
EMPTY = Start(HardState(), TermTable((), CONFIGS), 0, 0, 0)


def test_the_next_tick_is_when_something_is_due() -> None:
    core = Core("a", Rules(), EMPTY, 10.0)
    core.tick(10.0, 0.5)
    assert core.next_tick_s() == 13.0
    assert core.tick(12.9, 0.5).send == ()
    assert core.tick(13.0, 0.5).send != ()
    assert Core("a", Rules(elections="manual"), EMPTY, 10.0).next_tick_s() == inf


def test_a_message_of_an_older_term_is_answered_with_the_newer() -> None:
    core = Core("a", Rules(), EMPTY._replace(hard_state=HardState(5)), 0.0)
    assert core.step(1.0, "b", LeaderHeartbeat(4, 0, 0, 1.0)).send == (("b", Outdated(5)),)
    assert core.step(1.0, "b", Synced(4, 900)) == Effects()
    assert core.step(1.0, "b", Outdated(9)).hard_state == HardState(9)


def test_a_group_of_one_leads_at_its_first_timeout() -> None:
    start = EMPTY._replace(table=TermTable((), (MembersAt(-1, Members(("a",))),)))
    core = Core("a", Rules(), start, 0.0)
    core.tick(0.0, 0.0)
    effects = core.tick(2.0, 0.0)
    assert effects.hard_state == HardState(1, "a")
    assert effects.begin_term is not None
    core.appended(2.1, 80)
    assert core.synced(2.2, 80).committed == 80
    assert core.status.ready
    assert core.lease_held(99.0)


def test_an_append_does_not_shorten_the_log_and_members_must_fit() -> None:
    core = Core("a", Rules(), EMPTY._replace(end=100, hard_state=HardState(1)), 0.0)
    with pytest.raises(ValueError, match="the log ends at 100"):
        core.appended(1.0, 99)
    with pytest.raises(ConsensusRefused, match="twice"):
        Core("a", Rules(), EMPTY._replace(table=TermTable((), (MembersAt(-1, Members(("a", "a"))),))), 0.0)


def test_who_resigns_by_hand_does_not_lead_until_asked() -> None:
    start = EMPTY._replace(table=TermTable((), (MembersAt(-1, Members(("a",))),)))
    core = Core("a", Rules(elections="manual"), start, 0.0)
    core.campaign(3.0)
    assert core.status.role == "leader"
    core.resign(4.0)
    assert (core.status.role, core.next_tick_s()) == ("follower", inf)
