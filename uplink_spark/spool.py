"""Express records of files that had to go: kept as `pick` pieces until they are receipted.

<store>/rocketbox/spool/<20-digit start>-<20-digit end>.piece, synced before the file goes; at most 256 MiB in all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from uplink_spark.batch import PieceHeader, PieceSource, open_piece
from uplink_spark.cutter import CutOrder, CutPiece, cut_piece
from uplink_spark.durable import sync_folder
from uplink_spark.errors import PieceDamaged
from uplink_spark.frames import FrameType, encode_frame
from uplink_spark.identity import owner_of, run_of
from uplink_spark.state import ShipperState

SPOOL_BYTES = 256 << 20
PIECE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Spooled:
    """One kept piece."""

    path: Path
    header: PieceHeader
    container: bytes

    def to_piece(self) -> CutPiece:
        return CutPiece(self.header, encode_frame(FrameType.PIECE, self.container))


class Spool:
    """The folder; every call blocks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def size(self) -> int:
        return sum(path.stat().st_size for path in self._folder.glob("*.piece")) if self._folder.exists() else 0

    def keep(self, state: ShipperState, base: int, end: int) -> None:
        """Copy what the express lane has not receipted of [base, end), synced. Raises OSError."""
        for low, high in state.ledger.pick_spans(base, end):
            for start, stop in state.ledger.receipted.pick.missing(max(low, base), min(high, end)):
                self._keep_range(state, start, stop)

    def _keep_range(self, state: ShipperState, start: int, stop: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        while start < stop and self.size() < SPOOL_BYTES:
            limit = min(stop, state.boundary(start))
            epoch = owner_of(state.source.lineage.epochs, start)[0]
            run, run_start, _ = run_of(state.source.lineage.runs, start)
            source = PieceSource(state.config.box, epoch, run, run_start, state.now_ms(), int(state.clock_ok()))
            topics = state.ledger.express_at(start)
            order = CutOrder(source, start, limit, state.file_end(start), PIECE_BYTES, "zlib", pick=topics)
            piece = cut_piece(state.source.read_log, order)
            if piece.header.kind == "pick" and piece.header.records:
                self._write(piece)
            start = piece.header.end
        sync_folder(self._folder)

    def _write(self, piece: CutPiece) -> None:
        path = self._folder / f"{piece.header.start:020d}-{piece.header.end:020d}.piece"
        with open(path, "wb") as file:
            file.write(piece.frame[5:])
            file.flush()
            os.fsync(file.fileno())

    def pieces(self) -> Iterator[Spooled]:
        """The kept pieces, oldest first; damaged ones are left out."""
        for path in sorted(self._folder.glob("*.piece")) if self._folder.exists() else []:
            container = path.read_bytes()
            try:
                yield Spooled(path, open_piece(container).header, container)
            except PieceDamaged:
                continue

    def drop(self, header: PieceHeader) -> None:
        """Forget a receipted piece."""
        (self._folder / f"{header.start:020d}-{header.end:020d}.piece").unlink(missing_ok=True)
