"""The CRC of every record is checked before its bytes leave the box."""

from zlib import crc32

import pytest

from storage_driver.record import Message, encode_record
from uplink_spark.box.cutting.body_check import first_damaged

V4, V6 = b"\x0a\0\0\1\0\0\0\1", bytes(15) + b"\1" + bytes(4)


def record(body: bytes, born: bytes = V4, store: bytes = V4, crc: int | None = None) -> bytes:
    flags = (0x10 if len(born) > 8 else 0) | (0x20 if len(store) > 8 else 0)
    message = Message("T", 0, body, b"", 0, flags, 1, born)
    return bytes(encode_record(message, b"\1T", 0, 0, stored_ms=1, store_host=store, crc=crc))


@pytest.mark.parametrize("born", [V4, V6])
@pytest.mark.parametrize("store", [V4, V6])
def test_the_first_body_that_is_not_what_was_stored_is_named(born: bytes, store: bytes) -> None:
    good, empty = record(b"x" * 300, born, store), record(b"", born, store, crc=7)
    bad = record(b"y" * 300, born, store, crc=crc32(b"z" * 300))
    sizes = [len(each) for each in (good, empty, bad, bad)]
    assert first_damaged(good + empty + bad + bad, sizes) == 2
    assert first_damaged(good + empty, sizes[:2]) is None
    assert first_damaged(b"", []) is None


def test_who_waits_for_the_interpreter_has_turns() -> None:
    one, turns = record(b"x" * 50_000), list[int]()
    assert first_damaged(one * 10, [len(one)] * 10, lambda: turns.append(1)) is None
    assert len(turns) == 4
