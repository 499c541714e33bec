"""An hour and a week of figures: bounded, on disk in fixed places, whole after a torn write and a jump of the clock."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from appliance.page.history import (
    FILE_BYTES,
    HOUR,
    NAME,
    PLACE_BYTES,
    WEEK,
    CurveBuffer,
    CurveHistory,
    Point,
    decode,
    encode,
    mean_of,
    read_file,
)
from appliance.page.vitals import HostVitals, Ticks
from tests.appliance.admin_bench import Bench, bench

NOON = 1_700_000_000_000


def seen(made: Bench, data: Path, clock: list[int]) -> Any:
    governor = SimpleNamespace(statistics=lambda: SimpleNamespace(connections=3))
    return SimpleNamespace(
        tables=made, store=made.store, uplink=None, governor=governor, now_ms=lambda: clock[0], data=data
    )


def test_a_row_keeps_one_span_and_no_more() -> None:
    row = CurveBuffer(HOUR)
    for number in range(1000):
        row.put(Point(NOON + number * 10_000, number))
    now_ms = NOON + 999 * 10_000
    kept = row.since(now_ms)
    assert [point.messages_in for point in kept] == list(range(640, 1000))
    assert len(row.take_unsaved()) == HOUR.kept
    assert row.take_unsaved() == []


def test_a_clock_that_jumps_back_hides_what_is_in_the_future() -> None:
    row = CurveBuffer(HOUR)
    row.put(Point(NOON, 1))
    row.put(Point(NOON - 600_000, 2))
    assert [point.messages_in for point in row.since(NOON - 600_000)] == [2]


def test_a_mean_leaves_out_what_was_not_measured() -> None:
    made = mean_of([Point(1, 2, sync_ms=4, temperature=50), Point(2, 4)], NOON)
    assert (made.at_ms, made.messages_in, made.sync_ms, made.temperature) == (NOON, 3, 4, 50)


@pytest.mark.parametrize("cut", [0, 1, PLACE_BYTES // 2, PLACE_BYTES - 1])
def test_half_a_place_is_no_point(cut: int) -> None:
    whole = encode(Point(NOON, 1, 2, 3))
    assert decode(whole) == Point(NOON, 1, 2, 3)
    assert decode(whole[:cut]) is None
    assert decode(whole[:cut] + b"\0" * (PLACE_BYTES - cut)) is None
    assert decode(b"\0" * PLACE_BYTES) is None


async def test_curves_go_on_after_a_restart_and_survive_damage(tmp_path: Path) -> None:
    clock, looks = [NOON], iter([HostVitals(Ticks(n * 50, n * 100), 1 << 30, 0.25) for n in range(100)])
    async with bench(tmp_path / "store", clock) as made:
        watched = seen(made, tmp_path, clock)
        history = CurveHistory(watched, vitals=lambda: next(looks))
        for _ in range(20):
            clock[0] += 10_000
            await made.send(1)
            history.look()
        history.save()
        assert history.newest is not None
        assert (history.newest.processor, history.newest.memory, history.newest.connections) == (0.5, 0.25, 3)
        assert history.newest.sync_ms > 0
        again = CurveHistory(watched, vitals=HostVitals)
        again.take(read_file(tmp_path / NAME))
        for name in ("hour", "week"):
            kept, before = again.rows[name].since(clock[0]), history.rows[name].since(clock[0])
            assert kept == [pytest.approx(point, rel=1e-6) for point in before]
        assert len(again.rows["hour"].since(clock[0])) == 20
        assert len(again.rows["week"].since(clock[0])) == 1
        file = tmp_path / NAME
        assert file.stat().st_size <= FILE_BYTES == (HOUR.kept + WEEK.kept) * PLACE_BYTES < 40_000
        raw = bytearray(file.read_bytes())
        place = clock[0] // 10_000 % HOUR.kept
        raw[place * PLACE_BYTES + 9] ^= 1
        torn = CurveHistory(watched, vitals=HostVitals)
        torn.take(bytes(raw))
        assert len(torn.rows["hour"].since(clock[0])) == 19
        empty = CurveHistory(watched, vitals=HostVitals)
        empty.take(b"\xff" * 100_000)
        assert empty.rows["hour"].since(clock[0]) == []


async def test_a_folder_that_takes_no_file_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = [NOON]
    async with bench(tmp_path / "store", clock) as made:
        history = CurveHistory(seen(made, tmp_path / "missing", clock), vitals=HostVitals)
        for _ in range(3):
            history.look()
            history.save()
    assert caplog.text.count("event=history_not_saved") == 1


async def test_the_loop_looks_every_ten_seconds_saves_every_five_minutes_and_at_the_end(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    counts = SimpleNamespace(count=0, size=0)
    stats = SimpleNamespace(puts=counts, gets=counts)
    store = SimpleNamespace(statistics=lambda: SimpleNamespace(syncs=0, sync_s=0.0, disk_percent=40))
    governor = SimpleNamespace(statistics=lambda: SimpleNamespace(connections=0))
    watched: Any = SimpleNamespace(
        tables=SimpleNamespace(stats=stats),
        store=store,
        uplink=None,
        governor=governor,
        now_ms=lambda: NOON + int(trio.current_time() * 1000),
        data=tmp_path,
    )
    history = CurveHistory(watched, vitals=HostVitals)
    saved = list[int]()
    with trio.move_on_after(655):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(history.run)
            for _ in range(65):
                await trio.sleep(10)
                there = (tmp_path / NAME).exists()
                saved.append(len(kept_in(read_file(tmp_path / NAME))) if there else 0)
            await trio.sleep_forever()
    assert saved[20] == 0
    assert 28 <= saved[31] <= 32
    assert saved[31] == saved[58]  # nothing is written in between
    assert len(kept_in(read_file(tmp_path / NAME))) == 66 + 1


def kept_in(raw: bytes) -> list[Point]:
    places = (raw[at : at + PLACE_BYTES] for at in range(0, len(raw), PLACE_BYTES))
    return [point for place in places if (point := decode(place)) is not None]
