from math import inf

import pytest

from storage_driver.consensus.core import Core
from storage_driver.consensus.effects import Start, TermTable
from storage_driver.consensus.elections import election_timeout, led_before
from storage_driver.consensus.hard_state import HardState
from storage_driver.consensus.members import Members, MembersAt
from storage_driver.consensus.messages import LeaderHeartbeat, Outdated, PreVote, PreVoteReply, Vote, VoteReply
from storage_driver.consensus.rules import Acknowledge, Rules
from storage_driver.consensus.terms import Row
from storage_driver.errors import ConsensusRefused
from tests.group_sim.calm import calm_world, core_of, crash, ends, isolate, led_world, write
from tests.group_sim.schedules import play
from tests.group_sim.world import World

THREE, PAIR = Members(("a", "b", "c")), Members(("a", "b"))
BY_HAND = Rules(elections="manual", acknowledge="both")


def test_the_preferred_member_waits_least() -> None:
    rules = Rules(preferred="a", scale=2.0)
    assert [round(election_timeout("a", rules, random), 2) for random in (0.0, 0.999)] == [4.0, 5.33]
    assert [round(election_timeout("b", rules, random), 2) for random in (0.0, 0.999)] == [5.33, 8.0]
    assert [election_timeout("b", Rules(), random) for random in (0.0, 0.5)] == [2.0, 3.0]


def test_a_group_elects_by_itself_and_again_when_its_leader_dies() -> None:
    world = calm_world(THREE)
    world.run_until(6)
    first = world.leader()
    assert first is not None
    end = write(world, first.name, 3)
    world.run_until(world.now + 0.5)
    crash(first)
    world.roles.pop(first.name)
    world.run_until(world.now + 6)
    second = world.leader()
    assert second is not None
    assert second.disk.end > end


SEEDS = range(8)


def led_without(world: World, *gone: str, within_s: float) -> str:
    """Cut the power of members, return who leads after a while."""
    for name in gone:
        crash(world.members[name])
        world.roles.pop(name)
    world.run_until(world.now + within_s)
    leader = world.leader()
    return leader.name if leader is not None else ""


@pytest.mark.parametrize("preferred", ["", "b"])
def test_a_box_whose_disk_is_full_is_not_elected_while_another_one_can_be(preferred: str) -> None:
    for seed in SEEDS:
        world = led_world(THREE, Rules(preferred=preferred), seed=seed)
        world.members["b"].fill(inf)
        assert led_without(world, "a", within_s=7.5) == "c", f"seed {seed}"
        assert led_without(world, within_s=12) == "c", f"seed {seed}"


@pytest.mark.parametrize("members", [THREE, Members(("b", "c"), ("a",))])
def test_a_box_whose_disk_is_full_leads_where_nobody_else_can_be_elected(members: Members) -> None:
    for seed in SEEDS:
        world = led_world(members, Rules(copies=1 if members.witnesses else 2), leader="b", seed=seed)
        isolate(world, "c")
        world.run_until(world.now + 3)
        write(world, "b")
        world.run_until(world.now + 1)
        world.members["b"].fill(inf)
        crash(world.members["b"])
        world.roles.pop("b")
        world.cuts.clear()
        world.members["b"].start()
        gone = ("a",) if members == THREE else ()
        assert led_without(world, *gone, within_s=20) == "b", f"seed {seed}: c lacks what was acknowledged"


def test_who_stands_back_no_longer_has_its_turn_at_once() -> None:
    table = TermTable((), (MembersAt(-1, THREE),))
    core = Core("b", Rules(), Start(HardState(3), table, 0, 0, 0), 0.0)
    core.tick(0.0, 0.5)
    core.stand_back(True)
    assert (core.next_tick_s(), core.tick(10.9, 0.5).send) == (11.0, ())
    core.stand_back(False)
    assert core.next_tick_s() == 3.0
    assert {to for to, _ in core.tick(10.9, 0.5).send} == {"a", "c"}
    core.stand_back(True)
    core.tick(10.9, 0.5)
    assert core.next_tick_s() == 13.9, "a candidate has given the others their turn"
    alone = Core("b", BY_HAND, Start(HardState(3, "b"), table, 0, 0, 0), 0.0)
    alone.stand_back(True)
    assert alone.next_tick_s() == 0.0, "by hand nobody else would lead"


def test_by_hand_nobody_campaigns_until_asked() -> None:
    world = calm_world(PAIR, BY_HAND)
    world.run_until(30)
    assert world.leader() is None
    member = world.members["b"]
    assert member.order(lambda core: core.campaign(member.clock()))
    world.run_until(world.now + 1)
    assert core_of(world, "b").status.ready
    world.run_until(world.now + 60)
    assert core_of(world, "a").status.leader == "b"


def test_the_one_that_led_goes_on_after_a_restart() -> None:
    world = led_world(PAIR, BY_HAND)
    crash(world.members["a"])
    world.run_until(world.now + 10)
    assert core_of(world, "b").status.role == "follower"
    world.members["a"].start()
    world.run_until(world.now + 6)
    assert core_of(world, "a").status.ready


def test_by_hand_a_member_that_has_more_than_the_one_that_led_campaigns_for_itself() -> None:
    """A leader that is killed may have less on its disk than its follower: neither would ever lead."""
    table = TermTable((Row(1, 0),), (MembersAt(-1, PAIR),))
    for end, granted, kinds in ((200, False, [PreVoteReply, PreVote]), (300, True, [PreVoteReply])):
        core = Core("b", BY_HAND, Start(HardState(1), table, 0, 300, 200), 0.0)
        core.tick(60.0, 0.5)
        sent = [message for _, message in core.step(60.0, "a", PreVote(2, 1, end)).send]
        assert [type(message) for message in sent] == kinds
        assert isinstance(sent[0], PreVoteReply)
        assert sent[0].granted == granted
    voted = core.step(60.1, "a", PreVote(2, 1, 200)).send
    assert any(isinstance(message, PreVote) for _, message in voted)


@pytest.mark.parametrize(("acknowledge", "leads"), [("both", False), ("one", True), ("local", True)])
def test_without_the_other_it_goes_on_only_where_its_own_disk_is_enough(acknowledge: Acknowledge, leads: bool) -> None:
    world = led_world(PAIR, BY_HAND._replace(acknowledge=acknowledge))
    crash(world.members["a"])
    crash(world.members["b"])
    world.members["a"].start()
    world.run_until(world.now + 20)
    assert core_of(world, "a").status.ready == leads


def test_a_forced_leader_goes_on_alone_and_the_old_one_is_cut_when_it_comes_back() -> None:
    world = led_world(PAIR, BY_HAND)
    world.invariants.strict = False
    isolate(world, "a")
    lost = write(world, "a", 3)
    world.run_until(world.now + 3)
    member = world.members["b"]
    assert member.order(lambda core: core.campaign(member.clock(), forced=True))
    assert core_of(world, "b").status.solo
    world.run_until(world.now + 1)
    end = write(world, "b")
    world.run_until(world.now + 0.5)
    assert core_of(world, "b").committed == end
    assert ends(world)["a"] == lost
    world.cuts.clear()
    world.run_until(world.now + 3)
    assert world.disks["a"].log == world.disks["b"].log
    assert not core_of(world, "b").status.solo  # the other disk has everything again


def test_two_that_are_forced_at_once_take_different_terms() -> None:
    world = calm_world(PAIR, BY_HAND)
    for name in ("a", "b"):
        core_of(world, name).campaign(5.0, forced=True)
    assert core_of(world, "a").status.term != core_of(world, "b").status.term


def test_an_election_by_hand_does_not_pass_a_living_leader() -> None:
    world = led_world(THREE)
    with pytest.raises(ConsensusRefused, match="transfer the leadership"):
        core_of(world, "b").campaign(world.members["b"].clock())
    with pytest.raises(ConsensusRefused, match="leads already"):
        core_of(world, "a").campaign(world.members["a"].clock())


def test_a_witness_never_leads() -> None:
    world = calm_world(Members(("a", "b"), ("w",)))
    crash(world.members["a"])
    crash(world.members["b"])
    world.run_until(30)
    assert core_of(world, "w").status.role == "follower"
    with pytest.raises(ConsensusRefused, match="cannot lead"):
        core_of(world, "w").campaign(world.members["w"].clock(), forced=True)


def test_who_voted_for_itself_led_before() -> None:
    assert led_before(HardState(3, "a"), "a")
    assert not led_before(HardState(3, "b"), "a")
    assert not led_before(HardState(), "")


def test_a_box_with_a_new_disk_elects_nobody_who_may_lack_what_it_had() -> None:
    world = led_world(THREE)
    isolate(world, "c")
    world.run_until(world.now + 3)
    write(world, "a", 3)
    world.run_until(world.now + 1)
    for name in ("a", "b"):
        crash(world.members[name])
    world.roles.clear()
    world.replace_disk(world.members["b"])
    world.cuts.clear()
    world.members["b"].start()
    world.run_until(world.now + 20)
    assert world.leader() is None  # c lacks what a and b had acknowledged
    world.members["a"].start()
    world.run_until(world.now + 12)
    assert world.disks["c"].log == world.disks["a"].log == world.disks["b"].log
    assert not world.disks["b"].hard.filling


def test_a_box_with_a_new_disk_does_not_vote_twice_in_a_term_that_it_led_with_a_witness() -> None:
    for seed in (5828, 5348):  # b leads a term by the witness's vote, gets a new disk, and is asked again in that term
        assert play(seed)


def test_a_witness_with_a_new_disk_votes_above_the_terms_of_all_boxes_and_not_before_it_knows_them() -> None:
    members = Members(("a", "b"), ("w",))
    core = Core("w", Rules(), Start(HardState(filling=True), TermTable((), (MembersAt(-1, members),)), 0, 0, 0), 50.0)
    asked = core.step(60.0, "a", Vote(5, 0, 0, transfer=False, filling=True))
    questions = {to: message for to, message in asked.send if isinstance(message, PreVote)}
    assert questions.keys() == {"a", "b"}
    assert ("a", VoteReply(5, granted=False)) in asked.send
    question = questions["a"].term
    core.step(60.1, "a", PreVoteReply(5, question, granted=False))
    core.step(60.1, "b", PreVoteReply(9, question + 1, granted=False))  # to a question of another life
    assert ("a", VoteReply(9, granted=False)) in core.step(60.2, "a", Vote(9, 0, 0, transfer=False, filling=True)).send
    core.step(60.3, "b", PreVoteReply(9, question, granted=False))
    assert ("a", VoteReply(9, granted=False)) in core.step(60.4, "a", Vote(9, 0, 0, transfer=False, filling=True)).send
    granted = core.step(60.5, "a", Vote(10, 0, 0, transfer=False, filling=True))
    assert ("a", VoteReply(10, granted=True)) in granted.send


def test_a_term_that_would_use_up_all_terms_is_ignored() -> None:
    table = TermTable((), (MembersAt(-1, THREE),))
    core = Core("b", Rules(), Start(HardState(3), table, 0, 0, 0), 0.0)
    core.step(5.0, "a", LeaderHeartbeat(3, 0, -1, 5.0))
    for message in (LeaderHeartbeat((1 << 63) - 1, 0, -1, 1.0), Vote(1 << 40, 9, 9, transfer=True), Outdated(1 << 50)):
        effects = core.step(6.0, "c", message)
        assert (effects.hard_state, effects.send) == (None, ())
    assert (core.status.term, core.status.leader) == (3, "a")
