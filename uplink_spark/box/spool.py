"""Express records of files that had to go: kept as `pick` pieces until they are receipted.

<store>/rocketbox/spool/<20-digit start>-<20-digit end>.piece, synced before the file goes; at most 256 MiB in all,
those that the centre will not have, in refused/ for a person to look at, among them.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from uplink_spark.box.cutting.cutter import CutOrder, CutPiece
from uplink_spark.box.cutting.holes import Hole, take_around
from uplink_spark.box.cutting.suspects import REFUSALS
from uplink_spark.box.state import ShipperState
from uplink_spark.errors import PieceDamaged
from uplink_spark.wire.batch import PieceHeader, PieceSource, open_piece
from uplink_spark.wire.durable import sync_folder
from uplink_spark.wire.frames import FrameType, Refusal, encode_frame
from uplink_spark.wire.identity import owner_of, run_of
from uplink_spark.wire.intervals import Range

SPOOL_BYTES = 256 << 20
PIECE_BYTES = 4 << 20
NAME = re.compile(r"[0-9]{20}-[0-9]{20}\.piece")
REFUSED = "refused"  # the folder in it
ON_THE_WAY = frozenset(("damaged", "bad_records"))
FOR_GOOD = frozenset(("too_big", "codec", "not_yours"))  # the log it could be cut from again is gone


@dataclass(frozen=True, slots=True)
class Spooled:
    """One kept piece."""

    header: PieceHeader
    container: bytes

    def to_piece(self) -> CutPiece:
        return CutPiece(self.header, encode_frame(FrameType.PIECE, self.container))


class Spool:
    """The folder; every call blocks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def size(self) -> int:
        return sum(path.stat().st_size for path in self._folder.rglob("*.piece")) if self._folder.exists() else 0

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
            taken = take_around(state.source.read_log, order)
            if isinstance(taken, Hole):
                start = taken.end  # it goes with the file, and is declared with it
                continue
            piece = taken.wrap()
            if piece.header.kind == "pick" and piece.header.records:
                self._write(piece)
            start = piece.header.end
        sync_folder(self._folder)

    def _write(self, piece: CutPiece) -> None:
        with open(self._path((piece.header.start, piece.header.end)), "wb") as file:
            file.write(piece.frame[5:])
            file.flush()
            os.fsync(file.fileno())

    def places(self) -> list[Range]:
        """The ranges of the kept pieces, oldest first."""
        names = os.listdir(self._folder) if self._folder.exists() else []
        return sorted((int(name[:20]), int(name[21:41])) for name in names if NAME.fullmatch(name))

    def read(self, place: Range) -> Spooled | None:
        """Return the piece of a range, None where it is damaged or has been dropped. Raises OSError."""
        try:
            container = self._path(place).read_bytes()
            return Spooled(open_piece(container).header, container)
        except (FileNotFoundError, PieceDamaged):
            return None

    def pieces(self) -> Iterator[Spooled]:
        """The kept pieces, oldest first; damaged ones are left out."""
        yield from (kept for place in self.places() if (kept := self.read(place)) is not None)

    def drop(self, place: Range) -> None:
        """Forget a receipted piece."""
        self._path(place).unlink(missing_ok=True)

    def put_aside(self, place: Range) -> Path:
        """Take a piece out of what is to be sent, synced, and return where it is now. Raises OSError."""
        aside = self._folder / REFUSED
        aside.mkdir(exist_ok=True)
        moved = self._path(place).rename(aside / self._path(place).name)
        sync_folder(aside)
        sync_folder(self._folder)
        return moved

    def _path(self, place: Range) -> Path:
        return self._folder / f"{place[0]:020d}-{place[1]:020d}.piece"


class SpoolLane:
    """What of the spool is still to be sent on one connection. All calls except `sent` block.

    Only a receipt of its own lets a piece go: what WELCOME calls held may be a declared loss, which it fills.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._sent: set[Range] = set()
        self._refusals: Counter[Range] = Counter()
        self.waiting: list[Range] = []

    def look(self) -> None:
        """See what waits now."""
        self.waiting = [place for place in self._spool.places() if place not in self._sent]

    def take(self) -> Spooled | None:
        """Return the oldest piece that waits, None if there is none any more or it cannot be read."""
        if not self.waiting:
            return None  # a look came between
        place = self.waiting.pop(0)
        self._sent.add(place)
        try:
            return self._spool.read(place)
        except OSError:
            return None  # the log behind it is not to wait for it; the next connection tries again

    def sent(self, header: PieceHeader) -> bool:
        return header.kind == "pick" and (header.start, header.end) in self._sent

    def receipted(self, header: PieceHeader) -> None:
        self._spool.drop((header.start, header.end))

    def refused(self, header: PieceHeader, refusal: Refusal) -> str | None:
        """Let a piece be read and sent again; one that will never be taken is put aside: returns what is to be told."""
        place = (header.start, header.end)
        self._refusals[place] += 1
        if refusal.code in FOR_GOOD or (refusal.code in ON_THE_WAY and self._refusals[place] >= REFUSALS):
            return (
                f"express records kept of log {header.start}..{header.end} are refused "
                f"({refusal.code}: {refusal.text}): {self._aside(place)}; Spark has them with raw=true where that "
                "log landed, else they are lost and declared as a gap"
            )
        self._sent.remove(place)
        if refusal.code in ON_THE_WAY:
            self.waiting.insert(0, place)  # at once; for what is no fault of its own the next look finds it
        return None

    def _aside(self, place: Range) -> str:
        try:
            return f"not sent again, the piece is in {self._spool.put_aside(place)}"
        except OSError as error:
            return f"not sent again on this connection ({error})"
