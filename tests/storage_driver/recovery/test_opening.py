"""What an opening locks, notes and leaves behind, over a disk in memory and a real one."""

import errno
import json
import math
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from storage_driver.config import StoreConfig
from storage_driver.errors import StoreRefused, StoreUnwritable
from storage_driver.files.disk import RealDisk
from storage_driver.files.layout_repair import FOLDERS
from storage_driver.files.memory_layer import MemoryLayer
from storage_driver.files.state_file import StateFile
from storage_driver.index.index_file import IndexSize
from storage_driver.log.cut_history import CutHistory
from storage_driver.record import Message, MessageQueue, encode_host, encode_properties
from storage_driver.recovery.opening import (
    VERDICTS_KEPT,
    Opened,
    open_folder,
    state_path,
    why_refused,
)
from storage_driver.store import open_store
from storage_driver.testing import MemoryDisk
from tests.protection import protected
from uplink_spark.wire.identity import find_fork

HOST = encode_host("127.0.0.1", 10911)
ROOT = Path("/data/store")
NOW = 1_700_000_000_000


def config(root: Path = ROOT, **changes: Any) -> StoreConfig:
    settings: dict[str, Any] = {
        "segment_bytes": 128 * 1024,
        "max_message_bytes": 32 * 1024,
        "queue_file_entries": 100,
        "index_size": IndexSize(50, 200),
    }
    return StoreConfig(root, HOST, **settings | changes)


@pytest.fixture
def ids() -> Iterator[int]:
    return count(1)


def opened(disk: MemoryDisk, ids: Iterator[int], now_ms: int = NOW, **changes: Any) -> Opened:
    return open_folder(
        config(**changes), disk, now_ms=lambda: now_ms, new_id=lambda: next(ids), progress=lambda done, total: None
    )


def empty() -> MemoryDisk:
    return MemoryDisk(folders=("/", "/data"))


def verdicts(disk: MemoryDisk) -> list[str]:
    return [Path(name).name for name in sorted(disk.names) if name.startswith("/data/verdicts/")]


def test_a_first_opening_makes_the_folders_durable_and_says_nothing(ids: Iterator[int]) -> None:
    disk = empty()
    found = opened(disk, ids)
    assert {f"/data/store/{name}" for name in FOLDERS} <= set(disk.stable_names)
    assert "/data/store/rocketbox/identity.json" in disk.stable_names, "an epoch that was used must not come again"
    assert (found.lineage.epochs, found.lineage.runs) == ([(1, 0)], [(2, 0)])
    assert verdicts(disk) == [], "a new store has nothing to tell"


def test_every_later_opening_is_a_run_with_a_verdict(ids: Iterator[int]) -> None:
    disk = empty()
    for number in range(1, 4):
        found = opened(disk.restarted() if number == 1 else disk, ids, NOW + number)
        assert len(found.lineage.runs) == number
        found.lock.release()
    names = verdicts(disk)
    assert names == [f"store-{number:06d}-{NOW + number:015d}.json" for number in (2, 3)]
    raw = disk.inodes[disk.stable_names[f"/data/verdicts/{names[-1]}"]].stable
    said = json.loads(raw)
    assert (said["start"], said["verdict"], said["epoch"], said["run"]) == (
        "2023-11-14T22:13:20Z",
        "clean",
        f"{1:016x}",
        f"{4:016x}",
    )


def test_the_newest_64_verdicts_are_kept(ids: Iterator[int]) -> None:
    disk = empty()
    for number in range(VERDICTS_KEPT + 6):
        opened(disk, ids, NOW + number)
    assert len(verdicts(disk)) == VERDICTS_KEPT
    assert verdicts(disk)[-1] == f"store-{VERDICTS_KEPT + 6:06d}-{NOW + VERDICTS_KEPT + 5:015d}.json"


@pytest.mark.parametrize("now_ms", [-5, 0, 1 << 42, 1 << 62])
def test_a_clock_that_is_wrong_keeps_no_store_from_opening(ids: Iterator[int], now_ms: int) -> None:
    disk = empty()
    opened(disk, ids)
    opened(disk, ids, now_ms)
    assert len(verdicts(disk)) == 1


def test_a_verdict_that_cannot_be_written_is_a_reason_and_no_obstacle(ids: Iterator[int]) -> None:
    disk = empty()
    opened(disk, ids)

    def fail(step: Any) -> None:
        if "/data/verdicts" in str(step.names):
            disk.fail_at = len(disk.steps)

    disk.before = fail
    found = opened(disk, ids)
    assert found.recovered.verdict.reasons == ["verdict not written: Input/output error"]
    assert len(found.lineage.runs) == 2


def test_a_disk_that_fails_while_recovering_refuses_and_lets_the_lock_go(ids: Iterator[int], tmp_path: Path) -> None:
    class Broken(RealDisk):
        """Cannot list the log."""

        broken = True

        def list(self, path: Path) -> Any:
            if self.broken and path.name == "commitlog":
                raise OSError(5, "Input/output error")
            return super().list(path)

    disk, settings = Broken(), config(tmp_path / "store")

    def again() -> Opened:
        return open_folder(
            settings, disk, now_ms=lambda: NOW, new_id=lambda: next(ids), progress=lambda done, total: None
        )

    with pytest.raises(StoreRefused, match=r"the disk fails: .*see the kernel's log"):
        again()
    disk.broken = False
    found = again()
    with pytest.raises(StoreRefused, match="in use by another broker"):
        again()
    found.lock.release()
    again().lock.release()


def test_a_folder_that_cannot_be_made_is_refused_with_the_reason(ids: Iterator[int]) -> None:
    disk = empty()
    disk.fail_at = 0
    with pytest.raises(StoreRefused, match=r"/data/store cannot be used, the disk fails: .*Input/output error"):
        opened(disk, ids)


def test_segments_too_small_for_a_message_are_refused_before_anything_is_made(ids: Iterator[int]) -> None:
    disk = empty()
    with pytest.raises(StoreRefused, match="at least 5"):
        opened(disk, ids, segment_bytes=4 << 20, max_message_bytes=4 << 20)
    assert disk.steps == []


def test_the_boot_is_sixteen_bytes_whatever_the_kernel_says(ids: Iterator[int]) -> None:
    disk = empty()
    for said, wanted in (
        ("ab-cd", b"abcd" + bytes(12)),
        ("0123456789abcdef0123", b"0123456789abcdef"),
        ("", bytes(16)),
    ):
        disk.boot = said
        assert opened(disk, ids).boot == wanted


def test_a_damaged_identity_begins_a_new_epoch_and_is_named(ids: Iterator[int]) -> None:
    disk = empty()
    opened(disk, ids)
    for name in list(disk.names):
        if name.startswith("/data/store/rocketbox/identity.json"):
            disk.inodes[disk.names[name]].bytes = b"{oops"
    found = opened(disk, ids)
    assert found.recovered.verdict.verdict == "repaired"
    assert any("a new epoch begins" in reason for reason in found.recovered.verdict.reasons)
    assert (found.lineage.epoch, len(found.lineage.runs)) == (3, 1)


async def test_an_index_that_misses_its_newest_entries_gets_them_from_the_log(tmp_path: Path) -> None:
    settings = config(tmp_path / "store")
    async with open_store(settings, now_ms=lambda: NOW) as store:
        for number in range(30):
            key = encode_properties({"KEYS": f"k{number}"})
            placed = store.put(Message("T", 0, b"x", key, 0, 0, 1, HOST))
        await store.wait_committed(placed.end)
        await store.prove()
    for path in (settings.root / "index").iterdir():
        path.unlink()
    async with open_store(settings, now_ms=lambda: NOW) as store:
        assert store.verdict.index_rebuilt == 1
        await store.prove()
        assert [len(await store.find_by_key("T", f"k{number}", 9, 0, 1 << 62)) for number in (0, 29)] == [1, 1]


@pytest.mark.parametrize("folder", ["", "..", "commitlog", "config/x", "CONFIG"])
def test_tables_live_in_two_folders_only(folder: str) -> None:
    with pytest.raises(ValueError, match="config or rocketbox"):
        state_path(ROOT, "topics", folder)
    assert state_path(ROOT, "topics", "config") == state_path(ROOT, "topics.json", "config")


def test_of_a_file_that_cannot_be_replaced_both_names_are_told() -> None:
    told = str(StoreUnwritable(PermissionError(1, "Operation not permitted", "t.json.tmp", None, "t.json")))
    assert told == "t.json.tmp → t.json cannot be written: Operation not permitted"


@pytest.mark.parametrize(
    ("number", "cause", "step"),
    [
        (errno.ENOSPC, "the disk is full", "df -i"),
        (errno.EACCES, "protected", "lsattr"),
        (errno.EMFILE, "too many files are open", "LimitNOFILE="),
        (errno.ELOOP, "it is not a folder", "mount"),
        (errno.EIO, "the disk fails", "kernel's log"),
    ],
)
def test_what_keeps_a_store_from_opening_is_told_with_the_next_step(number: int, cause: str, step: str) -> None:
    told = str(why_refused(ROOT, OSError(number, os.strerror(number), "x"), readable=False))
    assert told.startswith(f"{ROOT} cannot be used, ")
    assert cause in told.partition("; ")[0]
    assert step in told.partition("; ")[2]


async def filled(root: Path, count: int) -> None:
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        for _ in range(count):
            placed = store.put(Message("weather", 0, bytes(30_000), b"", 0, 0, NOW, HOST))
            await store.wait_committed(placed.end)


@pytest.mark.slow
async def test_an_old_segment_that_nobody_may_write_is_read(tmp_path: Path) -> None:
    root = tmp_path / "store"
    await filled(root, 10)
    with protected(root / "commitlog/00000000000000000000"):
        async with open_store(config(root), now_ms=lambda: NOW) as store:
            assert [reason.partition(":")[0] for reason in store.verdict.reasons] == ["commitlog/00000000000000000000"]
            await store.wait_committed(store.put(Message("weather", 0, b"new", b"", 0, 0, NOW, HOST)).end)
            assert (await store.read(MessageQueue("weather", 0), 0, max_count=1, max_bytes=1)).next_offset == 1
            assert store.max_offset(MessageQueue("weather", 0)) == 11
    (verdict,) = [json.loads(path.read_text()) for path in (tmp_path / "verdicts").iterdir()]
    assert "read-only" in verdict["reasons"][0]


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [False, True])
async def test_a_file_that_is_to_be_written_and_may_not_be_is_named_and_over_memory_all_is_read(
    tmp_path: Path, damaged: bool
) -> None:
    root = tmp_path / "store"
    await filled(root, 10)
    path = root / "commitlog" / ("00000000000000000000" if damaged else "00000000000000262144")
    if damaged:  # what is found is to be covered
        (root / "rocketbox/position").unlink()
        with path.open("r+b") as file:
            file.seek(40_000)
            file.write(b"spoiled" * 10)
    with protected(path):
        with pytest.raises(StoreUnwritable, match="00000000000000262144 cannot be written" if not damaged else "log"):
            async with open_store(config(root), now_ms=lambda: NOW):
                pass
        async with open_store(config(root), now_ms=lambda: NOW, disk=MemoryLayer()) as store:
            assert store.max_offset(MessageQueue("weather", 0)) == 10
            assert len(store.verdict.quarantined) == damaged


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "commitlog", "consumequeue", "index", "rocketbox"])
@pytest.mark.parametrize("locked", [True, False])
async def test_a_folder_that_takes_no_files_is_named_and_over_memory_all_is_read(
    tmp_path: Path, name: str, locked: bool
) -> None:
    root = tmp_path / "store"
    await filled(root, 10)
    if not locked:
        (root / "lock").unlink()
    with protected(root / name):
        with pytest.raises(StoreUnwritable, match=f"{root / name}.* cannot be written"):
            async with open_store(config(root), now_ms=lambda: NOW):
                pass
        async with open_store(config(root), now_ms=lambda: NOW, disk=MemoryLayer()) as store:
            assert store.max_offset(MessageQueue("weather", 0)) == 10


@pytest.mark.slow
async def test_what_is_only_read_tells_the_gateway_no_run_that_is_not_kept(tmp_path: Path) -> None:
    root = tmp_path / "store"
    await filled(root, 10)
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        kept = store.lineage.runs
    async with open_store(config(root, read_only=True), now_ms=lambda: NOW, disk=MemoryLayer()) as store:
        told, durable = store.lineage.runs, store.synced
    assert told == kept
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        assert find_fork(told, store.lineage.runs, durable, durable) is None


async def test_tables_that_cannot_be_saved_keep_no_messages_off_and_are_told_until_they_can(tmp_path: Path) -> None:
    root = tmp_path / "store"
    await filled(root, 1)
    async with open_store(config(root), now_ms=lambda: NOW) as store:
        table = store.state_file("topics")
        with protected(root / "config"):
            with pytest.raises(PermissionError):
                await table.write({})
            assert store.unsaved() == [f"config/topics.json: {os.strerror(errno.EPERM)}"]
        await table.write({})
        assert store.unsaved() == []
    with protected(root / "config"):
        async with open_store(config(root), now_ms=lambda: NOW) as store:
            await store.wait_committed(store.put(Message("weather", 0, b"new", b"", 0, 0, NOW, HOST)).end)


TOLD = {"number": 1, "found_ms": 5, "reasons": ["r"], "witnesses": {}, "messages": 1, "queues": [], "more": 0}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("losses.json", {"layout": 1, "losses": [{**TOLD, "ranges": []}]}),
        ("rebuilding.json", {"layout": 1, "queues": [["", 0]]}),
        ("rebuilding.json", {"layout": 1, "queues": [["..", 0]]}),
        ("rebuilding.json", {"layout": 1, "queues": [["T" * 300, 0]]}),
        ("queues.json", {"layout": 1, "asOf": 99, "queues": [["", 1, 30, 0, 99]]}),
        ("queues.json", {"layout": 1, "asOf": 99, "queues": [["../../config", 1, 30, 0, 99]]}),
        ("unwritable.json", {"base": 0, "at": math.inf}),
        ("cuts.json", {"cuts": [{"log_offset": 5, "end": math.inf, "reason": "x", "quarantined": [], "messages": 2}]}),
        ("cuts.json", {"cuts": ["x"]}),
    ],
)
def test_numbers_and_names_that_nobody_wrote_keep_no_store_from_starting(
    name: str, content: object, ids: Iterator[int]
) -> None:
    disk = empty()
    opened(disk, ids).lock.release()
    StateFile(disk, ROOT / "rocketbox" / name).save(content)
    again = opened(disk, ids)
    assert again.recovered.end == 0
    assert CutHistory(disk, ROOT).unacknowledged() == []
    again.lock.release()
