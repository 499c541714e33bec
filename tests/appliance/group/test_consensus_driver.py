"""Members over real stores and links: what both disks have is acknowledged, and nothing else."""

import json
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from appliance.group.copies.log_copy import LogShrunk
from appliance.group.driver import CopyCount, GroupRefused
from appliance.group.event_queue import DriverEvent
from appliance.group.leadership import LEADER
from appliance.group.links.frames import HELLO
from appliance.group.links.link_tls import LinkTls
from appliance.group.links.message_frames import encode_message
from storage_driver.consensus.effects import Effects
from storage_driver.consensus.hard_state import HardState
from storage_driver.consensus.messages import LeaderHeartbeat, Position, Synced, Vote
from storage_driver.consensus.terms import Row
from storage_driver.errors import Full
from tests.appliance.group.certificates import certificates, needs_openssl
from tests.appliance.group.members import MANUAL, Group, RunningMember, group
from tests.storage_driver.test_store import message
from tests.waiting import until
from uplink_spark.wire.tls import TlsStream

pytestmark = [pytest.mark.slow, needs_openssl]


async def pair(made: Group) -> tuple[RunningMember, RunningMember]:
    """Start two members, let the first one lead."""
    a, b = await made.start("a", "b")
    await until(lambda: a.driver.links.statistics().linked)
    await a.driver.orders.promote()
    await until(a.leads)
    return a, b


def same(one: RunningMember, other: RunningMember) -> bool:
    """Tell whether two logs end and are committed alike."""
    return (one.store.end, one.store.committed) == (other.store.end, other.store.committed)


def lag(leader: RunningMember, name: str) -> tuple[int, float]:
    """Return how far a member is behind, in bytes and seconds."""
    [found] = [each for each in leader.driver.view.members() if each.member == name]
    assert found.behind_bytes is not None
    assert found.behind_s is not None
    return found.behind_bytes, found.behind_s


async def test_what_a_copy_lacks_is_not_known_before_it_was_heard_in_this_term(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b") as made:
        a, _ = await pair(made)
        await a.put_committed(*(b"%d" % number + b"x" * 8000 for number in range(10)))
        await made.stop("b")
        await until(lambda: not a.driver.view.members()[1].connected)
        assert lag(a, "b")[0] < 80_000, "it was heard in this term"
        await a.driver.orders.demote()
        await a.driver.orders.promote(accept_loss=True)
        await until(a.leads)
        b = a.driver.view.members()[1]
        assert (b.behind_bytes, b.behind_s, b.to_json()["behind_s"]) == (None, None, None)
        await made.start("b")
        await until(lambda: a.driver.view.members()[1].behind_bytes is not None)
        await until(lambda: lag(a, "b") == (0, 0.0))


async def test_a_message_is_committed_once_both_disks_have_it_and_both_logs_are_the_same(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b") as made:
        a, b = await pair(made)
        for number in range(50):
            await a.put_committed(b"%d" % number + b"x" * 8000)
        assert b.store.synced == a.store.committed, "acknowledged means: on both disks"
        await until(lambda: same(a, b))
        assert await a.bodies() == await b.bodies()
        assert len(a.store.segments()) > 2
        with pytest.raises(Full, match="a leads this group"):
            b.store.put(message())


async def test_a_member_knows_why_another_one_is_not_connected(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b") as made:
        a, _ = await pair(made)
        assert [each.lost for each in a.driver.view.members()] == ["", ""]
        await made.stop("b")
        await until(lambda: a.driver.view.members()[1].lost != "")
        assert [(each.connected, bool(each.lost)) for each in a.driver.view.members()] == [(True, False), (False, True)]
        await made.start("b")
        await until(lambda: a.driver.view.members()[1].connected)
        assert a.driver.view.members()[1].lost == ""


async def test_nothing_is_committed_without_the_second_disk_and_all_of_it_once_that_is_back(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b") as made:
        a, _ = await pair(made)
        before = await a.put_committed(b"first")
        await made.stop("b")
        await until(lambda: a.driver.view.copies() == CopyCount(2, 1))
        end = a.put(*(b"%d" % number + b"x" * 20_000 for number in range(30)))
        await until(lambda: a.store.synced == end)
        assert a.store.committed == before
        await until(lambda: lag(a, "b")[1] > 0.2)
        assert lag(a, "b")[0] == end - before
        [b] = await made.start("b")
        await a.store.wait_committed(end)
        assert b.store.synced == end
        await until(lambda: same(a, b))
        assert await a.bodies() == await b.bodies()
        await until(lambda: lag(a, "b") == (0, 0.0))
        await until(lambda: lag(b, "b") == (0, 0.0))


async def test_a_leader_says_which_copy_has_no_space_and_hands_over_to_it_only_when_it_has_everything(
    tmp_path: Path,
) -> None:
    async with group(tmp_path, "a", "b") as made:
        a, b = await pair(made)
        before = await a.put_committed(b"first")
        await until(lambda: same(a, b))
        await until(lambda: a.driver.view.copies() == CopyCount(2, 2))
        assert b.driver.view.copies() == CopyCount(2, None), "only the leader knows"
        b.store.full = "97 % used"
        end = a.put(b"only here")
        await until(lambda: a.driver.view.copies() == CopyCount(2, 1))
        await until(lambda: "97 % used" in a.driver.view.why_not_copied())
        assert a.driver.view.why_not_copied().startswith("b has no space: 97 % used (make room")
        with pytest.raises(GroupRefused, match=r"b has no space: 97 % used .*it lacks what this box has"):
            await a.driver.orders.transfer("b")
        assert a.store.committed == before
        b.store.full = None
        await a.store.wait_committed(end)
        await until(lambda: a.driver.view.why_not_copied() == "b is 0 bytes behind")
        await a.driver.orders.transfer("b")


@pytest.mark.parametrize("again", [False, True])
async def test_a_leader_says_which_copy_lacks_what_its_own_log_has_no_more_and_what_to_do(
    tmp_path: Path, again: bool
) -> None:
    async with group(tmp_path, "a", "b", rules=MANUAL._replace(acknowledge="one")) as made:
        a, b = await pair(made)
        await a.put_committed(b"on both")
        await until(lambda: same(a, b))
        await made.stop("b")
        await a.put_committed(*(b"%d" % number + b"x" * 20_000 for number in range(30)))
        while len(a.store.segments()) > 1:
            assert await a.store.drop_first()
        if again:
            await a.driver.orders.demote()
            await a.driver.orders.promote(accept_loss=True)
        await made.start("b")
        step = r"b takes nothing: the log of a begins at \d+, yours agrees up to \d+: `rocketbox replica resync`"
        await until(lambda: re.match(step, a.driver.view.why_not_copied()) is not None)


async def test_what_one_disk_acknowledges_alone_by_order_is_written_to_the_lineage_from_where_to_where(
    tmp_path: Path,
) -> None:
    async with group(tmp_path, "a", "b") as made:
        a, _ = await pair(made)
        before = await a.put_committed(b"on both")
        await made.stop("b")
        end = a.put(b"waits")
        await a.driver.orders.solo()
        assert a.driver.view.copies() == CopyCount(1, 1)
        [noted] = a.driver.view.alone()
        await a.store.wait_committed(end)
        assert (noted.start, noted.end) == (before, None)
        assert lineage_file(a)["alone"] == [[before, None, noted.at_ms]], "on disk before it is acknowledged"
        end = await a.put_committed(b"alone")
        await made.start("b")
        await until(lambda: a.driver.view.alone()[0].end is not None)
        assert a.driver.view.alone() == [noted._replace(end=end)]
        await made.stop("a")
        [a] = await made.start("a")
        assert lineage_file(a)["alone"] == [[before, end, noted.at_ms]]


async def test_a_restart_ends_what_one_disk_acknowledges_alone_at_the_end_of_the_log(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b") as made:
        a, _ = await pair(made)
        await made.stop("b")
        await a.driver.orders.solo()
        end = await a.put_committed(b"alone")
        await made.stop("a")
        [a] = await made.start("a")
        await until(lambda: [each.end for each in a.driver.view.alone()] == [end])
        with pytest.raises(GroupRefused, match="--accept-loss"):
            await a.driver.orders.promote()
        await a.driver.orders.promote(accept_loss=True)
        await until(a.leads)


def lineage_file(member: RunningMember) -> dict[str, Any]:
    raw = (member.store.config.root / "rocketbox" / "identity.json").read_text()
    return dict(json.loads(raw))


async def test_what_only_the_own_disk_acknowledges_waits_for_what_the_core_is_to_hear_before(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b", rules=MANUAL._replace(acknowledge="local")) as made:
        a, _ = await pair(made)
        before = await a.put_committed(b"first")
        core, files, events = a.driver._core, a.driver._files, a.driver._events
        saving, saved, save = threading.Event(), threading.Event(), files.save_hard

        def slow_disk(hard: HardState) -> None:
            saving.set()
            assert saved.wait(60)
            save(hard)

        files.save_hard = slow_disk  # type: ignore[assignment, method-assign]
        events.add(DriverEvent(lambda now_s: Effects(hard_state=core._state.hard)))
        await until(saving.is_set)
        later = LeaderHeartbeat(core.status.term + 1, before, -1, 0.0)
        events.add(DriverEvent(lambda now_s: core.step(now_s, "b", later)))
        end = a.put(b"of a leader that is no more")
        try:
            await until(lambda: a.store.synced == end)
            assert a.store.committed == before
        finally:
            saved.set()
        await until(lambda: a.driver.leadership.current.role != LEADER)
        assert a.store.committed == before


async def test_a_hand_over_loses_nothing_and_goes_both_ways(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b") as made:
        a, b = await pair(made)
        await a.put_committed(b"of a")
        await b.driver.orders.promote()
        await until(b.leads)
        with pytest.raises(Full, match="b leads this group"):
            a.store.put(message())
        await b.put_committed(b"of b")
        await until(lambda: same(a, b))
        await b.driver.orders.transfer("a")
        await until(a.leads)
        await a.put_committed(b"of a again")
        await until(lambda: same(a, b))
        assert await a.bodies() == await b.bodies() == [b"of a", b"of b", b"of a again"]


async def test_a_leader_that_comes_back_is_cut_to_the_common_point_and_what_it_alone_had_is_kept(
    tmp_path: Path,
) -> None:
    """Apache's slave connects for ever then, until a person deletes its store: apache/rocketmq issue 3388."""
    async with group(tmp_path, "a", "b") as made:
        a, b = await pair(made)
        end = await a.put_committed(b"common")
        await until(lambda: same(a, b))
        await made.stop("b")
        a.put(b"a alone 1", b"a alone 2")
        await until(lambda: a.store.synced == a.store.end)
        await made.stop("a")
        [b] = await made.start("b")
        with pytest.raises(GroupRefused, match="--accept-loss"):
            with trio.fail_after(30):
                await b.driver.orders.promote()
        await b.driver.orders.promote(accept_loss=True)
        await b.put_committed(b"b alone")
        [a] = await made.start("a")
        await until(lambda: same(a, b))
        assert await a.bodies() == await b.bodies() == [b"common", b"b alone"]
        cut = a.driver.view.divergence()
        assert cut is not None
        assert cut.start == end
        kept = (a.store.config.root / "quarantine" / cut.quarantine).read_bytes()
        assert b"a alone 1" in kept
        assert b"a alone 2" in kept
        connections = b.driver.links.statistics().connections
        for _ in range(5):
            await b.put_committed(b"and on both again")
        assert a.store.synced == b.store.committed
        assert b.driver.links.statistics().connections == connections == 1, "one link since it is back"


async def test_a_refused_promotion_says_how_many_acknowledged_messages_this_box_has_not(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b", rules=MANUAL._replace(acknowledge="one")) as made:
        a, b = await pair(made)
        await a.put_committed(b"on both")
        await until(lambda: same(a, b))
        await made.stop("b")
        await a.put_committed(*(b"%d" % number + b"x" * 20_000 for number in range(40)))
        a.driver._shipping.feed.clear()
        a.driver._shipping._rate._most = 1  # one piece from the disk, then none for long
        [b] = await made.start("b")
        await until(lambda: lag(b, "b")[0] > 0 and b.driver._missing._heard.messages > 0)
        await made.stop("a")
        with pytest.raises(GroupRefused) as refused:
            await b.driver.orders.promote()
        await b.driver.orders.promote(accept_loss=True)
        await until(b.leads)
        lost = 41 - len(await b.bodies())
        assert lost > 0
        assert refused.value.lost_messages in (lost, lost + 1), "a batch counts by its bytes"
        assert f"loses about {refused.value.lost_messages} acknowledged messages (" in str(refused.value)


async def test_a_follower_that_lies_commits_nothing_that_the_leader_has_not_and_garbage_ends_its_link(
    tmp_path: Path,
) -> None:
    async with group(tmp_path, "a", "b") as made:
        a, _ = await pair(made)
        before = await a.put_committed(b"honest")
        await made.stop("b")
        liar = await greeted(made, "b", a)
        for end in (1 << 62, before + 1, before, 0):
            await liar.send_all(encode_message(Synced(a.driver.leadership.current.term, end)))
        end = a.put(b"nobody else has it")
        await until(lambda: a.store.synced == end)
        assert a.store.committed == before
        await liar.send_all(encode_message(Position(1 << 40, (Row(5, 1 << 50),), 0, 1 << 60)))
        await liar.send_all(encode_message(Vote(1 << 41, 1 << 40, 1 << 60, transfer=False)))
        await liar.send_all(b"\xff" * 100)
        with trio.fail_after(10), suppress(trio.BrokenResourceError):
            while await liar.receive_some():
                pass
        await until(lambda: a.driver.links.statistics().refused["garbage"] == 1)


async def test_a_member_whose_disk_took_less_than_was_appended_ends_and_is_right_at_its_next_start(
    tmp_path: Path,
) -> None:
    with pytest.RaisesGroup(LogShrunk, flatten_subgroups=True):
        async with group(tmp_path, "a", "b") as made:
            a, b = await pair(made)
            end = await a.put_committed(b"on both")
            await until(lambda: b.store.synced == end)
            b.store._log._tail.go_back(0)  # as after a write that found no room
            await trio.sleep(30)
    async with group(tmp_path, "a", "b") as made:
        a, b = await pair(made)
        await a.put_committed(b"goes on")
        assert await a.bodies() == [b"on both", b"goes on"]
        await until(lambda: same(a, b))
        assert await b.bodies() == [b"on both", b"goes on"]


async def greeted(made: Group, name: str, member: RunningMember) -> TlsStream:
    """Return a link to a member, in the name of another one that does not run."""
    address = made.plan(name).members[member.driver.member]
    stream = TlsStream(
        await trio.open_tcp_stream(address.host, address.port),
        LinkTls(certificates() / name, clock_ok=True).dialing,
        server_side=False,
    )
    await stream.do_handshake()
    own = member.driver._heard.hello()
    await stream.send_all(own._replace(member=name, session=b"a liar's").encode(HELLO))
    await until(lambda: name in member.driver.links.statistics().linked)
    return stream
