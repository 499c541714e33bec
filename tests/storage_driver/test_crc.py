import subprocess
import sys
import zlib
from random import Random

import pytest

from storage_driver.crc import crc32

WITHOUT = """
import sys, zlib
sys.modules["isal"] = None
from storage_driver.crc import crc32
assert crc32 is zlib.crc32
"""


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 63, 64, 255, 1024, 5 * 1024, 5 * 1024 + 1, 70_001])
def test_the_sum_is_that_of_zlib_at_every_length_and_place(size: int) -> None:
    data = Random(size).randbytes(size + 64)
    for at in (0, 1, 7, 33):
        piece = memoryview(data)[at : at + size]
        assert crc32(piece) == crc32(bytes(piece)) == zlib.crc32(piece)
        assert crc32(piece, 0xFFFFFFFF) == zlib.crc32(piece, 0xFFFFFFFF)


def test_without_its_library_the_sum_is_computed_by_zlib() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT], check=True)
