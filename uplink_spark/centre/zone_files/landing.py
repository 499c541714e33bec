"""Packs and manifest on a POSIX directory: what a receipt promises is synced here before anybody hears of it.

One commit is: pack under a temporary name, fsync, rename, fsync the folder; entries, fdatasync; mark. The calls block
and belong in a thread.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from storage_driver.files.disk import ask_journal
from uplink_spark.centre.histogram import Histogram
from uplink_spark.centre.zone_files.adopt import Judge, entries_of, packs_from
from uplink_spark.centre.zone_files.shard_lock import ShardLock
from uplink_spark.errors import LandingError, ManifestDamaged, PieceDamaged, UplinkError
from uplink_spark.wire.batch import PieceHeader
from uplink_spark.wire.durable import sync_folder, write_synced
from uplink_spark.wire.failpoints import Failpoint, no_failpoint
from uplink_spark.zone.manifest import (
    FILE_ENTRIES,
    LANDING_NAME,
    ManifestEntry,
    Placement,
    Zone,
    decode_zone,
    encode_items,
    encode_mark,
    entry_of,
    file_head,
    first_seq_of,
    goes_on,
    manifest_folder,
    manifest_path,
    pack_path,
    read_head,
    read_items,
)
from uplink_spark.zone.rollup import RollUp

log = logging.getLogger("uplink_spark.gateway")
RESTORE = "restore it from a copy of the landing zone"


class Covering(Protocol):
    """Who keeps the sum of a shard's entries (coverage.ShardCover)."""

    def note(self, entry: ManifestEntry) -> None: ...
    def draft(self) -> Judge: ...
    def encode(self, next_seq: int) -> bytes: ...
    def load(self, data: bytes, first_seq: int) -> int: ...


@dataclass(frozen=True, slots=True)
class NewPiece:
    """A verified piece and the parts of its range that are new."""

    header: PieceHeader
    container: bytes
    parts: tuple[tuple[int, int], ...]  # log offsets
    gap: dict[str, Any] | None = None
    heals: int = 0


def make_folders(root: Path, relative: str) -> Path:
    """Create root/relative; each new folder's name is synced in its parent."""
    path = root
    for name in Path(relative).parts:
        path = path / name
        if not path.is_dir():
            path.mkdir(exist_ok=True)
            sync_folder(path.parent)
    return path


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def open_zone(root: Path, shards: int = 1) -> Zone:
    """Return the landing zone at root, made there if it is new. Raises LandingError."""
    try:
        make_folders(root.parent if root.parent != root else root, root.name)
        path = root / LANDING_NAME
        if not path.exists():
            write_synced(path, Zone(secrets.token_bytes(16), shards).encode())
            log.warning("landing zone %s is new; if it should exist, is its file system mounted?", root)
        return decode_zone(path.read_bytes())
    except OSError as error:
        raise LandingError(f"landing zone {root}: {error.strerror}; is it mounted and writable?") from error
    except ManifestDamaged as error:
        raise LandingError(f"landing zone {root}: {error}") from error


class LandedBefore(UplinkError):
    """A commit that failed as far as anyone could tell had landed: these are its entries; judge again."""

    def __init__(self, entries: Sequence[ManifestEntry]) -> None:
        super().__init__(f"seq {entries[0].seq} had landed, its receipt was lost")
        self.entries = tuple(entries)


class _Folder:
    """The files of a landing zone, as RollUp needs them."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self, folder: str) -> list[str]:
        path = self._root / folder
        return os.listdir(path) if path.is_dir() else []

    def replace(self, path: str, data: bytes) -> None:
        make_folders(self._root, path.rpartition("/")[0])
        write_synced(self._root / path, data)

    def delete(self, path: str) -> None:
        (self._root / path).unlink(missing_ok=True)


class ShardWriter:
    """The one writer of a shard: its lock, its packs, its manifest files."""

    def __init__(self, root: Path, shard: int, *, step: Failpoint = no_failpoint) -> None:
        self.root, self.shard, self._step = root, shard, step
        self.next_seq = self.first_seq = 0
        self.landed_ms = 0  # never decreases in a shard
        self.syncs = Histogram()
        self._lock = ShardLock(root / manifest_folder(shard) / "lock", f"shard {shard:04x} of {root}")
        self._file = -1
        self._last: ManifestEntry | None = None  # the newest the start has read
        self._rollup = RollUp(shard, _Folder(root))
        self._cover: Covering

    def open(self, cover: Covering) -> None:
        """Lock, load the newest state, show every later entry to cover, drop a torn tail, mark what was not marked.

        What whole packs hold after the last entry gets its entries again.
        """
        folder = make_folders(self.root, manifest_folder(self.shard))
        self._lock.take()
        self._cover = cover
        firsts = sorted(n for n in (first_seq_of(name) for name in os.listdir(folder)) if n is not None)
        wanted, read = self._load_state(firsts), list[Sequence[ManifestEntry]]()
        for first in wanted:
            if first != wanted[0] and first != self.next_seq:
                path = self.root / manifest_path(self.shard, self.first_seq)
                raise LandingError(f"{path}: ends at seq {self.next_seq}, the next file begins at {first}; {RESTORE}")
            read.append(self._read_file(first))
            for entry in read[-1]:
                self.landed_ms = max(self.landed_ms, entry.landed_ms)
                cover.note(entry)
                self._last = entry
        if not firsts:
            self._new_file()
        for path in (self.root / f"pack/{self.shard:04x}").glob("*/*.tmp"):
            path.unlink()
        self._begin_rollup(wanted[0] if wanted else 0, read)
        self._adopt()

    def _begin_rollup(self, oldest: int, read: Sequence[Sequence[ManifestEntry]]) -> None:
        self._rollup.begin(oldest, self.next_seq)
        for entries in read:
            self._rollup.note(entries)

    def _load_state(self, firsts: list[int]) -> list[int]:
        """Load the newest state that is whole and return the files to read after it."""
        for at in range(len(firsts) - 1, -1, -1):
            path = self.root / manifest_path(self.shard, firsts[at], "state")
            try:
                self.landed_ms = self._cover.load(path.read_bytes(), firsts[at])
                return firsts[at:]
            except (FileNotFoundError, ManifestDamaged):
                continue
        if firsts and firsts[0]:
            what = (
                f"shard {self.shard:04x} of {self.root}: entries below {firsts[0]} are missing and no state is intact"
            )
            raise LandingError(f"{what}; restore manifest/{self.shard:04x}/{firsts[0]:020d}.state from a copy")
        return firsts

    def _read_file(self, first: int) -> Sequence[ManifestEntry]:
        path = self.root / manifest_path(self.shard, first)
        data = path.read_bytes()
        try:
            return self._take(path, first, data)
        except ManifestDamaged as error:
            raise LandingError(f"{path}: {error}; {RESTORE}") from error

    def _take(self, path: Path, first: int, data: bytes) -> Sequence[ManifestEntry]:
        head = read_head(data, self.shard, first)
        if not head:  # made, but the power went before its head was there
            path.unlink()
            self.next_seq = first
            self._new_file()
            return ()
        part = read_items(data[head:], first)
        if self._file >= 0:
            os.close(self._file)
        self._file = os.open(path, os.O_RDWR)
        self.first_seq = first
        entries = part.entries + part.pending
        seq = first + len(entries)
        if part.fault is not None and goes_on(data, head + part.whole, seq):
            raise ManifestDamaged(f"from seq {seq} on {part.fault}, and entries after it have receipts")
        self.next_seq = seq
        keep = head + part.whole
        if keep < len(data):
            os.ftruncate(self._file, keep)
        os.lseek(self._file, keep, os.SEEK_SET)
        if part.pending or part.marked != part.whole or keep < len(data):
            os.fdatasync(self._file)
            _write(self._file, encode_mark(self.next_seq))
        return entries

    def _adopt(self) -> None:
        """Give what is in packs after the last entry its entries again, which the next commit's must not replace.

        Raises LandingError where a pack shows that more is gone.
        """
        if self._last is not None:  # its pack may hold more than the entries tell
            try:
                self._adopt_pack(self.root / self._last.pack, self._last.offset)
            except (OSError, PieceDamaged) as error:  # retention has been there, or `check` will tell
                log.info("newest pack not checked: %s", error)
        behind = packs_from(self.root, self.shard, self.next_seq)
        while (attempts := behind.pop(self.next_seq, None)) is not None:
            for path in attempts[:-1]:
                path.unlink()
            try:
                self._adopt_pack(attempts[-1], 0)
            except (OSError, PieceDamaged) as error:
                if behind:
                    raise LandingError(f"{error}; {RESTORE}") from error
                log.warning("pack removed path=%s reason=%s: left by an unfinished commit", attempts[-1], error)
                attempts[-1].unlink()
                break
        if behind:
            path = behind[min(behind)][-1]
            text = f"{path} was receipted, the manifest ends at seq {self.next_seq}"
            name = manifest_path(self.shard, self.first_seq)
            raise LandingError(f"{text}; restore {name} from a copy of the landing zone")

    def _adopt_pack(self, path: Path, at: int) -> None:
        landed_ms = max(self.landed_ms, path.stat().st_mtime_ns // 1_000_000)
        place = Placement(self.next_seq, str(path.relative_to(self.root)), at, 0, 0, landed_ms)
        with open(path, "rb") as file:
            entries = entries_of(str(path), file, place, self._cover.draft())
        if not entries:
            return
        if self.next_seq - self.first_seq >= FILE_ENTRIES:
            self._new_file()
        self._append(entries)
        self.landed_ms = landed_ms
        for entry in entries:
            self._cover.note(entry)
        log.warning("pack %s has its entries again, seq %d..%d", path, entries[0].seq, entries[-1].seq)

    def _new_file(self) -> None:
        path = self.root / manifest_path(self.shard, self.next_seq)
        if self._file >= 0:
            os.fdatasync(self._file)  # its last mark: a start reads no file older than the state and cannot mend it
        if self.next_seq:
            self._step("G6")
            write_synced(path.with_suffix(".state"), self._cover.encode(self.next_seq))
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            _write(file, file_head(self.shard, self.next_seq))
            os.fsync(file)
            sync_folder(path.parent)
        except OSError:
            os.close(file)  # the next commit tries again: no entry may follow a head that is not whole
            raise
        if self._file >= 0:
            os.close(self._file)
        self._file, self.first_seq = file, self.next_seq

    def commit(self, pieces: Sequence[NewPiece], now_ms: int) -> list[ManifestEntry]:
        """Land pieces in one pack and return their entries, durable and visible, in order.

        Raises OSError, and LandingError where the shard is another gateway's.
        """
        self._lock.check()
        self.landed_ms = max(self.landed_ms, now_ms)
        if self.next_seq - self.first_seq >= FILE_ENTRIES:
            self._new_file()
        pack = pack_path(self.shard, self.landed_ms, self.next_seq)
        entries: list[ManifestEntry] = []
        offset, seq = 0, self.next_seq
        for piece in pieces:
            for start, end in piece.parts:
                place = Placement(seq, pack, offset, start, end, self.landed_ms, piece.heals)
                entries.append(entry_of(piece.header, len(piece.container), place, piece.gap))
                seq += 1
            offset += len(piece.container)
        self._write_pack(pack, [piece.container for piece in pieces])
        self._step("G3")
        self._append(entries)
        return entries

    def _write_pack(self, pack: str, containers: Sequence[bytes]) -> None:
        folder = make_folders(self.root, pack.rpartition("/")[0])
        path = self.root / pack
        temporary = folder / (path.name + ".tmp")
        try:
            with open(temporary, "wb") as file:
                for container in containers:
                    file.write(container)
                file.flush()
                with self.syncs.measured():
                    os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):  # its bytes would fill a full disk for what is small: run lists, beats, marks
                temporary.unlink()
            raise
        self._step("G2")
        self._lock.check()  # the sync may have taken long
        os.rename(temporary, path)
        sync_folder(folder)

    def _append(self, entries: Sequence[ManifestEntry]) -> None:
        self._lock.check()
        at = os.lseek(self._file, 0, os.SEEK_CUR)
        try:
            _write(self._file, encode_items(entries))
            with self.syncs.measured():
                os.fdatasync(self._file)
                ask_journal(self._file)
            self._step("G4")
            _write(self._file, encode_mark(self.next_seq + len(entries)))
        except OSError:
            os.lseek(self._file, at, os.SEEK_SET)
            os.ftruncate(self._file, at)  # their seqs will be given to other data: nothing may be left of them,
            os.fsync(self._file)  # not even after a power cut: the next pack takes the name of this one
            raise
        self.next_seq += len(entries)
        self._rollup.note(entries)
        self._step("G5")

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
        self._lock.close()
