"""Packs after the last entry of a manifest: each was whole and synced before its first entry was written.

Such a pack is of the commit that did not end, or of commits whose entries a disk lost after readers had seen them and
boxes had their receipts. The same pieces in the same order over the same coverage get the entries they had.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from uplink_spark.centre.verify import Verified, verify_piece
from uplink_spark.errors import PieceDamaged, Refused
from uplink_spark.wire.batch import MAX_HEADER_BYTES, decode_header
from uplink_spark.zone.manifest import ManifestEntry, Placement, entry_of


class Judgement(Protocol):
    """What of a piece is new (coverage.Judged)."""

    @property
    def parts(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def heals(self) -> int: ...


class Judge(Protocol):
    """Decides for one piece after the other (coverage.CommitDraft)."""

    def judge(self, piece: Verified) -> Judgement: ...


def packs_from(root: Path, shard: int, first_seq: int) -> dict[int, list[Path]]:
    """Return the packs of a shard that begin at first_seq or later, by seq; of one seq the newest attempt last."""
    found: dict[int, list[Path]] = {}
    for path in sorted((root / f"pack/{shard:04x}").glob("*/*.pack")):
        if path.stem.isdigit() and int(path.stem) >= first_seq:
            found.setdefault(int(path.stem), []).append(path)
    return found


def entries_of(name: str, file: BinaryIO, place: Placement, draft: Judge) -> list[ManifestEntry]:
    """Return the entries of what is new in a pack; place: the seq of the first, the pack, where in it, the time.

    Raises PieceDamaged, with the name, where a piece is not whole.
    """
    entries: list[ManifestEntry] = []
    try:
        for offset, piece in _pieces(file, place.offset):
            judged = draft.judge(piece)
            for start, end in judged.parts:
                seq = place.seq + len(entries)
                where = Placement(seq, place.pack, offset, start, end, place.landed_ms, judged.heals)
                entries.append(entry_of(piece.header, len(piece.container), where, piece.gap))
    except (Refused, PieceDamaged) as reason:
        raise PieceDamaged(f"{name}: {reason}") from reason
    return entries


def _pieces(file: BinaryIO, at: int) -> Iterator[tuple[int, Verified]]:
    length = file.seek(0, os.SEEK_END)
    while at < length:
        file.seek(at)
        header, payload_at = decode_header(file.read(MAX_HEADER_BYTES + 8))
        file.seek(at)
        container = file.read(payload_at + header.stored_bytes + header.index_bytes)
        yield at, verify_piece(container, lambda _: None)
        at += len(container)
