"""Blocks that take no write: the store fails there once, the next start goes on in a copy on other blocks."""

import errno
from pathlib import Path

import pytest
import trio

from storage_driver.errors import LogFailed, StoreRefused
from storage_driver.files import unreadable
from storage_driver.files.disk import DiskFile
from storage_driver.log.unwritable import note_unwritable
from storage_driver.store import open_store
from tests.bad_disk import BLOCK, BadDisk
from tests.storage_driver.files.test_unreadable import SEGMENT, Sent, config, made, missing, send


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unreadable, "PAUSE_S", 0.0)


async def one_run(root: Path, disk: BadDisk, sent: Sent, unsure: Sent) -> bool:
    """Start, look, send; return whether all was taken. What was not acknowledged is moved to `unsure`."""
    note = root / "store/rocketbox/unwritable.json"
    async with open_store(config(root), now_ms=lambda: 5, disk=disk) as store:
        lost = await missing(store, sent | unsure)
        assert unsure.keys() >= set(lost)
        sent |= {key: found for key, found in unsure.items() if key not in lost}
        unsure.clear()
        acknowledged = dict(sent)
        try:
            for _ in range(10):
                await send(store, sent, 3)
                acknowledged = dict(sent)
        except LogFailed:
            with trio.fail_after(20):
                while not note.exists():  # noqa: ASYNC110 - nobody tells
                    await trio.sleep(0.01)
            assert await missing(store, acknowledged) == []
            unsure.update({key: found for key, found in sent.items() if key not in acknowledged})
            for key in unsure:
                del sent[key]
            return False
    return True


@pytest.mark.parametrize("ahead", [0, 1])
async def test_where_the_log_cannot_be_written_it_fails_once_and_the_next_start_goes_on(
    tmp_path: Path, ahead: int
) -> None:
    sent, disk = await made(tmp_path), BadDisk()
    end = max(at + size for at, size, _ in sent.values())
    base = end - end % SEGMENT
    path, at = tmp_path / f"store/commitlog/{base:020d}", (end - base) // BLOCK * BLOCK + ahead * BLOCK
    disk.wear(path, at, at + 2 * BLOCK)
    before = path.stat().st_ino
    unsure: Sent = {}
    assert not await one_run(tmp_path, disk, sent, unsure)
    assert path.stat().st_ino == before
    async with open_store(config(tmp_path), now_ms=lambda: 5, disk=disk) as store:
        found = [text for text in store.verdict.reasons if "did not take a write" in text]
        assert len(found) == 1
        assert store.verdict.lost is None
    assert path.stat().st_ino != before
    assert await one_run(tmp_path, disk, sent, unsure)
    assert not (tmp_path / "store/rocketbox/unwritable.json").exists()
    (aside,) = (tmp_path / "store/quarantine").glob("unwritable-*")
    assert aside.stat().st_ino == before


async def test_a_position_that_cannot_be_written_in_its_place_gets_another(tmp_path: Path) -> None:
    sent, disk = await made(tmp_path, keep_position=True), BadDisk()
    for name in ("position", "first"):
        disk.wear(tmp_path / "store/rocketbox" / name, 0, 2 * BLOCK)
    for _ in range(2):
        assert await one_run(tmp_path, disk, sent, {})


async def test_a_queue_whose_file_cannot_be_written_is_rebuilt_on_other_blocks(tmp_path: Path) -> None:
    sent, disk = await made(tmp_path), BadDisk()
    path = tmp_path / "store/consumequeue/T/0" / f"{0:020d}"
    disk.wear(path, 0, BLOCK)
    with pytest.raises(StoreRefused, match="the disk fails"):
        await one_run(tmp_path, disk, sent, {})
    for _ in range(2):
        assert await one_run(tmp_path, disk, sent, {})


async def test_without_room_for_the_copy_the_box_starts_and_a_later_start_makes_it(tmp_path: Path) -> None:
    """Nothing could make room if it did not: retention runs while it serves."""

    class FullDisk(BadDisk):
        full = True

        def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> DiskFile:
            if self.full and path.name == "next.tmp" and create:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().open(path, create=create, read_only=read_only)

    sent, disk, unsure = await made(tmp_path), FullDisk(), Sent()
    base = max(at + size for at, size, _ in sent.values()) // SEGMENT * SEGMENT
    note_unwritable(disk, tmp_path / "store", base + 100, base)
    path = tmp_path / f"store/commitlog/{base:020d}"
    before = path.stat().st_ino
    async with open_store(config(tmp_path), now_ms=lambda: 5, disk=disk) as store:
        assert [text for text in store.verdict.reasons if "not copied" in text]
        assert await missing(store, sent) == []
    assert path.stat().st_ino == before
    disk.full = False
    assert await one_run(tmp_path, disk, sent, unsure)
    assert path.stat().st_ino != before
