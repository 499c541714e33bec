"""What the centre keeps beside packs and manifest: run lists, retired boxes, quarantine, status lines.

manifest/<shard>/runs/<box>     the run lists last accepted, replaced and synced before WELCOME
manifest/<shard>/retired/<box>  an empty file: this box is not admitted any more
quarantine/                     pieces that were refused as damaged: the newest 100, at most 1 GiB
status/<shard>/<day>.jsonl      STATUS of the boxes, one JSON object a line; the newest 30 days.
                                In a bucket one object a minute: status/<shard>/<day>/<day>-<ms>.jsonl
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from uplink_spark.centre.zone_files.landing import make_folders
from uplink_spark.centre.zone_files.place import FilePlace
from uplink_spark.errors import PieceDamaged
from uplink_spark.wire.batch import decode_header
from uplink_spark.wire.cbor import Fields, decode_map, encode_map
from uplink_spark.wire.durable import write_synced
from uplink_spark.wire.frames import Hello, Status
from uplink_spark.wire.identity import Run
from uplink_spark.zone.manifest import ManifestEntry, retired_folder, runs_folder, shard_of

QUARANTINE_FILES, QUARANTINE_BYTES, QUARANTINE_OF_BOX = 100, 1 << 30, 20
STATUS_DAYS = 30
KEPT_EPOCHS = 16


@dataclass(frozen=True, slots=True)
class BoxBook:
    """What the centre has written down about one box."""

    runs: dict[int, tuple[Run, ...]] = field(default_factory=dict)
    retired: bool = False


class CentreRecords:
    """The small files of a landing zone on a disk. All calls block."""

    def __init__(self, root: Path, shards: int) -> None:
        self._folder, self._shards = root, shards
        self._opened = FilePlace(root) if root.is_dir() else None
        self._refused = itertools.count()

    @property
    def _root(self) -> Path:
        """The folder of the zone. Raises OSError where its path leads to another one by now."""
        if self._opened is not None:
            self._opened.check()
        return self._folder

    # What another kind of store does differently

    def read(self, path: str) -> bytes | None:
        """Return a small file, None if there is none. Raises OSError."""
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            return None

    def replace(self, path: str, data: bytes) -> None:
        """Replace a small file, durable on return. Raises OSError."""
        make_folders(self._root, path.rpartition("/")[0])
        write_synced(self._root / path, data)

    def delete(self, path: str) -> None:
        """Delete a small file; one that is not there is no error. Raises OSError."""
        (self._root / path).unlink(missing_ok=True)

    def read_part(self, path: str, at: int, length: int) -> bytes:
        """Return part of a pack. Raises OSError."""
        with open(self._root / path, "rb") as file:
            file.seek(at)
            return file.read(length)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, none if there is none. Raises OSError."""
        try:
            return os.listdir(self._root / folder)
        except FileNotFoundError:
            return []

    # What is kept

    def _place(self, box: str, folder: str) -> str:
        return f"manifest/{shard_of(box, self._shards):04x}/{folder}/{box}"

    def load(self, box: str) -> BoxBook:
        """Return what is written down about a box. Raises OSError."""
        return BoxBook(self._runs(box), self.read(self._place(box, "retired")) is not None)

    def _runs(self, box: str) -> dict[int, tuple[Run, ...]]:
        data = self.read(self._place(box, "runs"))
        if data is None:
            return {}
        runs: dict[int, tuple[Run, ...]] = {}
        try:
            for epoch, run, start in Fields(decode_map(data), "runs").rows("runs", int, int, int):
                runs[int(str(epoch))] = (*runs.get(int(str(epoch)), ()), (int(str(run)), int(str(start))))
        except PieceDamaged as error:
            raise OSError(f"run list of {box} is damaged: {error}") from error
        return runs

    def save(self, box: str, epoch: int, runs: tuple[Run, ...]) -> None:
        """Write down the run list of an epoch. Raises OSError."""
        known = self._runs(box)
        known.pop(epoch, None)
        known[epoch] = runs
        rows = [[key, *run] for key, value in list(known.items())[-KEPT_EPOCHS:] for run in value]
        self.replace(self._place(box, "runs"), encode_map({"v": 1, "runs": rows}))

    def retire(self, box: str) -> None:
        """The gateway refuses the next connection of this box. Raises OSError."""
        self.replace(self._place(box, "retired"), b"")

    def known(self) -> set[str]:
        """Return the boxes of which a run list was written down. Raises OSError."""
        return {name for shard in range(self._shards) for name in self.names(runs_folder(shard))}

    def retired(self) -> frozenset[str]:
        """Return the boxes that are not admitted any more. Raises OSError."""
        return frozenset(name for shard in range(self._shards) for name in self.names(retired_folder(shard)))

    def last_piece(self, entry: ManifestEntry | None) -> tuple[int, int, int, bytes] | None:
        """Return epoch, start, end and digest of the newest piece, None when its pack is gone."""
        if entry is None:
            return None
        try:
            header, _ = decode_header(self.read_part(entry.pack, entry.offset, min(entry.stored_bytes, 20_000)))
        except (FileNotFoundError, PieceDamaged):
            return None
        return header.epoch, header.start, header.end, header.sha

    def quarantine(self, box: str, container: bytes, now_ms: int) -> str:
        """Keep refused bytes for a person to look at and return their path; the oldest make room."""
        folder = make_folders(self._root, "quarantine")
        kept = sorted((path for path in folder.iterdir()), key=lambda path: path.name)
        sizes = [path.stat().st_size for path in kept]
        own = [path for path in kept if path.name.endswith(f"-{box}.piece")]
        if len(own) >= QUARANTINE_OF_BOX:  # one box does not push out what others are asked about
            sizes.pop(kept.index(own[0]))
            kept.remove(own[0])
            own[0].unlink()
        while kept and (len(kept) >= QUARANTINE_FILES or sum(sizes) + len(container) > QUARANTINE_BYTES):
            kept.pop(0).unlink()
            sizes.pop(0)
        path = folder / f"{now_ms:014d}-{next(self._refused):06d}-{box}.piece"
        path.write_bytes(container)
        return str(path.relative_to(self._root))

    async def keep_status(self, now_ms: Callable[[], int]) -> None:
        """Lines are in their file at once: nothing is left to do."""

    def append_status(self, hello: Hello, status: Status, now_ms: int) -> None:
        """Add a line to the day's file; the newest 30 days are kept."""
        folder = make_folders(self._root, f"status/{shard_of(hello.box, self._shards):04x}")
        path = folder / f"{day_of(now_ms)}.jsonl"
        fresh = not path.exists()
        with open(path, "a", encoding="utf-8") as file:
            file.write(status_line(hello, status, now_ms))
        if fresh:
            for old in sorted(folder.glob("*.jsonl"))[:-STATUS_DAYS]:
                old.unlink()


def day_of(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms / 1000, UTC).date().isoformat()


def status_line(hello: Hello, status: Status, now_ms: int) -> str:
    """Return the JSON line of a STATUS frame."""
    line = {
        "box": hello.box,
        "epoch": hello.epoch,
        "received_ms": now_ms,
        "durable": status.durable,
        "unshipped": status.unshipped,
        "oldest_ms": status.oldest_ms,
        "disk_free": status.disk_free,
        "inflow": status.inflow,
        "gaps": status.gaps,
        "verdict": status.verdict,
        "software": status.software,
        "now_ms": status.now_ms,
        "clock_ok": bool(status.clock_ok),
        "state": status.state or None,
        "conditions": list(status.conditions),
    }
    return json.dumps(line) + "\n"
