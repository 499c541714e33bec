import pytest

from storage_driver.consensus.leading import note_kept
from storage_driver.consensus.members import Members
from storage_driver.consensus.messages import LeaderHeartbeat, Position, Synced, Unrelated
from storage_driver.consensus.roles import PeerProgress
from storage_driver.consensus.rules import LEVEL_BYTES, Rules
from storage_driver.consensus.terms import Row
from storage_driver.errors import ConsensusRefused
from tests.group_sim.calm import core_of, crash, isolate, led_world, write

THREE, WITNESS = Members(("a", "b", "c")), Members(("a", "b"), ("w",))


def test_bytes_are_shipped_ahead_of_their_sync_and_within_one_term() -> None:
    world = led_world(THREE)
    core = core_of(world, "a")
    isolate(world, "b")
    start = core.to_ship("b")[0]
    end = world.disks["a"].end
    core.appended(world.members["a"].clock(), end + 100)
    assert core.to_ship("b") == (start, end + 100)
    message = core.ship("b", 40, 7)
    assert (message.start, message.end, message.crc) == (start, start + 40, 7)
    assert core.to_ship("b") == (start + 40, end + 100)
    with pytest.raises(ValueError, match="61 bytes for b, 60 can be shipped"):
        core.ship("b", 61, 0)
    assert core.to_ship("stranger") == (0, 0)


def test_a_stranger_or_a_foreign_log_gets_nothing() -> None:
    world = led_world(THREE)
    core, now, term = core_of(world, "a"), world.members["a"].clock(), core_of(world, "a").status.term
    assert core.step(now, "stranger", Position(term, (), 0, 0)).send == ()
    (answer,) = core.step(now, "b", Position(term, (Row(9, 50),), 0, 100)).send
    assert isinstance(answer[1], Unrelated)
    assert core.step(now, "b", Position(term, (Row(2, 50), Row(1, 60)), 0, 100)).send == ()


def test_a_follower_behind_the_first_segment_is_told_so() -> None:
    world = led_world(THREE)
    core = core_of(world, "a")
    isolate(world, "b")
    write(world, "a", 5)
    world.run_until(world.now + 0.5)
    end = write(world, "a", 5)
    world.run_until(world.now + 0.5)
    core.retained(end)
    row = Row(core.status.term, 0)
    answers = core.step(world.members["a"].clock(), "b", Position(core.status.term, (row,), 0, 40)).send
    assert [type(message) for _, message in answers] == [Unrelated]


def test_a_leader_tells_at_once_what_is_committed_when_it_is_asked_to() -> None:
    world = led_world(THREE)
    write(world, "a", 1)
    world.run_until(world.now + 2)
    leader = core_of(world, "a")
    told = leader.tell_committed(world.members["a"].clock()).send
    assert {member: message.committed for member, message in told if isinstance(message, LeaderHeartbeat)} == {
        "b": leader.committed,
        "c": leader.committed,
    }
    assert core_of(world, "b").tell_committed(world.members["b"].clock()).send == ()


def test_two_copies_stop_without_the_second_box_and_one_goes_on_with_the_witness() -> None:
    for copies, goes_on in ((2, False), (1, True)):
        world = led_world(WITNESS, Rules(copies=copies))
        crash(world.members["b"])
        world.run_until(world.now + 3)
        end = write(world, "a", 2)
        world.run_until(world.now + 2)
        assert (core_of(world, "a").committed == end) == goes_on
        assert core_of(world, "a").status.role == "leader"
        assert core_of(world, "a").lease_held(world.members["a"].clock())


def test_one_copy_goes_on_with_the_witness_while_the_other_box_is_there_and_takes_nothing() -> None:
    world = led_world(WITNESS, Rules(copies=1))
    core = core_of(world, "a")
    world.run_until(world.now + 3)
    row = {each.member: each.synced for each in core.progress()}["w"]
    end = write(world, "a")
    world.run_until(world.now + 3)
    assert core.committed == end
    assert {each.member: each.synced for each in core.progress()} == {"b": end, "w": row}, "b keeps up"
    world.members["b"].full_until = world.now + 20
    write(world, "a")
    world.run_until(world.now + 3)
    for _ in range(5):
        end = write(world, "a", 2)
        world.run_until(world.now + 0.3)
        assert core.committed == end, "at once from then on"
    world.run_until(world.now + 25)
    progress = {each.member: each.synced for each in core.progress()}
    assert progress["b"] == end
    end = write(world, "a")
    world.run_until(world.now + 1)
    assert core.committed == end
    assert {each.member: each.synced for each in core.progress()}["w"] == progress["w"], "b keeps up again"


def test_who_copies_what_it_missed_is_waited_for_once_it_is_close_to_the_end() -> None:
    box, end = PeerProgress(100.0), 10 * LEVEL_BYTES
    for now_s, synced, kept_s in (
        (100.5, 0, 100.5),
        (101.0, 0, 100.5),  # it is away
        (200.0, end, 100.5),  # it has what there was then, and the leader far more
        (201.0, 2 * end - 1, 100.5),
        (202.0, 2 * end, 100.5),
        (203.0, 3 * end, 203.0),
    ):
        box.synced = synced
        note_kept([box], {100.5: end, 101.0: end, 200.0: 2 * end}.get(now_s, 3 * end), now_s, 2.0)
        assert box.kept_s == kept_s, now_s


def test_what_a_box_and_the_witness_committed_the_other_box_cannot_lead_without() -> None:
    world = led_world(WITNESS, Rules(copies=1))
    crash(world.members["b"])
    world.run_until(world.now + 3)
    end = write(world, "a", 2)
    world.run_until(world.now + 2)
    crash(world.members["a"])
    world.roles.clear()
    world.members["b"].start()
    world.run_until(world.now + 30)
    assert world.leader() is None  # unavailable, not lost
    world.members["a"].start()
    world.run_until(world.now + 8)
    leader = world.leader()
    assert leader is not None
    assert leader.disk.end > end
    assert world.disks["b"].log == world.disks["a"].log


def test_acknowledging_by_the_own_disk_waits_for_nobody() -> None:
    world = led_world(Members(("a", "b")), Rules(elections="manual", acknowledge="both"))
    isolate(world, "b")
    end = write(world, "a")
    world.run_until(world.now + 1)
    core, member = core_of(world, "a"), world.members["a"]
    assert core.committed < end
    world.invariants.strict = False
    assert member.order(lambda core: core.set_acknowledge(member.clock(), "local"))
    assert core.committed == end
    assert member.order(lambda core: core.set_acknowledge(member.clock(), "both"))
    assert core.committed == end


def test_solo_ends_when_the_other_disk_has_everything() -> None:
    world = led_world(Members(("a", "b")), Rules(elections="manual", acknowledge="both"))
    world.invariants.strict = False
    isolate(world, "b")
    end = write(world, "a")
    world.run_until(world.now + 1)
    member = world.members["a"]
    assert member.order(lambda core: core.solo(member.clock()))
    assert core_of(world, "a").committed == end
    world.cuts.clear()
    world.run_until(world.now + 2)
    assert not core_of(world, "a").status.solo
    with pytest.raises(ConsensusRefused, match="does not lead"):
        core_of(world, "b").solo(member.clock())


def test_a_report_above_the_own_end_counts_up_to_the_end() -> None:
    world = led_world(THREE)
    core, member = core_of(world, "a"), world.members["a"]
    end = world.disks["a"].end
    core.step(member.clock(), "b", Synced(core.status.term, end + 1_000_000))
    assert [progress.synced for progress in core.progress() if progress.member == "b"] == [end]


def test_what_two_disks_have_is_known_whatever_committing_waits_for() -> None:
    world = led_world(THREE, Rules(acknowledge="one"))
    core = core_of(world, "a")
    world.run_until(world.now + 1)
    assert core.copied() == core.committed > 0
    isolate(world, "a")
    end = write(world, "a", 3)
    world.run_until(world.now + 0.5)
    assert core.copied() < end == core.committed
    assert core_of(world, "b").copied() == 0, "it does not lead"


def test_a_leader_whose_disk_is_all_that_counts_may_be_told_of_it_later() -> None:
    both = core_of(led_world(THREE), "a")
    assert not both.commits_own_disk
    world = led_world(THREE, Rules(acknowledge="one"))
    core, clock = core_of(world, "a"), world.members["a"].clock
    assert (core.commits_own_disk, core_of(world, "b").commits_own_disk) == (True, False)
    committed, end = core.committed, world.disks["a"].end
    core.note_log(clock(), end + 300, end + 200)
    assert core.to_ship("b")[1] == end + 300
    effects = core.step(clock(), "b", Synced(core.status.term, end + 100))
    assert effects.committed == core.committed == end + 200 > committed
    assert core.copied() == end + 100
    with pytest.raises(ValueError, match="the log ends at"):
        core.note_log(clock(), end, end)


def test_alone_by_order_one_disk_is_enough_until_another_is_close_again() -> None:
    world = led_world(Members(("a", "b")), Rules(elections="manual", acknowledge="one"))
    core = core_of(world, "a")
    isolate(world, "b")
    end = write(world, "a", 3)
    world.run_until(world.now + 0.5)
    assert (core.copied() < end, core.alone) == (True, False)
    assert not core.waits_for_copies
    assert world.members["a"].order(lambda core: core.solo(world.members["a"].clock()))
    assert (core.copied(), core.alone) == (end, True)
    world.cuts.clear()
    world.run_until(world.now + 5)
    assert (core.copied(), core.alone) == (end, False)
