"""Delivery at a moment of the message's own, over a real store."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from appliance.broker.delay import timers
from appliance.broker.delay.recall import RecallHandle, Recalls, handle_of
from appliance.broker.delay.timer_index import name_of
from appliance.broker.delay.timers import BATCH, TimerRules, Timers
from appliance.broker.intake import Intake, MessageDraft
from appliance.broker.tables.topics import TIMER_TOPIC, Topic, TopicRules, TopicTable
from appliance.testing import STORE_HOST, FakePeer, MemoryStateFile, NoStats, SmallStore, answered, small_store, wall_ms
from netstack.errors import Refused
from netstack.wire.codes import RequestCode
from netstack.wire.command import request
from storage_driver import bad_sectors
from storage_driver.errors import Full
from storage_driver.files.disk import Disk
from storage_driver.record import Message, MessageQueue, StoredMessage
from storage_driver.store import AppendResult
from tests.bad_disk import BadDisk
from tests.waiting import Clock, until


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that a test sets forward is noticed soon."""
    monkeypatch.setattr(timers, "CLOCK_STEP_S", 0.01)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def draft(body: bytes = b"x", **properties: str) -> MessageDraft:
    return MessageDraft("T", 0, body, {"UNIQ_KEY": "K", **properties}, 7, 0, 123, STORE_HOST)


class Bench:
    """Timers over a real store, and recalls."""

    def __init__(self, small: SmallStore, clock: Callable[[], int]) -> None:
        self.small, store = small, small.store
        self.timers = Timers(
            TimerRules("box"),
            store,
            small.arrivals,
            store.state_file("timers", folder="rocketbox"),
            stats=NoStats(),
            now_ms=clock,
        )
        topics = TopicTable(MemoryStateFile(), TopicRules("Edge", "box"), now_ms=clock)
        topics.put(Topic("T"))
        self.recalls = Recalls(self.timers, topics, when_committed=store.when_committed, now_ms=clock)
        self.intake = Intake(store, [self.timers.divert])

    async def put(self, item: MessageDraft) -> AppendResult:
        placed = self.intake.put(item)
        await self.small.store.wait_committed(placed.end)
        return placed

    async def recall(self, handle: str, topic: str = "T") -> tuple[int, dict[str, str]]:
        command = request(RequestCode.RECALL_MESSAGE, {"topic": topic, "recallHandle": handle})
        try:
            response = await answered(self.recalls.handle_recall(command, FakePeer()))
        except Refused as refused:
            return refused.code, {}
        return response.code, response.ext


@asynccontextmanager
async def bench(
    folder: Path, clock: Callable[[], int], *, run: bool = True, disk: Disk | None = None
) -> AsyncIterator[Bench]:
    async with small_store(folder, now_ms=clock, disk=disk) as small, trio.open_nursery() as nursery:
        found = Bench(small, clock)
        if run:
            nursery.start_soon(found.timers.run)
        yield found
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_messages_come_at_their_moment_in_the_order_of_their_moments(tmp_path: Path, clock: Clock) -> None:
    async with bench(tmp_path, clock) as b:
        now_ms = clock.ms
        dues = {b"c": 500, b"a": 400, b"b": 450}
        for body, after_ms in dues.items():
            b.intake.put(draft(body, TIMER_DELIVER_MS=str(now_ms + after_ms), TAGS="t"))
        delivered = []
        for count, moment in enumerate((400, 450, 500), 1):
            clock.ms = now_ms + moment
            delivered = await b.small.wait_for("T", count)
    assert [message.body for message in delivered] == [b"a", b"b", b"c"]
    for message in delivered:
        assert message.stored_ms == now_ms + dues[message.body]
    properties = delivered[0].property_map
    assert (delivered[0].flag, delivered[0].born_ms, properties["TAGS"]) == (7, 123, "t")
    assert properties["TIMER_DELIVER_MS"] == str(now_ms + 400)
    assert int(properties["TIMER_OUT_MS"]) < now_ms + 400 <= int(properties["TIMER_OUT_MS"]) + 1000
    assert {"TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"} <= properties.keys()
    assert "RBX_DUE_MS" not in properties


async def test_a_delay_counts_from_now_and_seconds_win_over_milliseconds(tmp_path: Path, clock: Clock) -> None:
    async with bench(tmp_path, clock) as b:
        sent_ms = clock.ms
        await b.put(draft(b"ms", TIMER_DELAY_MS="50", TIMER_DELIVER_MS="99999999999999"))
        await b.put(draft(b"s", TIMER_DELAY_SEC="0", TIMER_DELAY_MS="60000"))
        assert [message.body for message in await b.small.wait_for("T", 1)] == [b"s"]
        clock.ms += 50
        messages = await b.small.wait_for("T", 2)
    assert [message.body for message in messages] == [b"s", b"ms"]
    assert messages[1].stored_ms == sent_ms + 50


async def test_a_moment_that_is_past_is_no_timer(tmp_path: Path, clock: Clock) -> None:
    async with bench(tmp_path, clock, run=False) as b:
        await b.put(draft(TIMER_DELIVER_MS=str(clock.ms - 1)))
        assert len(await b.small.all("T")) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TIMER_DELIVER_MS", "soon"),
        ("TIMER_DELAY_SEC", "259201"),
        ("TIMER_DELAY_MS", "1.5"),
        ("TIMER_DELAY_MS", "9" * 20),
    ],
)
async def test_a_moment_too_far_or_not_a_number_is_refused(tmp_path: Path, clock: Clock, name: str, text: str) -> None:
    async with bench(tmp_path, clock, run=False) as b:
        with pytest.raises(Refused) as refused:
            b.intake.put(MessageDraft("T", 0, b"x", {name: text}, 0, 0, 1, STORE_HOST))
        assert refused.value.code == 13


async def test_a_level_wins_over_a_timer_and_retries_have_none(tmp_path: Path, clock: Clock) -> None:
    async with bench(tmp_path, clock, run=False) as b:
        parked = draft(TIMER_DELAY_SEC="9")
        parked.topic = "SCHEDULE_TOPIC_XXXX"
        b.timers.divert(parked)
        assert (parked.topic, "TIMER_DELAY_SEC" in parked.properties) == ("SCHEDULE_TOPIC_XXXX", False)
        asked_for_both = draft(TIMER_DELAY_SEC="9", DELAY="3")
        b.timers.divert(asked_for_both)
        assert (asked_for_both.topic, "TIMER_DELAY_SEC" in asked_for_both.properties) == ("T", False)
        retried = draft(TIMER_DELAY_SEC="9")
        retried.topic = "%RETRY%g"
        b.timers.divert(retried)
        assert retried.topic == "%RETRY%g"


@pytest.mark.slow
async def test_a_recalled_message_does_not_come_and_the_others_do(tmp_path: Path, clock: Clock) -> None:
    async with bench(tmp_path, clock) as b:
        due_ms = clock.ms + 600
        recalled = draft(b"recalled", TIMER_DELIVER_MS=str(due_ms))
        await b.put(recalled)
        handle = handle_of(recalled, "T", "box")
        assert handle is not None
        await b.put(draft(b"kept", TIMER_DELIVER_MS=str(due_ms), UNIQ_KEY="L"))
        await b.put(draft(b"other moment", TIMER_DELIVER_MS=str(due_ms + 20)))
        assert await b.recall(handle) == (0, {"msgId": "K", "MSG_REGION": "DefaultRegion"})
        clock.ms = due_ms + 20
        bodies = [message.body for message in await b.small.wait_for("T", 2)]
        assert bodies == [b"kept", b"other moment"]
        assert (await b.recall(handle))[0] == 604


@pytest.mark.slow
async def test_a_recall_survives_a_restart(tmp_path: Path, clock: Clock) -> None:
    async with bench(tmp_path, clock, run=False) as b:
        due_ms = str(clock.ms + 900)
        recalled = draft(b"recalled", TIMER_DELIVER_MS=due_ms)
        await b.put(recalled)
        await b.put(draft(b"kept", TIMER_DELIVER_MS=due_ms, UNIQ_KEY="L"))
        assert (await b.recall(handle_of(recalled, "T", "box") or ""))[0] == 0
    async with bench(tmp_path, clock) as b:
        clock.ms += 900
        assert [message.body for message in await b.small.wait_for("T", 1)] == [b"kept"]
        assert b.timers.index.next_due_ms() is None


@pytest.mark.parametrize(
    ("handle", "topic", "code"),
    [
        ("***", "T", 604),
        (RecallHandle("T", "box", 1, "K").encode(), "T", 604),
        (RecallHandle("T", "box", wall_ms() + 4 * 86_400_000, "K").encode(), "T", 604),
        (RecallHandle("T", "other", wall_ms() + 60_000, "K").encode(), "T", 604),
        (RecallHandle("U", "box", wall_ms() + 60_000, "K").encode(), "T", 604),
        (RecallHandle("T", "box", wall_ms() + 60_000, "K").encode(), "nobody", 17),
    ],
    ids=["not a handle", "past", "too late", "other broker", "other topic", "unknown topic"],
)
async def test_a_recall_that_cannot_be_meant_is_refused(
    tmp_path: Path, clock: Clock, handle: str, topic: str, code: int
) -> None:
    async with bench(tmp_path, clock, run=False) as b:
        assert (await b.recall(handle, topic))[0] == code


@pytest.mark.slow
async def test_after_a_restart_what_waits_still_comes_and_what_came_does_not_come_again(
    tmp_path: Path, clock: Clock
) -> None:
    async with bench(tmp_path, clock) as b:
        await b.put(draft(b"before", TIMER_DELAY_MS="20"))
        await b.put(draft(b"after", TIMER_DELAY_MS="250"))
        await until(lambda: len(b.timers.index) == 2)
        clock.ms += 20
        await b.small.wait_for("T", 1)
        await until(lambda: len(b.timers.index) == 1)
        await b.timers.flush()
    async with bench(tmp_path, clock) as b:
        clock.ms += 230
        assert [message.body for message in await b.small.wait_for("T", 2)] == [b"before", b"after"]


async def test_a_save_that_a_stop_cut_short_is_made_at_its_end(tmp_path: Path, clock: Clock) -> None:
    async with bench(tmp_path, clock) as b:
        await b.put(draft(TIMER_DELAY_MS="20"))
        await until(lambda: len(b.timers.index) == 1)
        await b.timers.flush()
        clock.ms += 20
        await b.small.wait_for("T", 1)
        await until(lambda: b.timers.index.emitted_ms == clock.ms)  # the round is over
        with trio.CancelScope() as scope:
            scope.cancel()
            await b.timers.flush()
        await b.timers.flush()
        assert b.timers.checkpoint().delivered_ms == clock.ms


async def test_time_that_passes_without_a_delivery_writes_nothing(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "SAVE_S", 0.01)
    async with bench(tmp_path, clock) as b:
        await b.put(draft(TIMER_DELAY_MS="20"))
        await until(lambda: len(b.timers.index) == 1)
        clock.ms += 20
        await b.small.wait_for("T", 1)
        await until(lambda: b.timers.checkpoint().delivered_ms == clock.ms)
        saved = b.timers.checkpoint()
        clock.ms += 60_000
        await until(lambda: b.timers.index.emitted_ms == clock.ms)
        await b.timers.flush()
        assert b.timers.checkpoint() == saved


async def test_without_its_state_everything_is_delivered_again_rather_than_lost(tmp_path: Path, clock: Clock) -> None:
    async with bench(tmp_path, clock) as b:
        await b.put(draft(b"x", TIMER_DELAY_MS="20"))
        clock.ms += 20
        await b.small.wait_for("T", 1)
    async with bench(tmp_path, clock) as b:
        assert len(await b.small.wait_for("T", 2)) == 2


async def test_a_message_of_an_apache_broker_is_due_at_the_end_of_its_slot(tmp_path: Path, clock: Clock) -> None:
    async with bench(tmp_path, clock) as b:
        out_ms = clock.ms - 950
        there = draft(b"apache", REAL_TOPIC="T", REAL_QID="0", TIMER_OUT_MS=str(out_ms))
        there.topic = TIMER_TOPIC
        b.small.store.put(there.to_message())
        await until(lambda: len(b.timers.index) == 1)
        clock.ms = out_ms + 1000
        (message,) = await b.small.wait_for("T", 1)
        assert message.stored_ms == out_ms + 1000


async def test_retention_is_told_where_the_oldest_waiting_record_lies(tmp_path: Path, clock: Clock) -> None:
    async with bench(tmp_path, clock) as b:
        assert b.timers.floor() == 0
        await b.put(draft(b"x"))
        placed = await b.put(draft(b"x", TIMER_DELAY_SEC="60"))
        await b.put(draft(b"x", TIMER_DELAY_MS="20"))
        clock.ms += 20
        await b.small.wait_for("T", 2)
        await until(lambda: b.timers.floor() == placed.log_offset)


@pytest.mark.slow
async def test_many_with_spills_and_restarts_all_come_once(tmp_path: Path) -> None:
    total, start_ms = 1500, wall_ms()
    async with bench(tmp_path, wall_ms) as b:
        b.timers.index._heap_entries = 100
        for number in range(total):
            after_ms = 200 + (number * 7919) % 1500
            b.intake.put(draft(b"%d" % number, UNIQ_KEY=str(number), TIMER_DELIVER_MS=str(start_ms + after_ms)))
        written_down = len(await b.small.wait_for("T", 300))
        await b.timers.flush()
    async with bench(tmp_path, wall_ms) as b:
        delivered, messages = len(await b.small.all("T")), list[StoredMessage]()
        while len({message.body for message in messages}) < total:
            messages = await b.small.wait_for("T", len(messages) + 1)
    numbers = [int(message.body) for message in messages]
    assert set(numbers) == set(range(total))
    assert len(numbers) - total <= delivered - written_down + BATCH + 1, (
        "no more than what came after that, and a batch"
    )
    assert all(m.stored_ms >= start_ms + 200 + (int(m.body) * 7919) % 1500 for m in messages)


@pytest.mark.slow
async def test_what_is_due_does_not_wait_for_a_stream_of_others_and_what_was_recalled_does_not_come(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "INDEX_BATCH", 1)
    monkeypatch.setattr(timers, "SORT_S", 0.0)
    async with bench(tmp_path, clock, run=False) as b, trio.open_nursery() as nursery:
        await b.timers._catch_up()
        due_ms = clock.ms + 400
        b.intake.put(draft(b"due", TIMER_DELIVER_MS=str(due_ms)))
        for number in range(40):
            b.intake.put(draft(b"%d" % number, UNIQ_KEY=str(number), TIMER_DELAY_SEC="3600"))
        recalled = draft(b"recalled", UNIQ_KEY="R", TIMER_DELIVER_MS=str(due_ms + 1))
        await b.put(recalled)
        assert (await b.recall(RecallHandle("T", "box", due_ms + 1, "R").encode()))[0] == 0
        clock.ms = due_ms + 1
        nursery.start_soon(b.timers.run)
        await b.small.wait_for("T", 1)
        assert b.timers.index.indexed_to < 42
        await until(lambda: b.timers.index.indexed_to == 43)
        await b.put(draft(b"later", UNIQ_KEY="L", TIMER_DELAY_MS="5"))
        clock.ms += 5
        assert [message.body for message in await b.small.wait_for("T", 2)] == [b"due", b"later"]
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_without_any_space_what_is_due_waits_and_comes_once_there_is_some(tmp_path: Path, clock: Clock) -> None:
    async with bench(tmp_path, clock, run=False) as b, trio.open_nursery() as nursery:
        store, refused = b.small.store, list[str]()
        await b.put(draft(b"waits", TIMER_DELAY_MS="10"))
        look, store._maintenance.check_space = store._maintenance.check_space, trio.lowlevel.checkpoint  # type: ignore[method-assign]
        put = store.put

        def put_without_space(message: Message, **more: Any) -> AppendResult:
            store._parts.appender.no_room("No space left on device")  # a look that was under way still found some
            try:
                return put(message, **more)
            except Full as exc:
                refused.append(str(exc))
                raise

        store.put = put_without_space
        clock.ms += 10
        nursery.start_soon(b.timers.run)
        await until(lambda: len(refused) > 1)
        assert store.max_offset(MessageQueue("T", 0)) == 0
        assert b.timers.floor() == 0, "its file must stay"
        store.put = put
        await look()
        assert [message.body for message in await b.small.wait_for("T", 1)] == [b"waits"]
        nursery.cancel_scope.cancel()


async def test_a_recall_that_the_log_took_back_recalls_nothing(tmp_path: Path, clock: Clock) -> None:
    async with bench(tmp_path, clock, run=False) as b:
        waits: list[Callable[[str | None], None]] = []
        b.small.store.when_committed = lambda log_offset, wake: waits.append(wake)
        b.timers.recall("T", "K", clock.ms + 60_000, (1, STORE_HOST))
        b.timers.recall("T", "L", clock.ms + 60_000, (1, STORE_HOST))
        waits[0]("no space")
        waits[1](None)
        assert list(b.timers._recalled) == [name_of("T", "L")]


@pytest.mark.slow
async def test_an_error_of_the_disk_makes_deliveries_late_and_a_lost_run_is_sorted_again(
    tmp_path: Path, clock: Clock
) -> None:
    async with bench(tmp_path, clock, run=False) as b:
        b.timers.index._heap_entries = 2
        spill, failures = b.timers.index.spill, iter([OSError(28, "No space left on device")])

        def failing() -> None:
            for failure in failures:
                raise failure
            spill()

        b.timers.index.spill = failing  # type: ignore[method-assign]
        for number in range(4):
            await b.put(draft(b"%d" % number, TIMER_DELAY_MS="1500"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(b.timers.run)
            folder = tmp_path / "store" / "rocketbox" / "timers"
            await until(lambda: len(b.timers.index) == 4)
            await b.put(draft(b"4", TIMER_DELAY_MS="1500"))  # no room in the heap: the others become a run
            await until(lambda: list(folder.glob("*")))
            for path in folder.glob("*"):
                path.unlink()
            clock.ms += 1500
            bodies, count = set[bytes](), 5
            while len(bodies) < 5:  # what was delivered just before may come once more
                bodies = {message.body for message in await b.small.wait_for("T", count)}
                count += 1
            nursery.cancel_scope.cancel()
        assert bodies == {b"0", b"1", b"2", b"3", b"4"}
        assert list(failures) == []


async def test_a_record_that_the_disk_does_not_give_back_keeps_no_other_waiting(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bad_sectors, "PATIENCE_S", 0.0)
    monkeypatch.setattr(timers, "RETRY_S", 0.01)
    disk = BadDisk()
    async with bench(tmp_path, clock, disk=disk, run=False) as b, trio.open_nursery() as nursery:
        nursery.start_soon(b.timers.run)
        due_ms = str(clock.ms + 50)
        bodies = b"0", bytes(8192), b"2"  # the last is in another block
        placed = [await b.put(draft(body, UNIQ_KEY=f"K{n}", TIMER_DELIVER_MS=due_ms)) for n, body in enumerate(bodies)]
        await until(lambda: len(b.timers.index) == 3)
        disk.bad[f"commitlog/{0:020d}"] = [(placed[1].log_offset, placed[1].log_offset + 1)]
        clock.ms += 60
        while b.small.store.max_offset(MessageQueue("T", 0)) < 2:
            await b.small.store.prove()
            await trio.sleep(0.02)
        assert [message.body for message in await b.small.all("T")] == [b"0", b"2"]
        nursery.cancel_scope.cancel()


async def test_a_clock_set_forward_hurries_no_time_to_rest_and_keeps_no_moment_waiting(
    tmp_path: Path, clock: Clock
) -> None:
    right_ms, clock.ms = clock.ms, 60_000  # 1970: no battery, no network yet
    async with bench(tmp_path, clock) as b:
        await b.put(draft(b"rests", UNIQ_KEY="R", TIMER_DELAY_SEC="30"))
        await b.put(draft(b"moment", UNIQ_KEY="M", TIMER_DELIVER_MS=str(clock.ms + 30_000)))
        clock.ms = right_ms
        assert [message.body for message in await b.small.wait_for("T", 1)] == [b"moment"]
        await until(lambda: b.small.store.max_offset(MessageQueue(TIMER_TOPIC, 0)) == 3)  # rests on, by this clock
        clock.ms = right_ms + 29_000
        await until(lambda: b.timers.index.emitted_ms == clock.ms)
        assert len(await b.small.all("T")) == 1
        clock.ms = right_ms + 30_000
        assert [message.body for message in await b.small.wait_for("T", 2)] == [b"moment", b"rests"]


async def test_what_a_clock_that_was_ahead_stored_comes_after_its_time_to_rest_once(
    tmp_path: Path, clock: Clock
) -> None:
    right_ms = clock.ms
    clock.ms += 3_650 * 86_400_000
    async with bench(tmp_path, clock) as b:
        await b.put(draft(b"rests", TIMER_DELAY_SEC="30"))
        await b.put(draft(b"recalled", UNIQ_KEY="R", TIMER_DELIVER_MS=str(clock.ms + 30_000)))
        b.timers.recall("T", "R", clock.ms + 30_000, (1, STORE_HOST))
        await until(lambda: len(b.timers.index) == 3)
        await b.timers.flush()
        clock.ms = right_ms
        await until(lambda: b.small.store.max_offset(MessageQueue(TIMER_TOPIC, 0)) == 4)  # rests on, by this clock
        await until(lambda: b.timers.checkpoint().indexed_to >= 3 and len(b.timers.index) == 1)
    async with bench(tmp_path, clock) as b:
        await until(lambda: len(b.timers.index) == 1)
        clock.ms = right_ms + 31_000
        assert [message.body for message in await b.small.wait_for("T", 1)] == [b"rests"]
        await until(lambda: b.timers.floor() == b.small.store.committed)  # retention goes on
        assert len(await b.small.all("T")) == 1


async def test_what_waits_longer_than_is_allowed_now_comes_at_its_moment(tmp_path: Path, clock: Clock) -> None:
    async with bench(tmp_path, clock) as b:
        await b.put(draft(TIMER_DELIVER_MS=str(clock.ms + 7_200_000)))
    async with bench(tmp_path, clock, run=False) as b, trio.open_nursery() as nursery:
        b.timers.rules = b.timers.rules._replace(longest_ms=1000)
        nursery.start_soon(b.timers.run)
        await until(lambda: len(b.timers.index) == 1)
        clock.ms += 7_199_000
        await until(lambda: b.timers.index.emitted_ms == clock.ms)
        assert await b.small.all("T") == []
        clock.ms += 1000
        await b.small.wait_for("T", 1)
        nursery.cancel_scope.cancel()


async def test_a_place_beyond_the_end_of_the_queue_passes_over_no_message(tmp_path: Path, clock: Clock) -> None:
    async with small_store(tmp_path) as small:
        state = {"layout": 1, "spilledTo": 50, "indexedTo": 50, "emittedMs": clock.ms, "runs": []}
        small.store.state_file("timers", folder="rocketbox").save(state)  # the log lost its end since
    async with bench(tmp_path, clock) as b:
        await b.put(draft(b"body", TIMER_DELIVER_MS=str(clock.ms + 50)))
        clock.ms += 60
        assert [message.body for message in await b.small.wait_for("T", 1)] == [b"body"]
