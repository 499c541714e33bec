"""fsck over index files: sound ones have no finding, each kind of harm has one."""

from pathlib import Path

import pytest

from storage_driver import fsck
from storage_driver.config import StoreConfig
from storage_driver.index.index_file import UNIT, IndexSize
from storage_driver.index.index_slots import HEADER
from storage_driver.record import Message, encode_host, encode_properties
from storage_driver.store import open_store

HOST = encode_host("127.0.0.1", 10911)
SIZE = IndexSize(16, 50)


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        root, HOST, segment_bytes=128 * 1024, max_message_bytes=32 * 1024, queue_file_entries=100, index_size=SIZE
    )


async def filled(tmp_path: Path, body_bytes: int = 900) -> Path:
    """Return a store of 60 messages with three keys each, some the same, in four index files."""
    root = tmp_path / "data" / "store"
    async with open_store(config(root), now_ms=lambda: 5) as store:
        for number in range(60):
            properties = encode_properties({"UNIQ_KEY": f"u{number}", "KEYS": f"k{number} all"})
            flag = 0xC if number == 30 else 0
            placed = store.put(Message("T", number % 2, bytes(body_bytes), properties, 0, flag, 1, HOST))
            await store.wait_committed(placed.end)
        while store.statistics().index_to < store.committed:
            await store.prove()
        await store.prove()
    return root


def findings(root: Path) -> list[str]:
    return fsck.check(root, index_size=SIZE).findings


def scribble(path: Path, at: int, raw: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(raw)


@pytest.mark.slow
async def test_a_sound_index_has_no_finding_also_where_its_files_end_between_two_keys(tmp_path: Path) -> None:
    root = await filled(tmp_path)
    report = fsck.check(root, index_size=SIZE)
    assert (report.findings, report.keys_checked) == ([], 59 * 3)
    for path in (root / "index").iterdir():
        raw = path.read_bytes()
        slots = [any(raw[at : at + 4]) for at in range(HEADER.size, HEADER.size + 4 * SIZE.slots, 4)]
        assert HEADER.unpack_from(raw)[4] == sum(slots)


@pytest.mark.slow
async def test_entries_of_records_that_left_with_the_log_are_no_finding(tmp_path: Path) -> None:
    root = await filled(tmp_path, body_bytes=9000)
    async with open_store(config(root), now_ms=lambda: 5) as store:
        assert await store.drop_first()
        assert store.first > 0
    assert len(list((root / "index").iterdir())) == 4  # the oldest speaks of what is still there, too
    assert findings(root) == []


@pytest.mark.slow
async def test_each_harm_to_the_index_is_named(tmp_path: Path) -> None:
    root = await filled(tmp_path)
    first, second, *_ = sorted((root / "index").iterdir())
    unit = HEADER.size + 4 * SIZE.slots + 20 * UNIT.size
    slot = next(n for n in range(SIZE.slots) if any(first.read_bytes()[HEADER.size + 4 * n :][:4]))
    for path, at, raw, text in (
        (first, unit, bytes(4), "keys are missing"),
        (first, unit + 4, (1 << 40).to_bytes(8, "big"), "keys are missing"),
        (first, unit + 4, bytes(8), "point to no record"),
        (first, unit + 16, (60).to_bytes(4, "big"), "leads to 60, the one before it is"),
        (first, HEADER.size + 4 * slot, bytes(4), f"slot {slot} leads to unit 0"),
        (second, 36, (70).to_bytes(4, "big"), "70 entries"),
    ):
        before = path.read_bytes()
        scribble(path, at, raw)
        found = findings(root)
        assert any(text in each for each in found), (text, found)
        path.write_bytes(before)
    assert findings(root) == []
    second.rename(root / "other")
    assert [text for text in findings(root) if text.startswith("index: 49 keys are missing")]
    (root / "config" / "topics.json").write_bytes(b"{")
    assert [text for text in findings(root) if text.startswith("config/topics.json")]
