"""Whatever stands where a file or a folder of the store belongs: it starts, says so, and has every message."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from storage_driver.config import StoreConfig
from storage_driver.errors import StoreRefused
from storage_driver.files.disk import Disk
from storage_driver.files.layout_repair import FOLDERS
from storage_driver.files.memory_layer import MemoryLayer
from storage_driver.index.index_file import IndexSize
from storage_driver.record import Message, MessageQueue, encode_host
from storage_driver.store import MessageStore, open_store

HOST = encode_host("127.0.0.1", 10911)
pytestmark = pytest.mark.slow

QUEUE = MessageQueue("weather", 0)
FILES = (
    *("lock", "abort", "checkpoint", "rocketbox/position", "rocketbox/queues.json", "rocketbox/clock.json"),
    *("rocketbox/first", "rocketbox/uplink.cbor", "rocketbox/gaps.log"),
    *("rocketbox/identity.json.bak", "rocketbox/clock.json.tmp", "config/topics.json", "config/topics.json.tmp"),
    *("queue.tmp", "spare.tmp", "index/20231114221320000", "consumequeue/weather/0/00000000000000000000"),
)


def opening(data: Path, disk: Disk | None = None) -> Any:
    config = StoreConfig(
        data / "store",
        HOST,
        segment_bytes=1 << 20,
        max_message_bytes=64 << 10,
        queue_file_entries=100,
        index_size=IndexSize(50, 200),
    )
    return open_store(config, now_ms=lambda: 1_700_000_000_000, disk=disk)


async def put(store: MessageStore, body: bytes) -> None:
    placed = store.put(Message(*QUEUE, body, b"KEYS\1k\2", 0, 0, 1_700_000_000_000, HOST))
    await store.wait_committed(placed.end)


async def filled(data: Path) -> None:
    async with opening(data) as store:
        for number in range(10):
            await put(store, b"%d" % number)
        await store.state_file("topics").write({"topicConfigTable": {}})
        await store.prove()
        await store.find_by_key("weather", "k", 1, 0, 1 << 60)


def make_folder(path: Path) -> None:
    (path / "something").mkdir(parents=True)


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def make_link_to_nowhere(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


def make_file(path: Path) -> None:
    path.write_text("not a folder")


def replace(path: Path, make: Callable[[Path], None]) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    make(path)


async def all_is_there(data: Path, queue: MessageQueue = QUEUE) -> list[str]:
    async with opening(data) as store:
        await put(store, b"10")
        found = await store.read(queue, 0, max_count=32, max_bytes=1 << 20)
        assert found.next_offset == 11
        return list(store.verdict.reasons)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("make", [make_folder, make_pipe, make_loop, make_link_to_nowhere])
async def test_what_stands_in_place_of_a_file_goes_aside(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    await filled(tmp_path)
    replace(tmp_path / "store" / name, make)
    reasons = await all_is_there(tmp_path)
    assert any(name in reason or os.path.dirname(name) in reason for reason in reasons), reasons
    async with opening(tmp_path) as store:
        assert (store.verdict.verdict, store.max_offset(QUEUE)) == ("clean", 11)


@pytest.mark.parametrize("name", [*FOLDERS[1:], "quarantine", "rocketbox/timers"])
@pytest.mark.parametrize("make", [make_file, make_pipe])
async def test_what_stands_in_place_of_a_folder_goes_aside(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    await filled(tmp_path)
    replace(tmp_path / "store" / name, make)
    reasons = await all_is_there(tmp_path)
    assert any(f"{name}: " in reason for reason in reasons), reasons


@pytest.mark.parametrize("name", ["consumequeue/weather", "consumequeue/weather/0"])
@pytest.mark.parametrize("make", [make_file, make_pipe, make_link_to_nowhere, make_loop])
async def test_a_queue_whose_folder_is_none_is_made_anew(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    await filled(tmp_path)
    replace(tmp_path / "store" / name, make)
    assert any("rebuilt" in reason for reason in await all_is_there(tmp_path))


@pytest.mark.parametrize(
    "name",
    ["config/topics.json", "config/x.json", *(f"rocketbox/{each}.json" for each in ("identity", "queues", "clock"))],
)
async def test_a_table_that_no_memory_holds_is_a_damaged_one(tmp_path: Path, name: str) -> None:
    await filled(tmp_path)
    path = tmp_path / "store" / name
    path.touch()
    os.truncate(path, 8 << 40)
    reasons = await all_is_there(tmp_path)
    assert any(reason.startswith(f"{name}: {8 << 40} bytes") for reason in reasons), reasons


@pytest.mark.parametrize("name", ["commitlog", "commitlog/00000000000000000000"])
async def test_a_log_behind_a_link_to_nowhere_is_waited_for(tmp_path: Path, name: str) -> None:
    await filled(tmp_path)
    place, elsewhere = tmp_path / "store" / name, tmp_path / "mounted"
    place.rename(tmp_path / "not mounted")
    place.symlink_to(elsewhere)
    with pytest.raises(StoreRefused, match=f"{name} is a dangling symbolic link: mount the disk"):
        await all_is_there(tmp_path)

    (tmp_path / "not mounted").rename(elsewhere)
    assert await all_is_there(tmp_path) == []


async def test_a_foreign_pipe_in_a_folder_is_left_alone(tmp_path: Path) -> None:
    await filled(tmp_path)
    os.mkfifo(tmp_path / "store/config/notes")
    assert await all_is_there(tmp_path) == []


async def test_a_segment_behind_a_link_is_as_long_as_what_it_leads_to(tmp_path: Path) -> None:
    await filled(tmp_path)
    place = tmp_path / "store/commitlog/00000000000000000000"
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    assert await all_is_there(tmp_path) == []


@pytest.mark.parametrize("name", ["rocketbox/spool", "config/rocksdb"])
async def test_folders_of_others_stay_where_they_are(tmp_path: Path, name: str) -> None:
    async with opening(tmp_path):
        pass
    kept = tmp_path / "store" / name / "1.piece"
    kept.parent.mkdir()
    kept.write_bytes(b"not shipped yet")
    async with opening(tmp_path) as store:
        assert store.verdict.verdict == "clean"
    assert kept.read_bytes() == b"not shipped yet"


async def test_what_went_aside_before_is_in_nobodys_way(tmp_path: Path) -> None:
    await filled(tmp_path)
    for make in (make_link_to_nowhere, make_folder, make_loop, make_pipe, make_folder):
        replace(tmp_path / "store/checkpoint", make)
        assert await all_are_there(tmp_path)
    aside = [path.name for path in (tmp_path / "store/quarantine").iterdir()]
    assert sorted(aside) == [f"store-checkpoint{'+' * number}" for number in range(5)]


@pytest.mark.parametrize("name", ["\u6f22" * 85, "\u0661" * 20])  # 255 bytes; digits that are not ours
@pytest.mark.parametrize("make", [make_file, make_loop])
async def test_a_foreign_file_of_the_log_goes_aside_whatever_its_name_is(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    await filled(tmp_path)
    make(tmp_path / "store/commitlog" / name)
    assert await all_are_there(tmp_path)


@pytest.mark.parametrize("name", ["abort", "rocketbox/queues.json", "config/topics.json", "commitlog/notes"])
@pytest.mark.parametrize("make", [make_folder, make_pipe, make_loop])
async def test_a_disk_that_is_only_read_is_read_whatever_stands_in_place_of_a_file(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    await filled(tmp_path)
    replace(tmp_path / "store" / name, make)
    with trio.fail_after(10):
        async with opening(tmp_path, MemoryLayer()) as store:
            assert store.max_offset(QUEUE) == 10


async def all_are_there(data: Path) -> bool:
    async with opening(data) as store:
        return bool(store.max_offset(QUEUE) == 10)
