"""Damage found while the store runs: noted and set aside once."""

from pathlib import Path

from storage_driver.store import open_store
from tests.storage_driver.recovery.test_losing import config, fill


async def test_a_range_is_noted_and_copied_aside_once(tmp_path: Path) -> None:
    await fill(tmp_path, 10)
    async with open_store(config(tmp_path), now_ms=lambda: 1_700_000_000_000) as store:
        damage = store._parts.damage
        await damage.found(0, 100, "crc")
        await damage.found(50, 90, "crc")
        assert damage.ranges == [(0, 100, "crc")]
        (aside,) = (tmp_path / "quarantine").iterdir()
        assert aside.read_bytes() == store.read_log(0, 100)
        assert store.trouble is None


async def test_what_cannot_be_copied_aside_is_told(tmp_path: Path) -> None:
    await fill(tmp_path, 10)
    async with open_store(config(tmp_path), now_ms=lambda: 1_700_000_000_000) as store:
        (tmp_path / "quarantine").write_bytes(b"")
        await store._parts.damage.found(0, 100, "crc")
        assert "damaged bytes 0 to 100 of the log were not copied to quarantine/" in str(store.trouble)
