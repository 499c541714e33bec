"""The sorted entries of waiting messages."""

import random
from pathlib import Path

import pytest

from appliance.broker.delay.timer_index import (
    ENTRY,
    MESSAGE,
    RECALL,
    IndexState,
    RunDamaged,
    TimerEntry,
    TimerIndex,
    name_of,
)
from storage_driver.files.disk import RealDisk


def entry(due_ms: int, log_offset: int = 0, kind: int = MESSAGE) -> TimerEntry:
    return TimerEntry(due_ms, kind, log_offset, 100, name_of("T", str(log_offset)))


def index(folder: Path, state: IndexState | None = None, heap_entries: int = 8) -> TimerIndex:
    return TimerIndex(RealDisk(), folder, state or IndexState(), heap_entries=heap_entries)


def fill(timers: TimerIndex, dues: list[int], start: int = 0) -> None:
    for offset, due_ms in enumerate(dues, start):
        timers.add(entry(due_ms, offset), offset)
        if timers.heap_full:
            timers.spill()


def drain(timers: TimerIndex, now_ms: int, most: int = 5) -> list[int]:
    dues = []
    while taken := timers.take_due(now_ms, most):
        dues += [item.due_ms for item in taken]
        timers.done(dues[-1] - 1)
    timers.done(now_ms)
    return dues


def test_an_entry_has_the_documented_bytes_and_sorts_as_they_are() -> None:
    item = TimerEntry(1_700_000_000_000, MESSAGE, 4096, 200, b"12345678")
    assert item.encode().hex() == "0000018bcfe56800" + "01" + "0000000000001000" + "000000c8" + "3132333435363738"
    assert entry(5, kind=RECALL).encode() < entry(5).encode() < entry(6, kind=RECALL).encode()


def test_what_is_due_comes_out_in_order_from_heap_and_runs(tmp_path: Path) -> None:
    rng = random.Random(7)
    dues = [rng.randrange(1000) for _ in range(100)]
    timers = index(tmp_path)
    fill(timers, dues)
    assert timers.next_due_ms() == min(dues)
    assert drain(timers, 499) == sorted(due for due in dues if due <= 499)
    assert drain(timers, 499) == []
    assert len(timers) == sum(due > 499 for due in dues)
    assert drain(timers, 10_000) == sorted(due for due in dues if due > 499)
    assert timers.next_due_ms() is None


@pytest.mark.parametrize("seed", range(8))
def test_a_restart_at_any_moment_loses_nothing(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    dues = [rng.randrange(1, 1000) for _ in range(200)]
    timers, state, delivered, stored, now_ms = index(tmp_path), IndexState(), [], 0, 0
    for _ in range(40):
        fill(timers, dues[stored : stored + 5], stored)
        stored += 5
        now_ms += rng.randrange(30)
        delivered += drain(timers, now_ms)
        if rng.random() < 0.5 or timers.state().spilled_to != state.spilled_to:  # a spill is always written down
            state = timers.state()
            timers.remove_emptied()
        if rng.random() < 0.3:
            timers = index(tmp_path, IndexState.from_json(state.to_json()))
            timers.remove_strangers()
            fill(timers, dues[timers.spilled_to : stored], timers.spilled_to)
    delivered += drain(timers, 10_000)
    assert not [due for due in dues if delivered.count(due) < dues.count(due)]


def test_what_was_delivered_before_a_clean_state_is_not_delivered_again(tmp_path: Path) -> None:
    timers = index(tmp_path)
    fill(timers, [10, 20, 30, 40, 50])
    assert drain(timers, 30) == [10, 20, 30]
    again = index(tmp_path, timers.state())
    fill(again, [10, 20, 30, 40, 50])
    assert drain(again, 100) == [40, 50]


def test_a_clock_that_was_set_back_loses_no_new_message(tmp_path: Path) -> None:
    timers = index(tmp_path)
    fill(timers, [1000])
    assert drain(timers, 1000) == [1000]
    timers.add(entry(500, 1), 1)
    assert drain(timers, 400) == []
    again = index(tmp_path, timers.state())
    fill(again, [1000, 500])
    assert 500 in drain(again, 600)


def test_what_could_not_be_delivered_waits_again(tmp_path: Path) -> None:
    timers = index(tmp_path)
    fill(timers, list(range(12)))
    assert drain(timers, 2) == [0, 1, 2]
    assert [item.due_ms for item in timers.take_due(100, 8)] == list(range(3, 11))
    timers.put_back()
    assert len(timers) == 9
    assert drain(timers, 100) == list(range(3, 12))


def test_files_of_emptied_and_of_unknown_runs_go(tmp_path: Path) -> None:
    timers = index(tmp_path)
    fill(timers, list(range(16)))
    assert len(list(tmp_path.iterdir())) == 2
    drain(timers, 8)
    timers.remove_emptied()
    assert [path.name for path in tmp_path.iterdir()] == ["0000000002"]
    (tmp_path / "0000000009").write_bytes(b"torn")
    again = index(tmp_path, timers.state())
    again.remove_strangers()
    assert [path.name for path in tmp_path.iterdir()] == ["0000000002"]
    assert drain(again, 100) == list(range(9, 16))


def test_a_run_that_is_damaged_is_sorted_again_from_the_log_without_what_was_delivered(tmp_path: Path) -> None:
    timers = index(tmp_path)
    fill(timers, list(range(8)))
    assert drain(timers, 1) == [0, 1]
    path = next(tmp_path.iterdir())
    path.write_bytes(path.read_bytes()[: 3 * ENTRY.size + 1])
    again = index(tmp_path, timers.state())
    with pytest.raises(RunDamaged, match="ends before entry 8 of 8"):
        again.take_due(100, 100)
    path.unlink()
    with pytest.raises(RunDamaged, match="No such file"):
        again.take_due(100, 100)
    again.begin_anew()
    assert again.spilled_to == 0
    fill(again, list(range(8)))
    assert drain(again, 100) == list(range(2, 8))


def test_the_floor_is_the_oldest_log_offset_that_waits(tmp_path: Path) -> None:
    timers = index(tmp_path)
    assert timers.floor() is None
    fill(timers, list(range(100, 112)))
    assert timers.floor() == 0
    drain(timers, 108)
    assert timers.floor() == 9


def test_another_layout_or_no_state_means_a_rebuild() -> None:
    assert IndexState.from_json(None) == IndexState.from_json({"layout": 99}) == IndexState()
    assert (
        IndexState.from_json({"layout": 1, "spilledTo": 1, "indexedTo": 2, "emittedMs": 3, "runs": 4}) == IndexState()
    )


@pytest.mark.slow
def test_memory_is_the_heap_and_a_block_per_run_whatever_waits(tmp_path: Path) -> None:
    import tracemalloc

    timers = index(tmp_path, heap_entries=2_000)
    rng = random.Random(3)
    tracemalloc.start()
    try:
        fill(timers, [rng.randrange(10**9) for _ in range(60_000)])
        timers.take_due(10**8, 100)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(timers) > 59_000
    assert held < 800_000  # measured 330,000: 30 blocks and the heap, against 4.4 MB for the entries


def test_an_entry_that_came_late_is_not_forgotten_by_a_stop_before_its_delivery(tmp_path: Path) -> None:
    timers = index(tmp_path)
    fill(timers, [5])
    assert drain(timers, 10) == [5]
    timers.add(entry(8, 1), 1)
    again = index(tmp_path, timers.state())
    again.add(entry(5, 0), 0)
    again.add(entry(8, 1), 1)
    assert drain(again, 20) == [8]


def test_what_is_done_of_a_long_round_does_not_come_again_after_a_restart(tmp_path: Path) -> None:
    timers = index(tmp_path, heap_entries=100)
    fill(timers, [1, 2, 2, 3])
    assert [item.due_ms for item in timers.take_due(9, 2)] == [1, 2]
    timers.done(1)
    again = index(tmp_path, timers.state(), heap_entries=100)
    for offset, due_ms in enumerate([1, 2, 2, 3]):
        again.add(entry(due_ms, offset), offset)
    assert drain(again, 20) == [2, 2, 3]
