"""Where recovery starts: our own position, Apache's three times; what a shared log knew committed."""

from pathlib import Path
from struct import Struct
from typing import Any
from zlib import crc32

from storage_driver.files.disk import Disk, DiskFile
from storage_driver.files.unreadable import only_unreadable, unreadable_in
from storage_driver.files.whole_file import put_whole
from storage_driver.named_tuple import NamedTuple

_POSITION = Struct(">8sqqqqq16sI")
_OFFSET = Struct(">8sqqI")
_SLOT_AT = (0, 4096)
_TIMES = Struct(">qqq")
CHECKPOINT_BYTES = 4096


class CheckpointValues(NamedTuple):
    """Log offsets below which queues and index are on stable storage, and how many units the newest index file had."""

    queues_to: int
    index_to: int
    index_count: int
    stored_ms: int
    boot: bytes  # of the boot that wrote it: the first 16 bytes of its id


class SlotFile:
    """Values in two slots of one file, written in turn, so that a torn write leaves the older ones; one writer.

    A slot is magic, a sequence number that rises, the values, CRC-32 of all before it.
    """

    def __init__(self, disk: Disk, path: Path, layout: Struct, magic: bytes) -> None:
        self._disk, self._path, self._layout, self._magic = disk, path, layout, magic
        self.damage: str | None = None  # why not all that was found could be used
        self.unreadable = False  # a slot could not be read: it may be the newer one
        self._file: DiskFile | None = None
        self._sequence = 0

    def load_values(self) -> tuple[Any, ...] | None:
        """Return the newest intact values, None when there are none."""
        try:
            file = self._disk.open(self._path, read_only=True)
            data = file.read(8192, 0)
        except FileNotFoundError:
            return None
        newest, size = None, self._layout.size
        for at in _SLOT_AT:
            raw = data[at : at + size]
            if len(raw) < size or crc32(raw[:-4]) != int.from_bytes(raw[-4:], "big") or raw[:8] != self._magic:
                self.unreadable |= bool(unreadable_in(file, at, at + size))
                if raw.strip(b"\0") or len(raw) < size or self.unreadable:
                    self.damage = f"{self._path.name}: the slot at {at} is damaged"
                continue
            _, sequence, *values, _ = self._layout.unpack(raw)
            if sequence > self._sequence:
                self._sequence, newest = sequence, tuple(values)
        if newest is None:
            self.damage = f"{self._path.name}: no intact slot"
        return newest

    def save_values(self, values: tuple[Any, ...]) -> None:
        """Write and sync the values. Raises OSError."""
        if self._file is None:
            fresh = not self._disk.exists(self._path)
            self._file = self._disk.open(self._path, create=True)
            if fresh:
                self._file.write([bytes(8192)], 0)  # so that a full disk has room for both slots
                self._disk.sync_folder(self._path.parent)
        self._sequence += 1
        raw = self._layout.pack(self._magic, self._sequence, *values, 0)[:-4]
        slot, at = raw + crc32(raw).to_bytes(4, "big"), _SLOT_AT[self._sequence % 2]
        try:
            self._file.write([slot], at)
            self._file.sync()
        except OSError as exc:
            only_unreadable(exc)
            self._file = None  # another one gets other blocks of the disk
            self._file = put_whole(self._disk, self._path, [bytes(at), slot.ljust(8192 - at, b"\0")])


class PositionFile(SlotFile):
    """`rocketbox/position`."""

    def __init__(self, disk: Disk, path: Path) -> None:
        super().__init__(disk, path, _POSITION, b"RBXPOS1\n")

    def load(self) -> CheckpointValues | None:
        """Return the newest intact position, None when there is none."""
        values = self.load_values()
        return CheckpointValues(*values) if values is not None else None

    def save(self, position: CheckpointValues) -> None:
        """Write and sync the position. Raises OSError."""
        self.save_values(position)


class OffsetFile(SlotFile):
    """A log offset that never falls."""

    def __init__(self, disk: Disk, path: Path, magic: bytes) -> None:
        super().__init__(disk, path, _OFFSET, magic)
        self.log_offset = -1

    def load(self) -> int | None:
        """Return the newest intact log offset, None when there is none."""
        values = self.load_values()
        if values is None:
            return None
        self.log_offset = values[0]
        return self.log_offset

    def save(self, log_offset: int) -> None:
        """Write and sync a log offset above the one that is known. Raises OSError."""
        if log_offset > self.log_offset:
            self.save_values((log_offset,))
            self.log_offset = log_offset

    def set_back(self, log_offset: int) -> None:
        """Write and sync a log offset that is lower: the log was cut there. Raises OSError."""
        if log_offset < self.log_offset:
            self.log_offset = -1
            self.save(log_offset)


class CommittedFile(OffsetFile):
    """`rocketbox/committed`: below it all of a log that others share was committed."""

    def __init__(self, disk: Disk, path: Path) -> None:
        super().__init__(disk, path, b"RBXCOM1\n")


class FirstFile(OffsetFile):
    """`rocketbox/first`: below it the log's files were deleted on purpose, so that one that was removed is missed.

    Nothing is missed where a slot cannot be read: the other one may be from before a deletion.
    """

    def __init__(self, disk: Disk, root: Path) -> None:
        super().__init__(disk, root / "rocketbox" / "first", b"RBXFST1\n")

    def load(self) -> int | None:
        found = super().load()
        return None if self.unreadable else found


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
    """Apache's `checkpoint`, 4096 bytes; what is after the three times is left as found."""

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
