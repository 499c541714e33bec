from pathlib import Path

from storage_driver.log.scan import Bad, next_good, walk
from storage_driver.log.segment import Segment
from storage_driver.record import MAGIC_V1, DispatchEntry, Message, encode_host, encode_record
from storage_driver.testing import MemoryDisk, MemoryFile

HOST = encode_host("10.0.0.1", 10911)
SIZE = 1 << 20


class CountingFile(MemoryFile):
    """Counts the bytes read."""

    count = 0

    def read(self, count: int, at: int) -> bytes:
        data = super().read(count, at)
        self.count += len(data)
        return data


def test_heads_within_a_body_make_the_search_for_the_next_record_no_longer() -> None:
    head = (SIZE // 2).to_bytes(4, "big") + MAGIC_V1.to_bytes(4, "big", signed=True) + bytes(28)
    message = Message("T", 0, head * 5000, b"", 0, 0, 1, HOST)
    first = encode_record(message, b"\x01T", 0, 0, stored_ms=1, store_host=HOST)
    second = encode_record(message, b"\x01T", 1, len(first), stored_ms=1, store_host=HOST)
    disk = MemoryDisk({"/log": (bytes(8) + first[8:] + second).ljust(SIZE, b"\0")})
    file = CountingFile(disk, disk.inodes[1])
    segment = Segment(0, SIZE, Path("/log"), file)
    assert isinstance(next(walk(segment, 0)), Bad)
    file.count = 0
    assert next_good(segment, 1) == len(first)
    assert file.count < 3 * SIZE
    assert isinstance(next(walk(segment, len(first))), DispatchEntry)
