"""`rocketbox/vote`: a member's hard state in two slots that are written in turn; the newest intact one counts.

A slot, 64 bytes, big-endian, at 0 and at 4096, so that one torn or unreadable block spares the other:

    0  8 bytes  "RBXVOTE1"  (*)   24  16 bytes  voted_for, UTF-8, filled up with zeros
    8  u64      sequence          40  u64       row_term (a witness's row)
    16 u64      term              48  u64       row_end
                                  56  u32       CRC-32 of the 56 bytes before    60  4 bytes zero
    (*) "RBXVOTE0" while the member is filling
"""

import struct
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

from storage_driver.consensus.hard_state import HardState
from storage_driver.errors import VoteFileDamaged
from storage_driver.files.disk import Disk, DiskFile
from storage_driver.files.unreadable import unreadable_in
from storage_driver.files.whole_file import put_whole

MAGIC, MAGIC_FILLING = b"RBXVOTE1", b"RBXVOTE0"
SLOT = struct.Struct(">8sQQ16sQQ")
SLOT_BYTES, BLOCK_BYTES = 64, 4096


def encode_slot(sequence: int, state: HardState) -> bytes:
    """Return the 64 bytes of a slot."""
    voted_for = state.voted_for.encode()
    if len(voted_for) > 16:
        raise ValueError(f"member id {state.voted_for!r} has {len(voted_for)} bytes, allowed 16")
    head = SLOT.pack(
        MAGIC_FILLING if state.filling else MAGIC, sequence, state.term, voted_for, state.row_term, state.row_end
    )
    return (head + struct.pack(">I", crc32(head))).ljust(SLOT_BYTES, b"\0")


def decode_slot(raw: bytes) -> tuple[int, HardState] | None:
    """Return sequence and hard state of a slot; None when it is not intact."""
    if len(raw) != SLOT_BYTES or crc32(raw[: SLOT.size]) != int.from_bytes(raw[SLOT.size : SLOT.size + 4], "big"):
        return None
    magic, sequence, term, voted_for, row_term, row_end = SLOT.unpack_from(raw)
    if magic not in (MAGIC, MAGIC_FILLING) or any(raw[SLOT.size + 4 :]):
        return None
    try:
        return sequence, HardState(term, voted_for.rstrip(b"\0").decode(), row_term, row_end, magic == MAGIC_FILLING)
    except UnicodeDecodeError:
        return None


def newest(slots: Iterable[bytes]) -> tuple[int, HardState] | None:
    """Return sequence and hard state of the newest intact slot; None when there is none."""
    return max((found for raw in slots if (found := decode_slot(raw)) is not None), default=None)


def after_damage(before: HardState, least_term: int) -> HardState:
    """Return the promises of a member whose votes are in doubt, from the slot that is left and a term of its log."""
    return before._replace(term=max(before.term, least_term), voted_for="", filling=True)


class VoteFile:
    """A member's hard state on disk. `save` blocks: call it in a thread, one at a time."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.path = path
        self.doubt: str | None = None  # why the votes that were loaded may not be the last ones
        self._disk = disk
        self._file: DiskFile | None = None
        self._sequence = 0

    def create(self, state: HardState) -> None:
        """Make the file of a new member. Raises FileExistsError: a vote is never forgotten; OSError."""
        if self._disk.exists(self.path):
            raise FileExistsError(f"{self.path} exists: this member has voted before")
        self._replace(state, 0)

    def _replace(self, state: HardState, sequence: int) -> None:
        slots = [encode_slot(sequence + more, state).ljust(BLOCK_BYTES, b"\0") for more in (1, 2)]
        self._file, self._sequence = put_whole(self._disk, self.path, slots), sequence + 2

    def load(self, least_term: int = 0) -> HardState:
        """Read the newest intact slot. Raises VoteFileDamaged when there is none, or no file; OSError.

        A slot that is not intact, or that the disk does not give back, may be the newer one: a power cut tears none,
        it is within one sector. Then the member counts as one whose disk was replaced, in the last term that it knows
        of, `least_term` if that is higher: it votes as such a member does. The file gets other blocks.
        """
        if not self._disk.exists(self.path):
            raise VoteFileDamaged(str(self.path), "the file is missing")
        file = self._disk.open(self.path)
        slots = [file.read(SLOT_BYTES, at) for at in (0, BLOCK_BYTES)]
        found, unreadable = newest(slots), unreadable_in(file, 0, 2 * BLOCK_BYTES)
        if found is None and not unreadable:
            raise VoteFileDamaged(str(self.path), "neither slot is intact")
        if found is None or None in map(decode_slot, slots):
            sequence, before = found or (0, HardState())
            state = after_damage(before, least_term)
            self.doubt = f"{self.path}: {'the disk does not give back a slot' if unreadable else 'a slot is damaged'}"
            self._replace(state, sequence + 1)
            return state
        self._file = file
        self._sequence, state = found
        return state

    def save(self, state: HardState) -> None:
        """Make a hard state durable over the older slot. Raises OSError; then no message may leave any more."""
        file, self._file = self._file, None  # a failed sync is not repeated: the next start reads what the disk has
        if file is None:
            raise OSError("the vote file is not open, or a write to it failed: restart the member")
        self._sequence += 1
        file.write([encode_slot(self._sequence, state)], (self._sequence + 1) % 2 * BLOCK_BYTES)
        file.sync(in_place=True)
        self._file = file
