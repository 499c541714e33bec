"""The table of POP queues and its journal: what a second table makes of the first one's records."""

from itertools import pairwise

import pytest
import trio
import trio.testing

from appliance.broker.pop import pop_table
from appliance.broker.pop.pop_queue import CopyPlace, PopKey, PopQueue, Take
from appliance.broker.pop.pop_table import PopLimits, PopTable, key_of
from appliance.broker.tables.offsets import OffsetTable
from appliance.testing import MemoryStateFile
from netstack.errors import Refused

KEY = key_of("G", "T", 0)
NOW_MS = 1_700_000_000_000


class Entries:
    """A journal in memory."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []

    def add(self, entry: bytes) -> int:
        self.entries.append(entry)
        return len(self.entries)


class Bench:
    """A table with its journal."""

    def __init__(self, limits: PopLimits = PopLimits()) -> None:  # noqa: B008
        self.journal, self.offsets = Entries(), OffsetTable(MemoryStateFile())
        self.table = PopTable(self.journal, self.offsets, now_ms=lambda: NOW_MS, limits=limits)

    def queue(self) -> PopQueue:
        return self.table.get(KEY) or self.table.open(KEY, 0)

    def take(self, *offsets: int, invisible_ms: int = 60_000, pop_ms: int = NOW_MS, owner: str = "") -> Take:
        take = Take(self.queue(), offsets, pop_ms, self.table.due_in(invisible_ms), owner)
        self.table.take(take, max(offsets) + 1)
        return take

    def restarted(self, *, anew: bool = False, now_ms: int = NOW_MS) -> "Bench":
        """Return a table that loads this one's journal, or its snapshot."""
        again = Bench()
        again.offsets = self.offsets
        again.table = PopTable(again.journal, self.offsets, now_ms=lambda: now_ms)
        payloads = self.table.snapshot() if anew else self.journal.entries
        assert again.table.load(payloads) == []
        return again

    def state(self) -> list[tuple[PopKey, int, int, list[int]]]:
        return [(q.key, q.floor, q.next, sorted(q.in_flight)) for q in self.table.all()]


@pytest.fixture(params=[False, True], ids=["records", "snapshot"])
def anew(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def test_a_restart_knows_what_was_out_and_what_was_done(anew: bool) -> None:
    bench = Bench()
    bench.take(0, 1, 2)
    bench.take(4, 5, pop_ms=NOW_MS + 1)
    for handle in ((KEY, 0, NOW_MS), (KEY, 4, NOW_MS + 1)):
        assert bench.table.acknowledge(handle) is not None
    again = bench.restarted(anew=anew)
    assert again.state() == bench.state() == [(KEY, 1, 6, [1, 2, 5])]
    assert again.table.in_flight == 3
    assert again.table.acknowledge((KEY, 5, NOW_MS)) is None
    assert again.table.acknowledge((KEY, 5, NOW_MS + 1)) is not None
    again.take(6)
    assert again.state() == [(KEY, 1, 7, [1, 2, 6])]


async def test_a_restart_does_not_shorten_or_lengthen_a_time(anew: bool) -> None:
    bench = Bench()
    take = bench.take(0)
    bench.table.renew((KEY, 0, NOW_MS), 90_000)
    assert bench.table.expire(10) == []
    again = bench.restarted(anew=anew).table
    due_s = again.next_due_s()
    assert due_s is not None
    assert take.due_s < due_s <= trio.current_time() + 90
    assert due_s > trio.current_time() + 89


@pytest.mark.parametrize("now_ms", [60_000, NOW_MS - 3_600_000])
async def test_a_clock_that_is_behind_after_a_restart_keeps_no_message_longer_than_it_was_taken_for(
    anew: bool, now_ms: int
) -> None:
    bench = Bench()
    bench.take(0, invisible_ms=60_000)
    again = bench.restarted(anew=anew, now_ms=now_ms)
    due_s = again.table.next_due_s()
    assert due_s is not None
    assert 0 < due_s - trio.current_time() <= 60


async def test_messages_that_were_being_stored_again_are_told_once_and_have_no_valid_handle(anew: bool) -> None:
    bench = Bench()
    take = bench.take(0, 1, invisible_ms=0)
    ((_, left),) = bench.table.expire(10)
    assert (left, bench.table.in_flight) == ([0, 1], 0)
    bench.table.copying(take.queue, (0,), CopyPlace("R", 5))
    bench.table.copying(take.queue, (1,), CopyPlace("R", 6))
    bench.table.moved(take.queue, (0,))
    again = bench.restarted(anew=anew)
    assert again.state() == [(KEY, 1, 2, [1])]
    assert [(offset, place) for _, offset, place in again.table.take_interrupted()] == [(1, CopyPlace("R", 6))]
    assert again.table.take_interrupted() == []
    assert again.table.acknowledge((KEY, 1, NOW_MS)) is None
    assert (again.table.expire(10), again.table.in_flight) == ([], 0)


async def test_messages_that_are_gone_are_done(anew: bool) -> None:
    bench = Bench()
    take = bench.take(0, 1, invisible_ms=0)
    bench.table.expire(10)
    bench.table.moved(take.queue, [0])
    assert bench.restarted(anew=anew).state() == [(KEY, 1, 2, [1])]


async def test_resets_and_other_members_are_known_after_a_restart(anew: bool) -> None:
    bench = Bench()
    bench.take(0, 1, 2)
    bench.offsets.commit("G", "T", 0, 1)
    bench.table.follow(bench.queue())
    assert bench.restarted(anew=anew).state() == bench.state() == [(KEY, 1, 3, [1, 2])]
    bench.offsets.commit("G", "T", 0, 0)
    bench.table.reset(KEY, 0)
    assert bench.restarted(anew=anew).state() == bench.state() == [(KEY, 0, 0, [])]
    bench.table.forget(lambda key: key == KEY)
    assert bench.restarted(anew=anew).state() == []


async def test_an_ordered_take_stays_ordered_and_counts_on(anew: bool) -> None:
    bench = Bench()
    take = Take(bench.queue(), (0,), NOW_MS, bench.table.due_in(0))
    take.order, take.deliveries = True, 3
    bench.table.take(take, 1)
    ((again, left),) = bench.restarted(anew=anew).table.expire(10)
    assert (again.order, again.deliveries, left) == (True, 3, [0])


@pytest.mark.parametrize(("whole", "behind"), [(True, {2: 4}), (False, {})])
async def test_what_was_acknowledged_in_order_behind_another_comes_not_again_after_a_restart(
    anew: bool, whole: bool, behind: dict[int, int]
) -> None:
    bench = Bench()
    take = Take(bench.queue(), (0, 1, 2), NOW_MS, bench.table.due_in(0))
    take.order, take.deliveries, take.whole = True, 3, whole
    bench.table.take(take, 3)
    for offset in (0, 2):
        bench.table.acknowledge((KEY, offset, NOW_MS))
    assert bench.queue().behind == behind
    again = bench.restarted(anew=anew)
    assert (again.queue().behind, again.state()) == ({}, [(KEY, 1, 3, [1])])


async def test_limits_hold_for_a_queue_an_owner_and_all() -> None:
    bench = Bench(PopLimits(queue=4, owner=3, all=6, queues=2))
    bench.take(0, 1, owner="a")
    assert bench.table.room(bench.queue(), "a") == 1
    assert bench.table.room(bench.queue(), "b") == 2
    other = bench.table.open(key_of("G", "T", 1), 0)
    assert bench.table.room(other, "b") == 3
    other.busy = True
    with pytest.raises(Refused, match="2 queues of groups are consumed by POP"):
        bench.table.open(key_of("G", "T", 2), 0)
    bench.table.acknowledge((KEY, 0, NOW_MS))
    assert bench.table.room(bench.queue(), "a") == 2


async def test_messages_that_another_connection_gets_in_place_of_one_that_is_gone_count_for_it_alone() -> None:
    bench = Bench()
    for owner in ("a", "b"):
        take = Take(bench.queue(), (0, 1), NOW_MS, bench.table.due_in(60_000), owner)
        take.address = f"10.0.0.{owner}"
        bench.table.take(take, 2)
    assert (bench.table.in_flight, bench.table._owners, dict(bench.table._taken._of)) == (2, {"b": 2}, {"10.0.0.b": 2})
    for offset in (0, 1):
        bench.table.acknowledge((KEY, offset, NOW_MS))
    assert (bench.table.in_flight, bench.table._owners, dict(bench.table._taken._of)) == (0, {}, {})


async def test_a_queue_of_which_the_offset_says_all_makes_place_for_another(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench(PopLimits(queues=2))
    bench.take(0)
    idle = bench.table.open(key_of("G", "T", 1), 7)
    bench.table.open(key_of("G", "T", 2), 0)
    assert bench.table.get(idle.key) is None
    assert bench.table.get(KEY) is not None, "a message is in flight"
    again = bench.restarted()
    assert [key.queue.queue_id for key, *_ in again.state()] == [0, 2]
    assert again.offsets.get("G", "T", 1) == 7, "the group goes on where it was"
    last = bench.table.get(key_of("G", "T", 2))
    assert last is not None
    last.busy = True
    with pytest.raises(Refused):
        bench.table.open(key_of("G", "T", 3), 0)
    last.busy = False
    with pytest.raises(Refused):
        bench.table.open(key_of("G", "T", 3), 0)
    await trio.sleep(1)
    bench.table.open(key_of("G", "T", 3), 0)


async def test_one_address_leaves_queues_and_messages_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pop_table, "ALWAYS_ALLOWED", 1)
    bench = Bench(PopLimits(all=8, queues=5))
    queue = bench.table.open(KEY, 0, "10.0.0.1")
    assert [bench.table.room(queue, "a", address) for address in ("10.0.0.1", "")] == [4, 8]
    take = Take(queue, (0, 1, 2, 3), NOW_MS, bench.table.due_in(60_000), "a")
    take.address = "10.0.0.1"
    bench.table.take(take, 4)
    rooms = ("10.0.0.1", "10.0.0.2", "")
    assert [bench.table.room(queue, "b", address) for address in rooms] == [0, 2, 4]
    bench.table.renew((KEY, 1, NOW_MS), 50_000)
    for offset in (0, 1):
        bench.table.acknowledge((KEY, offset, NOW_MS))
    assert [bench.table.room(queue, "b", address) for address in rooms] == [2, 3, 6]
    bench.table.open(key_of("G", "T", 1), 0, "10.0.0.1").busy = True
    with pytest.raises(Refused, match="this address has its share"):
        bench.table.open(key_of("G", "T", 2), 0, "10.0.0.1")
    bench.table.open(key_of("G", "T", 2), 0, "10.0.0.2")
    bench.table.forget(lambda key: key.queue.queue_id == 1)
    bench.table.open(key_of("G", "T", 3), 0, "10.0.0.1")


async def test_takes_are_due_in_the_order_of_their_times_and_many_renewals_cost_no_memory() -> None:
    bench = Bench()
    bench.take(*range(10))
    for _ in range(500):
        for offset in range(10):
            bench.table.renew((KEY, offset, NOW_MS), 1000 - offset)
    assert len(bench.table._due) < 2000
    bench.table.renew((KEY, 3, NOW_MS), 0)
    times = [take.due_s for take, _ in bench.table.expire(100)]
    assert all(early <= late for early, late in pairwise(times))
    assert len(times) == 1


async def test_who_waits_for_the_next_due_time_hears_of_an_earlier_one() -> None:
    bench = Bench()
    bench.take(0)
    bench.table.sooner = trio.Event()
    bench.take(1)
    assert not bench.table.sooner.is_set()
    bench.table.renew((KEY, 0, NOW_MS), 5)
    assert bench.table.sooner.is_set()


async def test_a_record_that_cannot_be_read_is_named_and_messages_come_again() -> None:
    bench = Bench()
    bench.take(0)
    again = Bench()
    assert again.table.load([*bench.journal.entries, b"Z"]) == ["record b'Z' at byte 0"]
    assert again.state() == [(KEY, 0, 0, [])]  # what else it said is not known: all comes again
