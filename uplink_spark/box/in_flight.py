"""The pieces of one connection that have no receipt yet, by their numbers."""

from __future__ import annotations

from dataclasses import dataclass

from uplink_spark.box.receipts.gaps import Gap
from uplink_spark.errors import ProtocolError
from uplink_spark.wire.batch import PieceHeader


@dataclass(frozen=True, slots=True)
class InFlight:
    """A piece without a receipt."""

    header: PieceHeader
    wire_bytes: int
    sizes: bytes
    gap: Gap | None = None


class PiecesInFlight:
    """The gateway counts the same way: the first piece of a connection is number 0."""

    def __init__(self) -> None:
        self._pieces: dict[int, InFlight] = {}
        self._next = 0
        self.added_bytes = 0  # frames of all pieces so far

    def add(self, piece: InFlight) -> None:
        """Give a piece the next number."""
        self._pieces[self._next] = piece
        self._next += 1
        self.added_bytes += piece.wire_bytes

    def take(self, number: int, answer: str) -> InFlight:
        """Return the piece that is answered, which is in flight no more. Raises ProtocolError."""
        piece = self._pieces.pop(number, None)
        if piece is None:
            raise ProtocolError(f"{answer} for piece {number}, which is not in flight")
        return piece

    def has_gap(self, gap: Gap) -> bool:
        return any(piece.gap is not None and piece.gap.gap_id == gap.gap_id for piece in self._pieces.values())
