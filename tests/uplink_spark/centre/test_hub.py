"""What connections share: memory in turn, who is admitted with which code, what a full disk tells everybody."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from uplink_spark.centre.gateway import open_landers
from uplink_spark.centre.hub import PAUSE_MS, Budget, Hub
from uplink_spark.config import GatewayConfig
from uplink_spark.errors import Refused
from uplink_spark.testing import SOURCE
from uplink_spark.wire import frames
from uplink_spark.wire.frames import Hello, decode_window
from uplink_spark.wire.link import FrameQueue, FrameReader
from uplink_spark.zone.manifest import DAY_MS

NOW = 1_700_000_000_000
HELLO = Hello("box-17", ((SOURCE.epoch, 0),), ((7, 0),), 0, 1 << 40, NOW, 1, "test")


class Heard:
    """A session that remembers what it was told."""

    def __init__(self) -> None:
        stream, self.far = trio.testing.memory_stream_pair()
        self.outbox, self.failures = FrameQueue(stream), list[str]()

    def failed(self, code: str, text: str) -> None:
        self.failures.append(code)

    async def windows(self) -> list[frames.Window]:
        await self.outbox.flush()
        data, found = bytes(await self.far.receive_some()), list[frames.Window]()
        while data:
            kind, length = frames.read_frame_head(data[:5], pieces=False)
            assert kind == frames.FrameType.WINDOW
            found.append(decode_window(data[5 : 5 + length]))
            data = data[5 + length :]
        return found


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    config = GatewayConfig(landing=str(tmp_path / "zone"), listen=("127.0.0.1", 10940), max_boxes=2)
    with open_landers(config, lambda: NOW) as (_, made):
        yield made


async def refusal(hub: Hub, hello: Hello = HELLO, certified: str | None = None) -> Refused:
    with pytest.raises(Refused) as raised:
        await hub.greet(hello, certified, Heard())
    assert hub.counts.refused[raised.value.code] == 1
    return raised.value


async def test_memory_goes_to_those_who_came_first() -> None:
    budget, got = Budget(100), list[str]()

    async def take(name: str, length: int) -> None:
        await budget.acquire(length)
        got.append(name)

    await take("a", 70)
    async with trio.open_nursery() as nursery:
        for name, length in (("large", 60), ("small", 10)):
            nursery.start_soon(take, name, length)
            await trio.testing.wait_all_tasks_blocked()
        assert got == ["a"]  # the small one would fit, but overtaking would starve the large one
        budget.release(30)
        await trio.testing.wait_all_tasks_blocked()
        assert got == ["a", "large"]
        budget.release(40)
    assert got == ["a", "large", "small"]
    assert budget.left == 30


async def test_who_gives_up_waiting_does_not_hold_up_those_behind() -> None:
    budget = Budget(100)
    await budget.acquire(70)
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def large() -> None:
            with scope:
                await budget.acquire(60)

        nursery.start_soon(large)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(budget.acquire, 30)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        with trio.fail_after(25):
            while nursery.child_tasks:
                await trio.testing.wait_all_tasks_blocked()
    assert budget.left == 0


async def test_memory_given_to_one_who_is_cancelled_at_that_moment_is_its_own_and_comes_back() -> None:
    budget = Budget(10)
    await budget.acquire(10)

    async def use() -> None:
        await budget.acquire(4)
        budget.release(4)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(use)
        await trio.testing.wait_all_tasks_blocked()
        budget.release(10)
        nursery.cancel_scope.cancel()
    assert budget.left == 10


async def test_memory_given_to_one_who_was_cancelled_a_moment_before_comes_back() -> None:
    budget = Budget(10)
    await budget.acquire(10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(budget.acquire, 4)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        budget.release(10)
    assert budget.left == 10


async def test_who_is_cancelled_takes_no_memory() -> None:
    budget = Budget(10)
    with trio.CancelScope() as scope:
        scope.cancel()
        await budget.acquire(4)
    assert budget.left == 10


@pytest.mark.parametrize(
    ("hello", "certified", "code", "says"),
    [
        (replace(HELLO, versions=(8, 9)), None, "version", "update the gateway"),
        (replace(HELLO, versions=(0, 0)), None, "version", "update the box"),
        (HELLO, "box-18", "identity", "the certificate says box-18"),
        (replace(HELLO, box="../../etc"), None, "identity", "1 to 64 of"),
        (replace(HELLO, box=".hidden"), None, "identity", "1 to 64 of"),
        (replace(HELLO, box=""), None, "identity", "1 to 64 of"),
    ],
)
async def test_who_may_not_enter_is_told_why(
    hub: Hub, hello: Hello, certified: str | None, code: str, says: str
) -> None:
    reason = await refusal(hub, hello, certified)
    assert (reason.code, says in reason.text) == (code, True)
    assert hub.sessions == {}


async def test_a_retired_box_and_a_moved_shard_are_turned_away_before_anything_is_written(hub: Hub) -> None:
    hub.records.retire("box-17")
    assert (await refusal(hub)).code == "retired"
    lander, hub.elsewhere = hub.landers.pop(0), lambda _: "other:10940"
    moved = await refusal(hub, replace(HELLO, box="box-18"))
    assert (moved.code, moved.keys) == ("moved", {"to": "other:10940"})
    assert hub.records.load("box-18").runs == {}
    hub.elsewhere = lambda _: None
    between = await refusal(hub, replace(HELLO, box="box-18"))
    assert (between.code, 300 <= between.retry_ms < 1500) == ("busy", True)
    hub.landers[0] = lander
    await hub.greet(replace(HELLO, box="box-18"), None, Heard())


async def test_the_boxes_of_a_shard_that_goes_are_let_go(hub: Hub) -> None:
    session = Heard()
    await hub.greet(HELLO, None, session)
    hub.send_away(1)
    assert not session.outbox.closing
    hub.send_away(0)
    await session.outbox.run()
    kind, _ = await FrameReader(session.far).next_frame(pieces=False)
    assert kind == frames.FrameType.BYE


async def test_a_box_that_is_connected_may_come_again_where_a_new_one_may_not(hub: Hub) -> None:
    first, second = Heard(), Heard()
    await hub.greet(HELLO, None, first)
    await hub.greet(replace(HELLO, box="box-18"), None, Heard())
    busy = await refusal(hub, replace(HELLO, box="box-19"))
    assert busy.code == "busy"
    assert 1000 <= busy.retry_ms < 60_000
    await hub.greet(HELLO, None, second)
    assert first.failures == ["busy"]
    hub.leave("box-17", first)  # the one that was replaced does not throw the newer one out
    assert hub.sessions["box-17"] is second
    hub.leave("box-17", second)
    assert set(hub.sessions) == {"box-18"}


async def test_runs_are_written_down_before_the_box_is_welcome_and_another_history_is_not(hub: Hub) -> None:
    await hub.greet(HELLO, None, Heard())
    assert hub.records.load("box-17").runs == {SOURCE.epoch: ((7, 0),)}
    twin = replace(HELLO, runs=((7, 0), (9, 50)), durable=80)
    await hub.greet(twin, None, Heard())
    reason = await refusal(hub, replace(HELLO, runs=((7, 0), (8, 60)), durable=90))
    assert (reason.code, reason.keys) == ("diverged", {"fork": 50})
    assert hub.counts.divergences == 1
    assert hub.records.load("box-17").runs == {SOURCE.epoch: ((7, 0), (9, 50))}


async def test_two_machines_with_one_certificate_are_noticed_once(
    hub: Hub, autojump_clock: trio.testing.MockClock
) -> None:
    other = replace(HELLO, lineage=((SOURCE.epoch + 1, 0),), runs=((8, 0),))
    for hello in (HELLO, other, HELLO):
        await hub.greet(hello, None, Heard())
    assert (hub.counts.twins, hub.seen["box-17"].twin) == (0, False)
    await hub.greet(other, None, Heard())
    await hub.greet(HELLO, None, Heard())
    assert (hub.counts.twins, hub.seen["box-17"].twin) == (1, True)
    await trio.sleep(601)
    await hub.greet(HELLO, None, Heard())
    assert not hub.seen["box-17"].twin


async def test_a_disk_that_fills_up_pauses_once_resumes_once_and_ends_all_above_95_percent(
    hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    session = Heard()
    await hub.greet(HELLO, None, session)
    for used in (0.10, 0.849, 0.85, 0.90, 0.949, 0.84, 0.5):
        hub.note_disk(used)
    told = await session.windows()
    assert [(one.window, one.pause_ms) for one in told] == [(0, PAUSE_MS), (hub.config.window_bytes, 0)]
    hub.note_disk(0.95)
    assert session.failures == ["full"]
    assert (await refusal(hub, replace(HELLO, box="box-18"))).code == "full"
    hub.note_disk(0.85)
    assert (await hub.greet(replace(HELLO, box="box-18"), None, Heard())).window == 0
    assert [line.partition("landing disk ")[2] for line in caplog.messages if "landing disk" in line] == [
        "85% full: boxes wait until there is room",
        "84% full: below 85% again",
        "95% full: boxes wait until there is room",
        "95% full: no box is let in until there is room",
        "85% full: below 95% again",
    ]


async def test_the_clock_here_is_compared_with_those_of_connected_boxes_that_are_synchronised(
    hub: Hub, autojump_clock: trio.testing.MockClock
) -> None:
    assert hub.clock_ahead_ms() == 0
    right, wrong = Heard(), Heard()
    await hub.greet(replace(HELLO, now_ms=NOW - 5000), None, right)
    await hub.greet(replace(HELLO, box="box-18", now_ms=0, clock_ok=0), None, wrong)
    assert hub.clock_ahead_ms() == 5000
    await trio.sleep(3)
    hub.now_ms = lambda: NOW + 20 * 365 * DAY_MS  # it jumps after the boxes told theirs
    assert hub.clock_ahead_ms() == 20 * 365 * DAY_MS + 2000
    hub.leave("box-17", right)
    assert hub.clock_ahead_ms() == 0


async def test_a_stick_of_a_box_that_is_connected_lands_beside_it(hub: Hub) -> None:
    session = Heard()
    await hub.greet(HELLO, None, session)
    await hub.greet_stick(replace(HELLO, durable=10))
    assert hub.sessions["box-17"] is session
    assert session.failures == []
    with pytest.raises(Refused, match="1 to 64 of"):
        await hub.greet_stick(replace(HELLO, box="../x"))
    hub.records.retire("box-17")
    with pytest.raises(Refused, match="box box-17 is retired"):
        await hub.greet_stick(HELLO)
