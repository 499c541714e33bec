"""The landing zone after a power cut at every call that matters: what was not synced is gone, and nothing was promised.

Each image is the landing zone as the disk has it: names as of the folder's last sync, bytes as of the file's last sync.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from uplink_spark.centre.fleet import all_entries
from uplink_spark.centre.zone_files import landing
from uplink_spark.centre.zone_files.coverage import ShardCover
from uplink_spark.centre.zone_files.landing import NewPiece, ShardWriter, open_zone
from uplink_spark.testing import MadeRecord, encode_log, raw_piece
from uplink_spark.wire.batch import open_piece
from uplink_spark.zone.manifest import ManifestEntry
from uplink_spark.zone.reader import ZoneReader

NOW = 1_700_000_000_000
SIZE, BOX_RECORDS = 97, 12
RAW = encode_log([MadeRecord(queue_offset=n) for n in range(BOX_RECORDS)])


class Disk:
    """Watches the calls of a process and knows what a power cut would leave below a folder."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, after: Callable[[str], None]) -> None:
        self._root, self._after, self._thread = root, after, threading.get_ident()
        self._bytes: dict[int, bytes] = {}  # inode -> bytes at its last sync
        self._names: dict[Path, dict[str, int]] = {}  # folder -> names at its last sync
        for name in ("fsync", "fdatasync", "write", "rename", "replace", "ftruncate"):
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            result = real(*arguments)
            if threading.get_ident() != self._thread:
                return result  # the log's: at its moment a call of the other may be done and not noted yet
            if name in ("fsync", "fdatasync"):
                self._synced(Path(os.readlink(f"/proc/self/fd/{arguments[0]}")), arguments[0])
            self._after(name)
            return result

        return call

    def _synced(self, path: Path, fd: int) -> None:
        if path.is_dir():
            self._names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}
        else:
            self._bytes[os.fstat(fd).st_ino] = path.read_bytes()

    def image(self, target: Path) -> None:
        """Write what the disk would hold now to a fresh folder."""
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        self._copy(self._root, target)

    def _copy(self, folder: Path, target: Path) -> None:
        for name, inode in self._names.get(folder, {}).items():
            path = folder / name
            if path.is_dir():
                (target / name).mkdir()
                self._copy(path, target / name)
            else:
                (target / name).write_bytes(self._bytes.get(inode, b""))


def facts(entry: ManifestEntry) -> tuple[object, ...]:
    return entry.box, entry.epoch, entry.kind, entry.start, entry.end, entry.pack, entry.offset, entry.stored_bytes


def visible(root: Path) -> dict[int, tuple[object, ...]]:
    """What a reader of the zone (Spark's) sees: every entry by seq, its piece opened and its digest checked."""
    zone = ZoneReader(str(root))
    seen: dict[int, tuple[object, ...]] = {}
    for _, entry in all_entries(zone):
        piece = open_piece(zone.files.read_range(entry.pack, entry.offset, entry.stored_bytes))
        piece.check_sha(piece.raw())
        seen[entry.seq] = facts(entry)
    return seen


def one_record(number: int) -> NewPiece:
    start = number * SIZE
    header, container = raw_piece(RAW[start : start + SIZE], start)
    return NewPiece(header, container, ((start, start + SIZE),))


def recovered(root: Path) -> dict[int, tuple[object, ...]]:
    """Open the zone as the next gateway does, land one more record, and return what can be read then."""
    cover, writer = ShardCover(), ShardWriter(root, 0)
    writer.open(cover)
    try:
        writer.commit([one_record(BOX_RECORDS - 1)], NOW)
    finally:
        writer.close()
    return visible(root)


@pytest.mark.slow
def test_no_seq_means_two_things_and_what_was_receipted_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "FILE_ENTRIES", 3)
    root, image, images = tmp_path / "landing", tmp_path / "image", [0]
    receipted: dict[int, tuple[object, ...]] = {}
    busy = [False]

    def power_cut(_call: str) -> None:
        if busy[0] or not (root / "LANDING").exists():
            return
        busy[0] = True
        disk.image(image)
        before = visible(root)  # what a reader may have committed to its table by now
        if (image / "LANDING").exists():
            images[0] += 1
            after = recovered(image)
            assert {seq: after.get(seq) for seq in before} == before
            assert {seq: after.get(seq) for seq in receipted} == receipted
        else:
            assert (before, receipted) == ({}, {})
        busy[0] = False

    disk = Disk(root, monkeypatch, power_cut)
    open_zone(root)
    writer = ShardWriter(root, 0)
    writer.open(ShardCover())
    try:
        for number in range(8):
            entries = writer.commit([one_record(number)], NOW + number)
            receipted |= {entry.seq: facts(entry) for entry in entries}
    finally:
        writer.close()
    print(f"{images[0]} power cuts")
    assert images[0] > 60
    assert len(receipted) == 8
