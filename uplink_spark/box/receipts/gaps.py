"""The gap log: what left the box unshipped, declared and synced before the bytes go.

u32 length, u32 CRC-32, CBOR: {v, epoch, run, rstart, start, end, gap: {id, class, reason, ...}}
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage_driver.files.unreadable import read_around
from uplink_spark.errors import PieceDamaged
from uplink_spark.wire.cbor import decode_map, encode_map
from uplink_spark.wire.durable import refuse_huge, sync_folder, write_synced

ITEM = struct.Struct(">II")
MAX_QUEUES = 2000
KEPT_GAPS = 10_000


@dataclass(frozen=True, slots=True)
class Gap:
    """One declared loss."""

    epoch: int
    run: int
    run_start: int
    start: int
    end: int
    facts: dict[str, Any]  # id, class, reason, since, until, declared, queues, records, bytes

    @property
    def gap_id(self) -> tuple[int, int]:
        return self.facts["id"][0], self.facts["id"][1]

    def encode(self) -> bytes:
        body = encode_map(
            {
                "v": 1,
                "epoch": self.epoch,
                "run": self.run,
                "rstart": self.run_start,
                "start": self.start,
                "end": self.end,
                "gap": self.facts,
            }
        )
        return ITEM.pack(len(body), zlib.crc32(body)) + body


def decode_gaps(data: bytes) -> Iterator[tuple[int, Gap]]:
    """Yield (end of item, gap) for every whole item; a torn or damaged tail ends it."""
    at = 0
    while at + ITEM.size <= len(data):
        length, crc = ITEM.unpack_from(data, at)
        body = data[at + ITEM.size : at + ITEM.size + length]
        if len(body) < length or zlib.crc32(body) != crc:
            return
        try:
            m: dict[str, Any] = decode_map(body)
        except PieceDamaged:
            return
        at += ITEM.size + length
        yield at, Gap(m["epoch"], m["run"], m["rstart"], m["start"], m["end"], m["gap"])


def gaps_behind(data: bytes, at: int) -> list[Gap]:
    """Return what is whole behind an item that is not: nothing behind a torn tail."""
    found: list[Gap] = []
    while at + ITEM.size <= len(data):
        length, _ = ITEM.unpack_from(data, at)
        whole = next(decode_gaps(data[at : at + ITEM.size + length]), None) if 0 < length <= len(data) - at else None
        if whole is None:
            at += 1
        else:
            found.append(whole[1])
            at += whole[0]
    return found


class GapLog:
    """The file, appended and synced; opened once, torn tail cut."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.gaps: list[Gap] = []
        self.damage: str | None = None  # what was found instead of an item, with others behind it

    def open(self) -> None:
        fresh, self.gaps = not self._path.exists(), []
        with open(self._path, "ab+") as file:
            refuse_huge(self._path, file.tell())
            (data, unreadable), end = read_around(self._path), 0
            for whole, gap in decode_gaps(data):
                self.gaps.append(gap)
                end = whole
            behind = gaps_behind(data, end)
            if end < len(data) and not behind and not unreadable:
                file.truncate(end)
            os.fsync(file.fileno())
        if fresh:
            sync_folder(self._path.parent)
        if behind or unreadable:
            aside = self._path.with_name(self._path.name + ".damaged")
            write_synced(aside, data)
            self.damage = (
                f"{self._path.name}: damaged at byte {end}, {len(behind)} losses after it are kept; see {aside}"
            )
            self.compact(self.gaps + behind)

    def append(self, gap: Gap) -> None:
        """Make a gap durable; only then may its bytes go. Raises OSError, and then nothing of it is left."""
        item = gap.encode()
        with open(self._path, "ab", buffering=0) as file:
            end = file.tell()
            try:
                if file.write(item) < len(item):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            except OSError:
                file.truncate(end)  # whatever follows half an item would be cut off with it at the next start
                raise
        self.gaps.append(gap)

    def compact(self, keep: list[Gap]) -> None:
        """Rewrite the file with these gaps only. Raises OSError."""
        write_synced(self._path, b"".join(gap.encode() for gap in keep))
        self.gaps = keep
