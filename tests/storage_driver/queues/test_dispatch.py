"""Durable records become entries and arrivals, in log order; what the index has to see waits within a limit."""

import pytest

from storage_driver.queues import dispatch
from storage_driver.queues.consume_queue import ENTRY, HOLE_SIZE, ConsumeQueue
from storage_driver.queues.dispatch import FLUSH_AT, Arrival, Dispatcher, is_queued
from storage_driver.queues.pending import PendingRecord, PendingRun
from storage_driver.record import (
    DELAY_LEVELS_MS,
    SCHEDULE_TOPIC,
    MessageQueue,
    encode_properties,
    encode_topic,
    java_hash,
)

NORMAL, PREPARED, COMMITTED, ROLLED_BACK = 0x0, 0x4, 0x8, 0xC


def queue(topic: str = "T", queue_id: int = 0) -> ConsumeQueue:
    return ConsumeQueue(MessageQueue(topic, queue_id), encode_topic(topic))


def pending(target: ConsumeQueue, number: int, sys_flag: int = 0, tags: str = "", stored_ms: int = 5) -> PendingRecord:
    properties = encode_properties({"TAGS": tags}) if tags else b""
    return PendingRecord(target, 100 * number, 90, number, sys_flag, stored_ms, properties)


def run_of(target: ConsumeQueue, first: int, *tags: str) -> PendingRun:
    places = [100 * (first + at) for at in range(len(tags))]
    stored = [encode_properties({"TAGS": tag}) for tag in tags]
    return PendingRun(target, places[0], first, 0, 5, places, [90 + at for at in range(len(tags))], stored)


def entries(target: ConsumeQueue) -> list[tuple[int, int, int]]:
    return list(ENTRY.iter_unpack(target.waiting()))


def dispatcher(arrived: list[Arrival], limit: int = 60_000, watched: set[MessageQueue] | None = None) -> Dispatcher:
    return Dispatcher(arrived.append, DELAY_LEVELS_MS, watched=watched, backlog_limit=limit)


def test_single_records_and_runs_arrive_in_log_order_with_the_code_of_their_tags() -> None:
    arrived: list[Arrival] = []
    target, maker = queue(), dispatcher(arrived)
    assert maker.dispatch([pending(target, 0, tags="A"), run_of(target, 1, "B", "A"), pending(target, 3)]) == 4
    codes = [java_hash("A"), java_hash("B"), java_hash("A"), 0]
    assert entries(target) == [(0, 90, codes[0]), (100, 90, codes[1]), (200, 91, codes[2]), (300, 90, codes[3])]
    assert [(a.queue_offset, a.tags_code, a.log_offset, a.size) for a in arrived] == [
        (0, codes[0], 0, 90),
        (1, codes[1], 100, 90),
        (2, codes[2], 200, 91),
        (3, 0, 300, 90),
    ]
    assert (target.visible, target.last_log_offset, maker.last_stored_ms) == (4, 300, 5)


@pytest.mark.parametrize(
    ("sys_flag", "seen"), [(NORMAL, True), (COMMITTED, True), (PREPARED, False), (ROLLED_BACK, False)]
)
@pytest.mark.parametrize("compressed", [0, 1])
def test_halves_and_rollbacks_are_not_to_be_seen(sys_flag: int, seen: bool, compressed: int) -> None:
    arrived: list[Arrival] = []
    target, maker = queue(), dispatcher(arrived)
    maker.dispatch([pending(target, 0, sys_flag | compressed, stored_ms=77)])
    assert (target.visible, len(arrived), is_queued(sys_flag | compressed)) == (int(seen), int(seen), seen)
    assert (maker.last_stored_ms, len(maker.backlog), list(maker.dirty)) == (77, 1, [target.key] if seen else [])


def test_a_topic_deleted_meanwhile_gets_nothing_of_what_was_on_its_way() -> None:
    arrived: list[Arrival] = []
    dead, alive, maker = queue("Dead"), queue("Alive"), dispatcher(arrived)
    dead.dropped = True
    maker.dispatch([pending(dead, 0), run_of(dead, 1, "A", "B"), pending(alive, 0)])
    assert (dead.visible, dead.waiting(), list(maker.dirty)) == (0, b"", [alive.key])
    assert [a.queue for a in arrived] == [alive.key]


def test_only_watched_queues_are_announced_as_they_are_watched_at_that_moment() -> None:
    arrived: list[Arrival] = []
    target, watched = queue(), set[MessageQueue]()
    maker = dispatcher(arrived, watched=watched)
    maker.dispatch([pending(target, 0), run_of(target, 1, "A")])
    watched.add(target.key)
    maker.dispatch([pending(target, 2), run_of(target, 3, "A")])
    watched.clear()
    maker.dispatch([pending(target, 5)])
    assert ([a.queue_offset for a in arrived], target.visible) == ([2, 3], 6)


def test_numbers_left_out_become_holes() -> None:
    target, maker = queue(), dispatcher([])
    maker.dispatch([pending(target, 2)])
    assert [entry[1] for entry in entries(target)] == [HOLE_SIZE, HOLE_SIZE, 90]


def test_a_delayed_message_has_its_due_time_as_code() -> None:
    target, maker = queue(SCHEDULE_TOPIC, 1), dispatcher([])
    properties = encode_properties({"DELAY": "2"})
    maker.dispatch([PendingRecord(target, 0, 90, 0, 0, 1000, properties)])
    assert entries(target)[0][2] == 1000 + DELAY_LEVELS_MS[1]


def test_the_backlog_of_the_index_is_given_up_whole_above_its_limit_and_stays_so() -> None:
    target, maker = queue(), dispatcher([], limit=3)
    maker.dispatch([pending(target, 0), run_of(target, 1, "A", "B")])
    assert (maker.backlog_records, maker.backlog_lost) == (3, False)
    maker.dispatch([pending(target, 3)])
    assert (maker.backlog, maker.backlog_records, maker.backlog_lost) == ([], 0, True)
    maker.dispatch([pending(target, 4)])
    assert maker.backlog == [], "a part of it would look as if it were all"
    assert target.visible == 5


def test_the_backlog_has_a_limit_in_bytes_and_is_taken_early_when_it_is_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "HEAVY", 500)
    target, maker = queue(), Dispatcher(list[Arrival]().append, DELAY_LEVELS_MS, backlog_bytes_limit=1000)
    maker.dispatch([pending(target, 0, tags="x" * 480)])
    assert (maker.is_heavy, maker.flush_due.is_set()) == (False, False)
    maker.dispatch([run_of(target, 1, "A", "B")])
    assert (maker.is_heavy, maker.flush_due.is_set()) == (True, True), "few records with long properties"
    maker.dispatch([pending(target, 3, tags="x" * 480)])
    assert (maker.backlog_bytes, maker.backlog_lost) == (0, True)


def test_what_was_taken_is_not_given_again() -> None:
    target, maker = queue(), dispatcher([])
    first = pending(target, 0)
    maker.dispatch([first])
    assert (maker.take_backlog(), maker.take_backlog()) == ([first], [])
    assert (list(maker.take_dirty()), list(maker.take_dirty())) == ([target.key], [])


def test_a_crowd_of_entries_calls_for_a_round_and_a_round_ends_the_call() -> None:
    target, maker = queue(), dispatcher([])
    maker.dispatch([run_of(target, 0, *["A"] * FLUSH_AT)])
    assert not maker.flush_due.is_set()
    maker.dispatch([pending(target, FLUSH_AT)])
    assert maker.flush_due.is_set()
    maker.take_dirty()
    maker.dispatch([pending(target, FLUSH_AT + 1)])
    assert not maker.flush_due.is_set()


def test_an_empty_round_changes_nothing() -> None:
    maker = dispatcher([])
    maker.last_stored_ms = 9
    assert (maker.dispatch([]), maker.last_stored_ms, maker.dirty) == (0, 9, {})
