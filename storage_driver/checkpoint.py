"""Where recovery starts: our own position, and the three times that Apache's recovery reads.

The position is two slots of one file, written in turn and checked by CRC, so that a torn write leaves the older one.
"""

from pathlib import Path
from struct import Struct
from zlib import crc32

from storage_driver.disk import Disk, DiskFile
from storage_driver.named_tuple import NamedTuple

_SLOT = Struct(">8sqqqqq16sI")
_MAGIC = b"RBXPOS1\n"
_SLOT_AT = (0, 4096)
_TIMES = Struct(">qqq")
CHECKPOINT_BYTES = 4096


class Position(NamedTuple):
    """Log offsets below which queues and index are on stable storage, and how many units the newest index file had."""

    queues_to: int
    index_to: int
    index_count: int
    stored_ms: int
    boot: bytes  # of the boot that wrote it: the first 16 bytes of its id


class PositionFile:
    """`rocketbox/position`; one writer."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk, self._path = disk, path
        self.damage: str | None = None  # why not all that was found could be used
        self._file: DiskFile | None = None
        self._sequence = 0

    def load(self) -> Position | None:
        """Return the newest intact position, None when there is none."""
        try:
            data = self._disk.open(self._path, read_only=True).read(8192, 0)
        except FileNotFoundError:
            return None
        newest = None
        for at in _SLOT_AT:
            raw = data[at : at + _SLOT.size]
            if len(raw) < _SLOT.size or crc32(raw[:-4]) != int.from_bytes(raw[-4:], "big") or raw[:8] != _MAGIC:
                if raw.strip(b"\0") or len(raw) < _SLOT.size:
                    self.damage = f"{self._path.name}: the slot at {at} is damaged"
                continue
            _, sequence, *values, _ = _SLOT.unpack(raw)
            if sequence > self._sequence:
                self._sequence, newest = sequence, Position(*values)
        if newest is None:
            self.damage = f"{self._path.name}: no intact slot"
        return newest

    def save(self, position: Position) -> None:
        """Write and sync the position. Raises OSError."""
        if self._file is None:
            fresh = not self._disk.exists(self._path)
            self._file = self._disk.open(self._path, create=True)
            if fresh:
                self._file.resize(8192)
                self._disk.sync_folder(self._path.parent)
        self._sequence += 1
        raw = _SLOT.pack(_MAGIC, self._sequence, *position, 0)[:-4]
        self._file.write([raw + crc32(raw).to_bytes(4, "big")], _SLOT_AT[self._sequence % 2])
        self._file.sync()


class Times(NamedTuple):
    """Apache's checkpoint: store times below which log, queues and full index files are flushed."""

    physic_ms: int
    logics_ms: int
    index_ms: int

    @property
    def restart_ms(self) -> int:
        """A segment whose first record is not younger than this is where Apache's recovery starts."""
        return max(0, min(self.physic_ms, self.logics_ms) - 3000)


class CheckpointFile:
    """Apache's `checkpoint`, 4096 bytes; what lies behind the three times is left as found."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk, self._path = disk, path
        self._file: DiskFile | None = None

    def load(self) -> Times | None:
        """Return the times, None when the file is missing or too short."""
        try:
            raw = self._disk.open(self._path, read_only=True).read(_TIMES.size, 0)
        except FileNotFoundError:
            return None
        return Times(*_TIMES.unpack(raw)) if len(raw) == _TIMES.size else None

    def save(self, times: Times) -> None:
        """Write and sync the times. Raises OSError."""
        if self._file is None:
            self._file = self._disk.open(self._path, create=True)
            if self._file.size() != CHECKPOINT_BYTES:
                self._file.resize(CHECKPOINT_BYTES)
        self._file.write([_TIMES.pack(*times)], 0)
        self._file.sync()
