"""What waits is not deleted, whatever its age: timed and delayed messages and open halves, over a real store."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from appliance.broker.delay.levels import DelayLevels
from appliance.broker.delay.timers import TimerRules, Timers
from appliance.broker.intake import Intake, MessageDraft
from appliance.broker.tables.clients import ClientTable
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.transactions.checks import TransactionChecks
from appliance.broker.transactions.half_messages import TransactionEnds, TransactionRules, half_divert
from appliance.testing import STORE_HOST, FakePeer, MemoryStateFile, NoStats, SmallStore, answered, small_store, wall_ms
from netstack.wire.codes import RequestCode
from netstack.wire.command import request
from storage_driver.record import Message
from tests.appliance.box import ask, connected, messages_of, pull, running_box, send
from tests.appliance.transaction_bench import acknowledging
from tests.waiting import Clock, until, until_it

LEVELS_MS = (400, 800)


@dataclass(frozen=True, slots=True)
class Bench:
    """All that can wait, over one store whose retention keeps nothing."""

    small: SmallStore
    clock: Clock
    delays: DelayLevels
    timers: Timers
    checks: TransactionChecks
    transactions: TransactionEnds

    async def put(self, body: bytes, **properties: str) -> tuple[int, int]:
        intake = Intake(self.small.store, [half_divert, self.timers.divert, self.delays.divert])
        placed = intake.put(MessageDraft("T", 0, body, {"PGROUP": "P", **properties}, 0, 0, wall_ms(), STORE_HOST))
        await self.small.store.wait_committed(placed.end)
        return placed.queue_offset, placed.log_offset

    async def fill(self) -> None:
        """Write so much that the first file of the log could go."""
        for _ in range(25):
            placed = self.small.store.put(Message("F", 0, bytes(60_000), b"", 0, 0, 1, STORE_HOST))
        await self.small.store.wait_committed(placed.end)
        self.clock.ms += 1

    async def first_after(self, done: Callable[[], bool]) -> int:
        """Return the lowest log offset once a round of maintenance found `done`."""
        await until(done)
        await self.small.store._maintenance.round()
        return self.small.store.first

    def floor(self) -> int:
        return min(self.delays.floor(), self.checks.floor(), self.timers.floor())


@asynccontextmanager
async def bench(folder: Path, file: MemoryStateFile, clock: Clock) -> AsyncIterator[Bench]:
    async with (
        small_store(folder, delays_ms=LEVELS_MS, keep_ms=0, now_ms=clock) as small,
        trio.open_nursery() as nursery,
    ):
        store = small.store
        store.retain = lambda base, end: False
        delays = DelayLevels(store, small.arrivals, file, LEVELS_MS, stats=NoStats(), now_ms=clock)
        timers = Timers(
            TimerRules("box"),
            store,
            small.arrivals,
            store.state_file("timers", folder="rocketbox"),
            stats=NoStats(),
            now_ms=clock,
        )
        rules = TransactionRules(STORE_HOST, check_s=1000.0)
        table = OffsetTable(MemoryStateFile())
        transactions = TransactionEnds(
            rules, store, table, now_ms=clock, put_stat=lambda *_: None, acknowledging=acknowledging(store)
        )
        checks = TransactionChecks(transactions, ClientTable(now_ms=clock), now_ms=clock, make_topic=lambda name: None)
        found = Bench(small, clock, delays, timers, checks, transactions)
        assert found.floor() == 0, "before anybody looked nothing may go"
        for loop in (delays.run, timers.run, checks.run):
            nursery.start_soon(loop)
        store.retain = lambda base, end: end <= found.floor()
        yield found
        nursery.cancel_scope.cancel()


async def _roll_back(b: Bench, half: tuple[int, int]) -> None:
    ext = {"producerGroup": "P", "tranStateTableOffset": str(half[0]), "commitLogOffset": str(half[1])}
    end = request(RequestCode.END_TRANSACTION, {**ext, "commitOrRollback": "12"})
    assert (await answered(b.transactions.handle_end(end, FakePeer()))).code == 0


async def _wait(b: Bench, half: tuple[int, int]) -> None:
    b.clock.ms += 600
    assert len(await b.small.wait_for("T", 1)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("properties", "finish"),
    [
        ({"TIMER_DELAY_MS": "600"}, _wait),
        ({"DELAY": "1"}, _wait),
        ({"TRAN_MSG": "true"}, _roll_back),
    ],
    ids=["timer", "level", "half"],
)
async def test_what_waits_longer_than_retention_is_not_deleted_before_it_was_delivered_or_decided(
    tmp_path: Path, properties: dict[str, str], finish: Callable[[Bench, tuple[int, int]], Awaitable[None]]
) -> None:
    async with bench(tmp_path, MemoryStateFile(), Clock()) as b:
        waiting = await b.put(b"waits", **properties)
        await b.fill()
        assert await b.first_after(lambda: True) == 0
        await finish(b, waiting)
        assert await b.first_after(lambda: b.floor() > 1 << 20) == 1 << 20


@pytest.mark.slow
async def test_a_restart_forgets_nothing_that_waits(tmp_path: Path) -> None:
    clock = Clock()
    async with bench(tmp_path, MemoryStateFile(), clock) as b:
        await b.put(b"delivered", DELAY="1")
        clock.ms += LEVELS_MS[0]
        await b.small.wait_for("T", 1)
        await b.put(b"waits", DELAY="2")
        await b.fill()
        file = MemoryStateFile({"offsetTable": {"1": 1}})
    async with bench(tmp_path, file, clock) as b:
        assert await b.first_after(lambda: True) == 0
        clock.ms += LEVELS_MS[1]
        assert (await b.small.wait_for("T", 2))[1].body == b"waits"


@pytest.mark.slow
async def test_what_is_gone_all_the_same_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with bench(tmp_path, MemoryStateFile(), Clock()) as b:
        await b.put(b"waits", DELAY="2")
        await b.fill()
        b.small.store.retain = lambda base, end: True
        await b.small.store._maintenance.round()
        await b.put(b"later", DELAY="2")
        b.clock.ms += LEVELS_MS[1]
        assert (await b.small.wait_for("T", 1))[0].body == b"later"
    assert "event=delayed_messages_lost level=2 from=0 to=1" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("delay", ["TIMER_DELAY_MS\x011500", "DELAY\x011"])
async def test_what_waits_comes_though_the_limit_of_messages_is_lower_since(tmp_path: Path, delay: str) -> None:
    async with running_box(tmp_path, "[limits]\nmessage_mib = 2\n") as box, connected(box) as channel:
        assert (await channel.ask(send("T", bytes(3 << 19), f"{delay}\x02UNIQ_KEY\x01K"))).code == 0
    async with running_box(tmp_path, "[limits]\nmessage_mib = 1\n") as box, connected(box) as channel:
        answer = await channel.ask(pull("T", suspend_ms=20_000))
        while answer.code != 0:
            await trio.sleep(0.2)
            answer = await channel.ask(pull("T", suspend_ms=20_000))
        (message,) = messages_of(answer)
        assert len(message.body) == 3 << 19


@pytest.mark.slow
async def test_a_half_is_committed_and_a_message_sent_back_though_the_limit_of_messages_is_lower_since(
    tmp_path: Path,
) -> None:
    half = send("T", bytes(3 << 19), "TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01K")
    half.ext["f"] = "4"
    async with running_box(tmp_path, "[limits]\nmessage_mib = 2\n") as box, connected(box) as channel:
        rests = await channel.ask(half)
        assert (await channel.ask(send("T", bytes(3 << 19), queue_id=1))).code == 0
    place = {"tranStateTableOffset": rests.ext["queueOffset"], "commitLogOffset": str(int(rests.ext["msgId"][16:], 16))}
    async with running_box(tmp_path, "[limits]\nmessage_mib = 1\n") as box, connected(box) as channel:
        ended = await channel.ask(ask(37, producerGroup="PG", commitOrRollback="8", **place))
        assert (ended.code, ended.remark) == (0, None)
        (message,) = messages_of(await channel.ask(pull("T")))
        assert len(message.body) == 3 << 19
        (large,) = messages_of(await channel.ask(pull("T", queue_id=1)))
        back = ask(36, group="CG", offset=str(large.log_offset), delayLevel="1")
        assert (await channel.ask(back)).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("properties", ["TIMER_DELAY_MS\x011500", "DELAY\x011", "TRAN_MSG\x01true\x02PGROUP\x01PG"])
async def test_a_message_that_rested_makes_its_topic_again_that_was_deleted_as_unused(
    tmp_path: Path, properties: str
) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        sent = send("T", b"rests", f"{properties}\x02UNIQ_KEY\x01K", queue_id=3)
        sent.ext["f"] = "4" if "TRAN_MSG" in properties else "0"
        rests = await channel.ask(sent)
        assert (await channel.ask(ask(215, topic="T"))).code == 0
        if "TRAN_MSG" in properties:
            log_offset = str(int(rests.ext["msgId"][16:], 16))
            place = {"tranStateTableOffset": rests.ext["queueOffset"], "commitLogOffset": log_offset}
            assert (await channel.ask(ask(37, producerGroup="PG", commitOrRollback="8", **place))).code == 0

        async def comes() -> bool:
            return (await channel.ask(pull("T", queue_id=3))).code == 0

        await until_it(comes, 30)
        answer = await channel.ask(pull("T", queue_id=3))
        assert [message.body for message in messages_of(answer)] == [b"rests"]
