import json
from pathlib import Path

import pytest

from storage_driver.config import StoreConfig
from storage_driver.log.clock import ClockEpochs, pieces
from storage_driver.record import Message, MessageQueue, encode_host
from storage_driver.retention.rules import RetentionRules
from storage_driver.store import open_store

HOST = encode_host("127.0.0.1", 10911)
TEN_YEARS = 10 * 365 * 86_400_000
NOW = 1_700_000_000_000


def test_age_counts_only_running_time_whatever_the_clock_does() -> None:
    for step in (TEN_YEARS, -TEN_YEARS):
        clock = ClockEpochs()
        clock.begin(0, NOW, trusted=True)
        assert clock.tick(NOW + 5000, 5000, 100, trusted=True) == 0
        assert clock.tick(NOW + step + 10_000, 5000, 200, trusted=True) == step
        assert clock.tick(NOW + step + 13_000, 3000, 300, trusted=True) == 0
        assert clock.age_ms(50, NOW + 1000) == 4000 + 3000
        assert clock.age_ms(250, NOW + step + 11_000) == 2000
        assert clock.age_ms(250, NOW) >= 0
        assert clock.boundaries() == [0, 200]


def test_time_while_the_box_was_off_makes_nothing_old() -> None:
    clock = ClockEpochs()
    clock.begin(0, NOW, trusted=True)
    clock.tick(NOW + 1000, 1000, 10, trusted=True)
    clock.begin(10, NOW + TEN_YEARS, trusted=True)
    assert clock.age_ms(5, NOW) == 1000


def test_epochs_survive_their_file_and_damage_counts_as_missing() -> None:
    clock, again = ClockEpochs(), ClockEpochs()
    clock.begin(0, NOW, trusted=False)
    clock.begin(10, NOW, trusted=True)
    again.load(clock.to_json())
    assert again.epochs == clock.epochs
    for bad in (None, 5, {}, {"epochs": 3}, {"epochs": [[1]]}, {"epochs": [["a", 1, 2, 3]]}):
        again.load(bad)
        assert again.epochs == clock.epochs


def test_no_flipped_bit_in_the_file_changes_an_epoch() -> None:
    clock = ClockEpochs()
    clock.begin(0, NOW, trusted=True)
    clock.tick(NOW + 5000, 5000, 100, trusted=True)
    raw = json.dumps(clock.to_json()).encode()
    for bit in range(8 * len(raw)):
        flipped, again = bytearray(raw), ClockEpochs()
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            again.load(json.loads(flipped.decode()))
        except ValueError:
            continue  # no table: its owner begins a new one
        assert again.epochs in ([], clock.epochs)
    again.load({"layout": 1, "epochs": clock.to_json()["epochs"]})  # as it was before it had a checksum
    assert again.epochs == clock.epochs


def test_the_log_is_split_at_the_boundaries_within_it() -> None:
    assert pieces([0, 50, 100, 200], 10, 150) == [(10, 50), (50, 100), (100, 150)]
    assert pieces([], 0, 5) == [(0, 5)]


@pytest.mark.parametrize("step", [TEN_YEARS, -TEN_YEARS])
async def test_a_step_of_ten_years_deletes_nothing_and_keeps_the_search_right(tmp_path: Path, step: int) -> None:
    now = [NOW]
    config = StoreConfig(
        tmp_path / "store",
        HOST,
        segment_bytes=128 * 1024,
        max_message_bytes=32 * 1024,
        queue_file_entries=100,
        retention=RetentionRules(keep_ms=1000),
    )
    queue = MessageQueue("T", 0)
    async with open_store(config, now_ms=lambda: now[0]) as store:
        for _ in range(3):
            for _ in range(20):
                placed = store.put(Message("T", 0, bytes(9000), b"", 0, 0, 1, HOST))
                now[0] += 10
            await store.wait_committed(placed.end)
            await store._maintenance.round()
            now[0] += step if len(store._maintenance.clock.epochs) == 1 else -step
            await store._maintenance.round()
        assert store.min_offset(queue) == 0
        assert store.statistics().deleted_segments == 0
        assert await store.offset_by_time(queue, NOW + 100) == 10
        assert await store.offset_by_time(queue, NOW + step + 200 + 50) == 25
        assert await store.stored_ms_at(queue, 45) in range(NOW + 400, NOW + 700)
        assert await store.offset_by_time(queue, NOW + 450) == 45
