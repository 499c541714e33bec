"""Every fault of DLedger 0.3.1 that concerns consensus, as a test of ours.

Of the others, and where they are tested: futures and threads of its RPC (#251, #283; the driver's own tests), offsets
and delay progress after a switch (rocketmq 7790, 3210, 1934; state through the log), queues and key index after a crash
(7355, 1397, 7477; tests/storage_driver, tests/power_cut), a batch of which a prefix is committed (one append here).
"""

import pytest

from storage_driver.consensus.core import Core
from storage_driver.consensus.effects import Start, TermTable
from storage_driver.consensus.hard_state import HardState
from storage_driver.consensus.members import Members, MembersAt
from storage_driver.consensus.messages import LeaderHeartbeat, Position, PreVote, PreVoteReply, Synced, Vote, VoteReply
from storage_driver.consensus.rules import Rules
from storage_driver.consensus.terms import Row
from storage_driver.errors import ConsensusRefused
from tests.group_sim.calm import calm_world, core_of, crash, ends, isolate, led_world, write

THREE = Members(("a", "b", "c"))


def test_a_majority_in_memory_is_not_acknowledged() -> None:
    world = led_world(THREE)
    for name in ("b", "c"):
        world.members[name].stall_until = world.now + 60
    committed = core_of(world, "a").committed
    end = write(world, "a")
    world.run_until(world.now + 1.5)
    assert ends(world) == {"a": end, "b": end, "c": end}  # all have it
    assert core_of(world, "a").committed == committed  # one disk has it


def test_a_power_cut_forgets_no_vote() -> None:
    start = Start(HardState(), TermTable((), (MembersAt(-1, THREE),)), 0, 0, 0)
    core = Core("c", Rules(), start, 0.0)
    effects = core.step(3.0, "a", Vote(1, 0, 0, transfer=False))
    assert effects.hard_state == HardState(1, "a")  # comes before the messages: the driver syncs it first
    assert effects.send == (("a", VoteReply(1, granted=True)),)
    again = Core("c", Rules(), start._replace(hard_state=HardState(1, "a")), 10.0)
    assert again.step(13.0, "b", Vote(1, 0, 0, transfer=False)).send == (("b", VoteReply(1, granted=False)),)


def test_counting_disks_commits_nothing_of_an_older_term() -> None:
    rows = (Row(1, 0), Row(2, 100))
    start = Start(HardState(3), TermTable(rows, (MembersAt(-1, THREE),)), 0, 200, 100)
    core = Core("a", Rules(), start, 0.0)
    core.tick(5.0, 0.0)
    core.tick(9.0, 0.0)
    core.step(9.0, "b", PreVoteReply(3, 4, granted=True))
    core.step(9.0, "b", VoteReply(4, granted=True))
    assert core.status.role == "leader"
    core.step(9.1, "b", Position(4, rows, 0, 200))
    core.appended(9.1, 260)
    assert core.step(9.2, "b", Synced(4, 200)).committed is None  # Raft paper, figure 8
    core.synced(9.3, 260)
    assert core.step(9.4, "b", Synced(4, 260)).committed == 260


def test_a_term_begins_with_a_record_that_commits_what_was_before() -> None:
    """Issue 305: old entries waited for the next write."""
    world = led_world(THREE)
    isolate(world, "c")
    world.run_until(world.now + 3)
    end = write(world, "a")
    world.members["b"].stall_until = world.now + 60
    world.run_until(world.now + 0.3)
    assert ends(world)["b"] == end
    crash(world.members["b"], keep=True)
    crash(world.members["a"])
    world.cuts.clear()
    world.members["b"].stall_until = 0
    world.members["b"].start()
    world.run_until(world.now + 8)  # nobody writes
    assert core_of(world, "b").status.ready
    assert core_of(world, "b").committed > end


def test_the_last_term_of_a_log_is_that_of_its_last_byte_and_not_the_members() -> None:
    """Issues 52 and rocketmq 2178: a poor node with a high term was elected and data was lost."""
    configs = (MembersAt(-1, THREE),)
    poor = Core("a", Rules(), Start(HardState(9), TermTable((Row(1, 0),), configs), 0, 500, 0), 0.0)
    rich = Core("b", Rules(), Start(HardState(3), TermTable((Row(1, 0), Row(3, 100)), configs), 0, 300, 0), 0.0)
    poor.tick(5.0, 0.0)
    asked = [message for to, message in poor.tick(9.0, 0.0).send if to == "b"]
    assert asked == [PreVote(10, 1, 500)]
    (answer,) = rich.step(9.0, "a", asked[0]).send
    assert not answer[1].granted  # type: ignore[union-attr]


def test_committed_is_never_above_the_end_and_nothing_below_it_is_cut() -> None:
    """Issue 316: such a leader never became master."""
    world = led_world(THREE)
    isolate(world, "a")
    kept = core_of(world, "a").committed
    end = write(world, "a", 3)
    world.run_until(world.now + 8)
    assert ends(world)["a"] == end > kept
    world.cuts.clear()
    world.run_until(world.now + 3)
    core = core_of(world, "a")
    assert kept <= core.committed <= world.disks["a"].end
    assert len(set(ends(world).values())) == 1


def test_an_isolated_follower_comes_back_without_disturbing() -> None:
    """Issue 325: it came back with a higher term and was a candidate for ever."""
    world = led_world(THREE)
    term = core_of(world, "a").status.term
    isolate(world, "c")
    world.run_until(world.now + 30)
    world.cuts.clear()
    world.run_until(world.now + 3)
    status = core_of(world, "c").status
    assert (status.role, status.leader, status.term) == ("follower", "a", term)
    assert core_of(world, "a").status.term == term


def test_a_committed_offset_is_believed_only_for_a_log_that_matches() -> None:
    """Pull request 278: the commit index was taken without checking."""
    start = Start(HardState(2), TermTable((Row(1, 0), Row(2, 100)), (MembersAt(-1, THREE),)), 0, 300, 100)
    core = Core("c", Rules(), start, 0.0)
    effects = core.step(1.0, "a", LeaderHeartbeat(3, 250, -1, 1.0))
    assert effects.committed is None
    assert ("a", Position(3, start.table.rows, 0, 300)) in effects.send


def test_a_new_or_wiped_follower_is_filled_without_a_write_and_from_the_leaders_first_byte() -> None:
    """Issues 61 and rocketmq 1778."""
    founder, group = Members(("a",)), Members(("a",), (), ("b",))
    world = led_world(founder, Rules(acknowledge="majority"))
    write(world, "a", 5)
    world.run_until(world.now + 0.5)
    leader = world.members["a"]
    assert leader.order(lambda core: core.propose_members(leader.clock(), group))
    world.add_member("b", group).start()
    world.run_until(world.now + 2)
    assert ends(world)["b"] == ends(world)["a"]


def test_nobody_takes_over_who_lags() -> None:
    """Pull request 106: after a transfer to a preferred leader that lagged nobody served."""
    world = led_world(THREE)
    isolate(world, "c")
    world.run_until(world.now + 3)
    core, clock = core_of(world, "a"), world.members["a"].clock()
    with pytest.raises(ConsensusRefused, match="c is not connected"):
        core.transfer(clock, "c")
    assert core.status.ready
    world.members["b"].full_until = world.now + 60
    write(world, "a")
    world.run_until(world.now + 0.1)
    leader = world.members["a"]
    assert leader.order(lambda core: core.transfer(leader.clock(), "b"))
    assert not core_of(world, "a").status.ready
    world.run_until(world.now + 3)
    assert core_of(world, "a").status.ready  # given up after 2 s; it leads as before


def test_a_vote_of_an_old_term_is_refused_and_told_the_newer_one() -> None:
    """Pull request 247: a vote with a small term was repeated for ever."""
    start = Start(HardState(5), TermTable((), (MembersAt(-1, THREE),)), 0, 0, 0)
    core = Core("c", Rules(), start, 0.0)
    assert core.step(3.0, "a", Vote(4, 9, 999, transfer=False)).send == (("a", VoteReply(5, granted=False)),)


def test_two_boxes_and_a_witness_are_enough() -> None:
    """RIP-44: three nodes at least."""
    world = calm_world(Members(("a", "b"), ("w",)), Rules(copies=1))
    world.run_until(8)
    leader = world.leader()
    assert leader is not None
    other = "b" if leader.name == "a" else "a"
    crash(world.members[other])
    world.run_until(world.now + 3)
    end = write(world, leader.name)
    world.run_until(world.now + 1)
    assert core_of(world, leader.name).committed == end
