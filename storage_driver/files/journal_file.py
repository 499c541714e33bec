"""A file of frames that are appended, and replaced as a whole by what they amount to. Blocks: for one thread.

A frame is magic, length of the payload u32, sequence number u64 that rises by one, CRC-32 of these and the payload,
payload. Zeros are written ahead of the frames, so that a sync of one changes no metadata of the file system.

A power cut tears at most the last append: no frame after it is intact. An intact frame after a broken one means that
the disk lost what was synced: the frames around it are used, and `damage` says where.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from zlib import crc32

from storage_driver.files.disk import Disk, DiskFile
from storage_driver.files.whole_file import put_whole
from storage_driver.named_tuple import NamedTuple

MAGIC = b"RBJ1"
AHEAD = 256 << 10  # bytes of zeros that are written at a time
MOST_BYTES = 256 << 20  # of a file that is read: several times what its owners' tables may hold
_HEAD = Struct(">4sIQI")
_ZEROS = bytes(AHEAD)


class Frames(NamedTuple):
    """What a journal held: the payloads of its intact frames in order, where they end, what was wrong."""

    payloads: list[bytes]
    sequence: int  # of the last one
    torn_bytes: int  # of an append that a power cut tore
    damage: str | None  # what the disk lost of frames that were synced


def encode_frame(sequence: int, payload: bytes) -> bytes:
    """Return one frame."""
    head = _HEAD.pack(MAGIC, len(payload), sequence, 0)[:-4]
    return head + crc32(payload, crc32(head)).to_bytes(4, "big") + payload


def read_frames(raw: bytes) -> Frames:
    """Return the intact frames among the bytes of a journal."""
    payloads: list[bytes] = []
    at = end = sequence = 0
    faults: list[str] = []
    while True:
        payload = _frame_at(raw, at, sequence)
        if payload is None:
            following = _next_frame(raw, at + 1, sequence)
            if following is None:
                break
            faults.append(f"bytes {at} to {following}")
            at = following
            continue
        sequence = _HEAD.unpack_from(raw, at)[2]
        payloads.append(payload)
        at = end = at + _HEAD.size + len(payload)
    damage = f"{', '.join(faults)} are damaged" if faults else None
    return Frames(payloads, sequence, len(raw[end:].rstrip(b"\0")), damage)


def _frame_at(raw: bytes, at: int, after: int) -> bytes | None:
    """Return the payload of an intact frame with a sequence number above `after`."""
    if len(raw) < at + _HEAD.size:
        return None
    magic, length, sequence, crc = _HEAD.unpack_from(raw, at)
    start = at + _HEAD.size
    if magic != MAGIC or sequence <= after or len(raw) < start + length:
        return None
    payload = raw[start : start + length]
    return payload if crc32(payload, crc32(raw[at : start - 4])) == crc else None


def _next_frame(raw: bytes, start: int, after: int) -> int | None:
    while (start := raw.find(MAGIC, start)) >= 0:
        if _frame_at(raw, start, after) is not None:
            return start
        start += 1
    return None


class JournalFile:
    """One journal on disk; used by one thread at a time."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.path, self.size, self.replaced_size = path, 0, 0  # bytes of frames: all, those of the last `replace`
        self.failure: OSError | None = None  # of the last write
        self._disk = disk
        self._file: DiskFile | None = None
        self._sequence = self._zeroed = 0

    @property
    def exists(self) -> bool:
        return self._disk.exists(self.path)

    @property
    def ready(self) -> bool:
        """Whether the next frame may be appended; else the file is replaced first."""
        return self._file is not None

    def load(self) -> Frames:
        """Return what the journal holds, nothing for a missing one; `replace` comes before `append`. Raises OSError."""
        try:
            file = self._disk.open(self.path, read_only=True)
        except FileNotFoundError:
            return Frames([], 0, 0, None)
        found = read_frames(file.read(min(file.size(), MOST_BYTES), 0))
        self._sequence = found.sequence
        return found

    def replace(self, payloads: Sequence[bytes]) -> None:
        """Put a new file with these payloads in place, on stable storage. Raises OSError: the old file stays."""
        with self._noting_failure():
            self._replace(payloads)

    def append(self, payload: bytes) -> None:
        """Write and sync one frame. Raises OSError: then `replace` is next, nobody knows what of it is on the disk."""
        with self._noting_failure():
            self._append(payload)

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            self.failure = exc
            raise
        self.failure = None

    def _replace(self, payloads: Sequence[bytes]) -> None:
        self._file = None
        self._disk.make_folder(self.path.parent)
        frames = b"".join(self._frame(payload) for payload in payloads)
        file = put_whole(self._disk, self.path, [frames, _ZEROS])
        self._file, self.size, self._zeroed = file, len(frames), len(frames) + AHEAD
        self.replaced_size = self.size

    def _append(self, payload: bytes) -> None:
        file = self._file
        assert file is not None, "replace comes first"
        self._file = None
        frame = self._frame(payload)
        end = self.size + len(frame)
        in_place = end <= self._zeroed
        pieces = [frame] if in_place else [frame, _ZEROS]
        file.write(pieces, self.size)
        file.sync(in_place=in_place)
        self._file, self.size = file, end
        self._zeroed = max(self._zeroed, end if in_place else end + AHEAD)

    def _frame(self, payload: bytes) -> bytes:
        self._sequence += 1
        return encode_frame(self._sequence, payload)
