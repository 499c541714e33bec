"""Names that the disk does not give back: what can come again does, and a start that is refused says what to do."""

import errno
import os
import shutil
from pathlib import Path

import pytest
import trio

from storage_driver.errors import StoreRefused
from storage_driver.files import unreadable
from storage_driver.files.disk import LOST, DiskFile, FileFacts, FileLock, RealDisk
from storage_driver.files.lost_names import free_tables_lost
from storage_driver.files.unreadable import ZeroingDisk
from storage_driver.record import MessageQueue
from storage_driver.store import open_store
from tests.storage_driver.files.test_unreadable import Sent, config, made, missing


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unreadable, "PAUSE_S", 0.0)


class Stopped(Exception):
    """The power goes."""


class LosingDisk(RealDisk):
    """A disk on which nobody can look at some inodes, as ext4 does it; the power goes at the n-th new name."""

    def __init__(self, *lost: Path, number: int = errno.EBADMSG, stop_at: int = 1 << 30) -> None:
        self.lost, self.number, self.left = {os.stat(path).st_ino for path in lost}, number, stop_at

    def _ask(self, path: Path) -> None:
        for each in (path, *path.parents):
            if os.path.lexists(each) and os.lstat(each).st_ino in self.lost:
                raise OSError(self.number, os.strerror(self.number), str(path))

    def make_folder(self, path: Path) -> None:
        self._ask(path)
        super().make_folder(path)

    def remove(self, path: Path) -> None:
        self._ask(path)
        super().remove(path)

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Stopped

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> DiskFile:
        self._ask(path)
        return super().open(path, create=create, read_only=read_only)

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        self._ask(source)
        self._ask(target)
        super().rename(source, target)

    def remove_folder(self, path: Path) -> None:
        for each in (path, *path.rglob("*")):
            self._ask(each)
        super().remove_folder(path)

    def list(self, path: Path) -> list[FileFacts]:
        self._ask(path)
        found = super().list(path)
        return [
            FileFacts(facts.name, 0, False, 0, LOST) if os.lstat(path / facts.name).st_ino in self.lost else facts
            for facts in found
        ]


NOT_LOG = [
    "config/topics.json",
    "consumequeue/T",
    "consumequeue/T/0",
    "consumequeue/T/0/00000000000000000000",
    "index/19700101000000005",
    "rocketbox/clock.json",
    "rocketbox/first",
    "rocketbox/identity.json",
    "rocketbox/queues.json",
    "rocketbox/position",
]


@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.EIO, errno.EBADMSG, errno.EUCLEAN])
async def test_a_start_goes_around_every_name_outside_the_log(tmp_path: Path, number: int) -> None:
    sent = await made(tmp_path / "first", keep_position=True)
    for name in NOT_LOG:
        root = tmp_path / "again"
        shutil.copytree(tmp_path / "first", root)
        disk = LosingDisk(root / "store" / name, number=number)
        await starts(root, disk, sent, name)
        shutil.rmtree(root)


async def starts(root: Path, disk: LosingDisk, sent: Sent, name: str) -> None:
    async with open_store(config(root), now_ms=lambda: 6, disk=disk) as store:
        assert store.verdict.verdict == "repaired", name
        assert not await missing(store, sent), name
        assert any("quarantine" in text for text in store.verdict.reasons), (name, store.verdict.reasons)
        with trio.fail_after(60):
            while store.statistics().index_to < store.committed:  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.01)
        assert [len(await store.find_by_key("T", f"k{each}", 4, 0, 1 << 60)) for each in (0, 3)] == [1, 1], (
            name,
            store.verdict.reasons,
        )
        await store.state_file("topics").write({"dataVersion": 2})
        await store.prove()
    async with open_store(config(root), now_ms=lambda: 7, disk=disk) as store:
        assert store.verdict.verdict == "clean", (name, store.verdict.reasons)
        assert not await missing(store, sent), name


@pytest.mark.slow
async def test_a_table_that_cannot_be_opened_counts_as_unreadable_also_for_the_next_start(tmp_path: Path) -> None:
    await made(tmp_path, keep_position=True)
    root = tmp_path / "store"
    (root / "config" / "other.json").write_text("[1]")
    (root / "config" / "folder").mkdir()
    disk = ZeroingDisk(LosingDisk(root / "config/topics.json"), root)
    told = free_tables_lost(disk, root)
    assert told == ["config/topics.json: nothing that the disk gives back, kept in quarantine/store-config"]
    assert disk.told() == ["config/topics.json: the disk does not give back bytes 0 to 8192"]
    assert sorted(path.name for path in (root / "config").iterdir()) == ["folder", "other.json", "topics.json"]
    assert [path.name for path in (root / "quarantine/store-config").iterdir()] == ["topics.json"]
    async with open_store(config(tmp_path), now_ms=lambda: 6) as store:
        assert [text for text in store.verdict.reasons if "config/topics.json" in text]


@pytest.mark.slow
async def test_a_power_cut_at_any_step_loses_no_other_table(tmp_path: Path) -> None:
    await made(tmp_path / "first", keep_position=True)
    tables = {path.name for path in (tmp_path / "first/store/rocketbox").iterdir()}
    for stop_at in range(len(tables) + 1):
        root = tmp_path / f"{stop_at}" / "store"
        shutil.copytree(tmp_path / "first/store", root)
        lost = root / "rocketbox/clock.json"
        disk = LosingDisk(lost, stop_at=stop_at)
        with pytest.raises(Stopped):
            free_tables_lost(ZeroingDisk(disk, root), root)
        disk.left = 1 << 30
        free_tables_lost(ZeroingDisk(disk, root), root)
        assert {path.name for path in (root / "rocketbox").iterdir()} == tables, stop_at
        assert not (root / "rocketbox.new").exists()
        for name in tables - {"clock.json"}:
            assert (root / "rocketbox" / name).read_bytes() == (tmp_path / "first/store/rocketbox" / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["commitlog/00000000000000000000", "commitlog", "config", "index", "abort"])
async def test_a_start_that_is_refused_says_which_name_it_is_and_what_to_do(tmp_path: Path, name: str) -> None:
    await made(tmp_path)
    with pytest.raises(StoreRefused, match=f"{name}.*check it"):
        async with open_store(config(tmp_path), now_ms=lambda: 6, disk=LosingDisk(tmp_path / "store" / name)):
            pass


@pytest.mark.slow
async def test_a_lock_that_cannot_be_opened_is_no_failure_of_the_program(tmp_path: Path) -> None:
    await made(tmp_path)

    class Unlockable(RealDisk):
        def lock(self, path: Path) -> FileLock:
            raise OSError(errno.EBADMSG, "Bad message", str(path))

        def exists(self, path: Path) -> bool:
            if path.name == "commitlog":
                raise OSError(errno.EBADMSG, "Bad message", str(path))
            return super().exists(path)

    with pytest.raises(StoreRefused, match="file system is damaged"):
        async with open_store(config(tmp_path), now_ms=lambda: 6, disk=Unlockable()):
            pass


@pytest.mark.slow
async def test_a_disk_that_gives_back_nothing_loses_no_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await made(tmp_path, keep_position=True)
    monkeypatch.setattr(ZeroingDisk, "gives_back", lambda self: False)
    for name in ("consumequeue/T/0", "rocketbox/position"):
        with pytest.raises(StoreRefused):
            async with open_store(config(tmp_path), now_ms=lambda: 6, disk=LosingDisk(tmp_path / "store" / name)):
                pass
        assert (tmp_path / "store" / name).exists()
    async with open_store(config(tmp_path), now_ms=lambda: 6) as store:
        assert store.has_queue(MessageQueue("T", 0))
