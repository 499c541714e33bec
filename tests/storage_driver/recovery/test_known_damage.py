"""Damage found while the store runs: noted and set aside once."""

from pathlib import Path

import pytest
import trio

from storage_driver.record import MessageQueue
from storage_driver.recovery import known_damage
from storage_driver.store import open_store
from tests.storage_driver.recovery.test_losing import config, fill

BODY_AT = 88 + 4  # a head, and some bytes: only the body of the first record is damaged


async def test_a_range_is_noted_and_copied_aside_once(tmp_path: Path) -> None:
    await fill(tmp_path, 10)
    async with open_store(config(tmp_path), now_ms=lambda: 1_700_000_000_000) as store:
        damage = store._parts.damage
        await damage.found(0, 100, "crc")
        await damage.found(50, 90, "crc")
        assert damage.ranges == [(0, 100, "crc")]
        (aside,) = (tmp_path / "quarantine").iterdir()
        assert aside.read_bytes() == store.read_log(0, 100)
        await damage.found(50, 150, "what repairs queues sees more of it")
        assert [each[:2] for each in damage.ranges] == [(0, 100), (100, 150)]
        assert [loss.ranges for loss in store.losses.found] == [[(0, 150)]]
        assert store.trouble is None


async def test_what_a_reader_finds_is_listed_though_the_reader_is_gone(tmp_path: Path) -> None:
    await fill(tmp_path, 10)
    async with open_store(config(tmp_path), now_ms=lambda: 1_700_000_000_000) as store:
        with trio.CancelScope() as reader:
            reader.cancel()
            await store._parts.damage.found(0, 100, "crc")
        assert [loss.ranges for loss in store.losses.found] == [[(0, 100)]]
        assert len(list((tmp_path / "quarantine").iterdir())) == 1


async def test_what_cannot_be_copied_aside_is_told(tmp_path: Path) -> None:
    await fill(tmp_path, 10)
    async with open_store(config(tmp_path), now_ms=lambda: 1_700_000_000_000) as store:
        (tmp_path / "quarantine").write_bytes(b"")
        await store._parts.damage.found(0, 100, "crc")
        assert "damaged bytes 0 to 100 of the log were not copied to quarantine/" in str(store.trouble)


async def test_what_cannot_be_read_any_more_is_listed_without_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise OSError(5, "Input/output error")

    await fill(tmp_path, 10)
    async with open_store(config(tmp_path), now_ms=lambda: 1_700_000_000_000) as store:
        monkeypatch.setattr(known_damage, "walk", gone)
        await store._parts.damage.found(0, 100, "crc")
        (found,) = store.losses.unacknowledged()
        assert (found.ranges, found.messages) == ([(0, 100)], None)


async def test_what_the_scrub_found_is_listed_by_queue_until_it_is_acknowledged(tmp_path: Path) -> None:
    await fill(tmp_path, 10)
    now_ms = lambda: 1_700_000_000_000  # noqa: E731
    async with open_store(config(tmp_path), now_ms=now_ms) as store:
        with next((tmp_path / "commitlog").iterdir()).open("r+b") as file:
            file.seek(BODY_AT)
            file.write(b"\xff")
        known_to = store.losses.known_to
        await store.check_all()
        while not store.losses.found:  # noqa: ASYNC110 - the scrub has a round of its own, which may be first
            await trio.sleep(0.01)
        (found,) = store.losses.unacknowledged()
        assert (found.damaged, found.messages, len(found.queues)) == (True, 1, 1)
        assert "at least 1 message cannot be read on this box (" in found.sentence()
        assert store.losses.messages() == 0, "the damaged ranges are counted elsewhere"
        assert store.losses.known_to == known_to, "a log that is cut short later is a loss of its own"
    async with open_store(config(tmp_path), now_ms=now_ms) as store:
        assert [loss.number for loss in store.losses.unacknowledged()] == [found.number]
        store.losses.acknowledge(5)
        await store.check_all()
        assert store.losses.unacknowledged() == [], "the scrub meets it again, and it is known"
        await store._parts.damage.found(store.committed - 1, store.committed, "crc")
        (fresh,) = store.losses.unacknowledged()
        assert (fresh.number, fresh.messages) == (found.number + 1, None)
        assert MessageQueue(*found.queues[0][:2]) in store._queues
