"""Manifest entries to record batches: reads packs, opens pieces, decodes neighbours together."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from uplink_spark.errors import LandingError, PieceDamaged, RecordsBad
from uplink_spark.spark.rows import Origin, RawPiece, RowSelection, decode
from uplink_spark.wire.batch import open_piece
from uplink_spark.zone.files import Files
from uplink_spark.zone.manifest import ManifestEntry

PASS_BYTES = (
    4 << 20
)  # raw bytes decoded together: a whole piece alone, which is not copied; 8 MiB take 10x the page faults
READ_BYTES = 16 << 20  # neighbouring containers fetched in one read
OnLoss = Callable[["PieceRef", Exception], None]


@dataclass(frozen=True, slots=True)
class PieceRef:
    """Where a landed piece is and which rows of it an entry stands for: all a task needs to know."""

    origin: Origin
    pack: str
    offset: int
    stored_bytes: int
    raw_bytes: int

    def describe(self) -> str:
        of = self.origin
        return f"box {of.box}, epoch {of.epoch:x}, log {of.from_offset}..{of.to_offset} (seq {of.shard}:{of.seq})"


def ref_of(entry: ManifestEntry, shard: int) -> PieceRef:
    """Return what a task needs of an entry of kind `log` or `pick`."""
    origin = Origin(
        entry.box,
        entry.epoch,
        shard,
        entry.seq,
        entry.start,
        entry.end,
        entry.landed_ms,
        bool(entry.clock_ok),
        entry.skip,
    )
    return PieceRef(origin, entry.pack, entry.offset, entry.stored_bytes, entry.raw_bytes)


def read_batches(
    files: Files,
    refs: Sequence[PieceRef],
    view: RowSelection,
    *,
    fail_on_loss: bool = True,
    lost: list[PieceRef] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the pieces, neighbours in one batch. Raises LandingError naming box, range and pack.

    With fail_on_loss False a missing or damaged piece is reported on stderr, noted in `lost` and left out.
    """

    def on_loss(ref: PieceRef, error: Exception) -> None:
        _report(files, ref, error, fail_on_loss)
        if lost is not None:
            lost.append(ref)

    waiting: list[tuple[PieceRef, RawPiece]] = []
    size = 0
    for ref, piece in _pieces(files, refs, on_loss):
        if waiting and size + len(piece.raw) > PASS_BYTES:
            yield from _decoded(waiting, view, on_loss)
            waiting, size = [], 0
        waiting.append((ref, piece))
        size += len(piece.raw)
    yield from _decoded(waiting, view, on_loss)


def _decoded(pieces: list[tuple[PieceRef, RawPiece]], view: RowSelection, on_loss: OnLoss) -> Iterator[pa.RecordBatch]:
    try:
        batch = decode([piece for _, piece in pieces], view)
    except RecordsBad as error:
        if len(pieces) == 1:
            on_loss(pieces[0][0], error)
            return
        for one in pieces:  # find the bad one, keep the others
            yield from _decoded([one], view, on_loss)
        return
    if batch.num_rows:
        yield batch


def _pieces(files: Files, refs: Sequence[PieceRef], on_loss: OnLoss) -> Iterator[tuple[PieceRef, RawPiece]]:
    for group in _neighbours(refs):
        first, last = group[0], group[-1]
        try:
            data = files.read_range(first.pack, first.offset, last.offset + last.stored_bytes - first.offset)
        except OSError as error:
            for ref in group:
                on_loss(ref, error)
            continue
        for ref in group:
            at = ref.offset - first.offset
            try:
                piece = open_piece(memoryview(data)[at : at + ref.stored_bytes])
                yield ref, RawPiece(ref.origin, piece.raw(), piece.sizes())
            except PieceDamaged as error:
                on_loss(ref, error)


def _neighbours(refs: Iterable[PieceRef]) -> Iterator[list[PieceRef]]:
    """Group pieces that follow one another in a pack, at most READ_BYTES together."""
    group: list[PieceRef] = []
    for ref in refs:
        if group:
            end = group[-1].offset + group[-1].stored_bytes
            near = ref.pack == group[0].pack and ref.offset == end
            if not near or end + ref.stored_bytes - group[0].offset > READ_BYTES:
                yield group
                group = []
        group.append(ref)
    if group:
        yield group


def _report(files: Files, ref: PieceRef, error: Exception, fail_on_loss: bool) -> None:
    text = (
        f"{ref.describe()} cannot be read from {files.root}/{ref.pack} at {ref.offset}: {error}; "
        f"run: python -m uplink_spark check --deep --landing {shlex.quote(files.root)}"
    )
    if fail_on_loss:
        raise LandingError(f"{text}; or read on without these rows with failOnDataLoss=false") from error
    print(f"<4>uplink_spark lost rows: {text}", file=sys.stderr)
