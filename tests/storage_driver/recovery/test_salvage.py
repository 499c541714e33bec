"""Records made by RocketMQ itself go through a salvage unchanged but for where they lie."""

from pathlib import Path

import pytest

from storage_driver.log.scan import Blank, walk
from storage_driver.log.segment import Segment, segment_name
from storage_driver.record import (
    BLANK,
    BLANK_BYTES,
    MAGIC_BLANK,
    DispatchEntry,
    Message,
    StoredMessage,
    decode_record,
    encode_host,
    encode_record,
    encode_topic,
)
from storage_driver.recovery.salvage import SalvageWriter
from storage_driver.testing import V1, V2, V3, V4, V5, V6, MemoryDisk

ROOT = Path("/out")
HOST = encode_host("127.0.0.1", 10911)


def salvaged(messages: list[StoredMessage], size: int) -> tuple[MemoryDisk, int]:
    disk = MemoryDisk(folders=("/", "/out"))
    writer = SalvageWriter(disk, ROOT, size)
    for each in messages:
        writer.add(each)
    writer.finish()
    return disk, writer.end


def stable(disk: MemoryDisk) -> dict[str, bytes]:
    """The log's files as a power cut right after `finish` leaves them."""
    return {
        Path(name).name: disk.inodes[number].stable
        for name, number in disk.stable_names.items()
        if name.startswith("/out/commitlog/")
    }


def message(number: int, body: bytes) -> StoredMessage:
    made = Message("T", 0, body, b"", 0, 0, 1, HOST)
    return decode_record(encode_record(made, encode_topic("T"), number, 7777, stored_ms=2, store_host=HOST))


@pytest.mark.parametrize("raw", [V1, V2, V3, V4, V5], ids=["v1", "v2", "ipv6", "delayed", "crc 0"])
def test_a_record_keeps_every_byte_but_its_place(raw: bytes) -> None:
    disk, end = salvaged([decode_record(raw)], 4096)
    found = stable(disk)[segment_name(0)][:end]
    assert end == len(raw)
    assert found[:28] == raw[:28]
    assert found[28:36] == bytes(8)
    assert found[36:] == raw[36:]


def test_a_record_of_the_newer_format_becomes_one_of_ours_with_the_same_content() -> None:
    before = decode_record(V6)
    disk, end = salvaged([before], 4096)
    after = decode_record(stable(disk)[segment_name(0)][:end])
    kept = ("topic", "queue_id", "queue_offset", "body", "properties", "born_ms", "stored_ms", "sys_flag", "store_host")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]


def test_numbers_that_were_lost_stay_lost_and_order_stays() -> None:
    disk, end = salvaged([message(number, b"x") for number in (3, 4, 9)], 4096)
    raw, at, found = stable(disk)[segment_name(0)], 0, []
    while at < end:
        each = decode_record(raw, at)
        assert each.log_offset == at
        found.append(each.queue_offset)
        at += each.size
    assert found == [3, 4, 9]


def test_segments_are_full_length_end_in_a_blank_and_are_walked_to_their_end() -> None:
    size = 1000
    disk, end = salvaged([message(number, b"x" * 100) for number in range(12)], size)
    files, found = stable(disk), []
    assert {len(content) for content in files.values()} == {size}
    for name in sorted(files):
        path = ROOT / "commitlog" / name
        for item in walk(Segment(int(name), size, path, disk.open(path)), int(name)):
            if isinstance(item, Blank):
                assert files[name][item.log_offset - int(name) :][:8] == BLANK.pack(
                    int(name) + size - item.log_offset, MAGIC_BLANK
                )
            elif isinstance(item, DispatchEntry):
                found.append(item.queue_offset)
            else:
                assert item.log_offset == end, "only zeros behind the last message"
    assert found == list(range(12))
    assert end // size == len(files) - 1


@pytest.mark.parametrize(("spare", "files"), [(BLANK_BYTES, 1), (BLANK_BYTES - 1, 2)])
def test_room_for_the_blank_is_kept_to_the_byte(spare: int, files: int) -> None:
    one = message(0, b"x" * 50)
    disk, _ = salvaged([one, message(1, b"x" * 50)], 2 * one.size + spare)
    assert len(stable(disk)) == files


def test_nothing_salvaged_leaves_an_empty_log() -> None:
    disk, end = salvaged([], 4096)
    assert (stable(disk), end) == ({}, 0)
