"""Shipping on a stick, the box's side: pieces and gaps as files, and the receipts that come back."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from storage_driver.files.unreadable import only_unreadable
from uplink_spark.box.cutting.cutter import CutOrder, cut_piece
from uplink_spark.box.cutting.holes import Hole, take_around
from uplink_spark.box.receipts.doubtful import PATIENCE_S
from uplink_spark.box.receipts.gaps import Gap
from uplink_spark.box.receipts.ledger import ReceiptSeen
from uplink_spark.box.reconcile import repairs_below
from uplink_spark.box.spool import Spool
from uplink_spark.box.state import ShipperState
from uplink_spark.box.unreadable import given_up
from uplink_spark.wire.batch import MAX_RAW_BYTES, PieceContents, PieceHeader, PieceSource, encode_piece
from uplink_spark.wire.cbor import encode_map
from uplink_spark.wire.identity import owner_of, run_of
from uplink_spark.wire.intervals import Range
from uplink_spark.wire.stick_files import (
    INDEX,
    StickFile,
    StickIndex,
    StickReceipt,
    StickRefused,
    read_receipts,
    write_file,
)


@dataclass(frozen=True, slots=True)
class _Missing:
    """What the centre is not known to have, when an export begins."""

    durable: int
    epochs: tuple[tuple[int, int], ...]
    gaps: tuple[Gap, ...]
    log: tuple[Range, ...]
    picks: tuple[Range, ...]
    spooled: tuple[Range, ...]


def _missing(state: ShipperState, spool: Spool) -> _Missing:
    """Look at the ledger, in which the losses a recovery covered are declared first. Blocks."""
    ledger, source = state.ledger, state.source
    durable, epochs = source.committed, tuple(source.lineage.epochs)
    for gap in repairs_below(state):
        state.declare(gap)
    picks = [h for span in ledger.pick_spans(source.first, durable) for h in ledger.receipted.pick.missing(*span)]
    log = ledger.unshipped(source.first, durable)
    return _Missing(durable, epochs, tuple(ledger.gaps.undelivered()), tuple(log), tuple(picks), tuple(spool.places()))


async def export_pieces(state: ShipperState, spool: Spool, target: Path, secret: bytes, codec: str) -> StickIndex:
    """Write what is not receipted to target/<box>, synced, index last; shipping and receipts continue meanwhile.

    Raises OSError and, where a new epoch begins meanwhile, StickRefused.
    """
    folder, missing = target / state.config.box, await state.workers.in_thread(_missing, state, spool)
    files = [await state.workers.in_background(_export_gap, state, folder, gap, codec) for gap in missing.gaps]
    for place in missing.spooled:
        kept = await state.workers.in_background(spool.read, place)
        if kept is not None:  # else it has been receipted
            files.append(await state.workers.in_background(write_file, folder, _name_of(kept.header), kept.container))
    files += await _export_lane(state, folder, missing.log, codec)
    files += await _export_lane(state, folder, missing.picks, codec, pick=True)
    lineage = state.source.lineage
    if tuple(lineage.epochs) != missing.epochs:
        raise StickRefused("the log has diverged from the centre's history: export again")
    index = StickIndex(
        state.config.box, missing.epochs[-16:], tuple(lineage.runs[-1024:]), missing.durable, tuple(files)
    )
    await state.workers.in_background(write_file, folder, INDEX, index.encode(secret))
    await state.workers.in_background(os.sync)
    return index


async def _export_lane(
    state: ShipperState, folder: Path, holes: Sequence[Range], codec: str, *, pick: bool = False
) -> list[StickFile]:
    """Write the log of some ranges, or what of them travels on the express lane."""
    files: list[StickFile] = []
    for hole in holes:
        files += await _export_hole(state, folder, hole, codec, pick=pick)
    return files


async def _export_hole(state: ShipperState, folder: Path, hole: Range, codec: str, *, pick: bool) -> list[StickFile]:
    files: list[StickFile] = []
    (start, end), waited = hole, -1
    while (start := max(start, state.source.first)) < end:  # what has gone was receipted or declared meanwhile
        order, began = _order(state, start, end, codec, pick), trio.current_time()
        try:
            cut = await state.workers.in_background(_export_cut, state, folder, order)
        except OSError:
            if state.source.first > start:
                continue
            raise
        if isinstance(cut, Hole):
            gaps = await given_up(state, cut, express=pick)
            if gaps is None and waited < start:
                waited = start
                await trio.sleep(PATIENCE_S)
                continue
            for gap in gaps or ():
                files.append(await state.workers.in_background(_export_gap, state, folder, gap, codec))
            start = cut.end
            continue
        start, file = cut
        files += [file] if file is not None else []
        now = trio.current_time()
        await trio.sleep(state.pace.rest_s(now - began, now, pressed=state.pressed()))
    return files


def _order(state: ShipperState, start: int, end: int, codec: str, pick: bool) -> CutOrder:
    topics, limit = state.ledger.express_at(start), min(end, state.boundary(start))
    return CutOrder(
        _source_of(state, start), start, limit, state.file_end(start), state.config.piece_bytes, codec,
        skip=() if pick else topics, pick=topics if pick else (),
    )  # fmt: skip


def _export_cut(state: ShipperState, folder: Path, order: CutOrder) -> tuple[int, StickFile | None] | Hole:
    """Cut one piece and write it, return where it ends; bytes that are no records go with the log only.

    Return what cannot be read where the order begins with it.
    """
    taken = take_around(state.source.read_log, order)
    if isinstance(taken, Hole):
        return taken
    piece = taken.wrap()
    if (piece.header.kind == "pick") != bool(order.pick):
        return piece.header.end, None
    return piece.header.end, write_file(folder, _name_of(piece.header), piece.frame[5:])


def _name_of(header: PieceHeader) -> str:
    ending = "pick.piece" if header.kind == "pick" else "piece"
    return f"{header.epoch:016x}/{header.start:020d}-{header.end:020d}.{ending}"


def _export_gap(state: ShipperState, folder: Path, gap: Gap, codec: str) -> StickFile:
    source = PieceSource(state.config.box, gap.epoch, gap.run, gap.run_start, state.now_ms(), int(state.clock_ok()))
    _, container = encode_piece(source, PieceContents("gap", gap.start, gap.end, encode_map(gap.facts)), codec)
    run, number = gap.gap_id
    name = f"{gap.epoch:016x}/{gap.start:020d}-{gap.end:020d}.gap-{run:016x}-{number}.piece"
    return write_file(folder, name, container)


def _source_of(state: ShipperState, log_offset: int) -> PieceSource:
    lineage = state.source.lineage
    epoch = owner_of(lineage.epochs, log_offset)[0]
    run, run_start, _ = run_of(lineage.runs, log_offset)
    return PieceSource(state.config.box, epoch, run, run_start, state.now_ms(), int(state.clock_ok()))


async def import_receipts(state: ShipperState, spool: Spool, target: Path, secret: bytes) -> int:
    """Take the receipts of a stick over and save them; returns the receipted bytes.

    A receipt counts only when the bytes still are here and hash as it says. Raises StickRefused.
    """
    ledger = state.ledger
    landing, rows = await state.workers.in_background(read_receipts, target / state.config.box, secret)
    true = [
        row for row in rows if row.kind != "gap" and await state.workers.in_background(_still_true, state, spool, row)
    ]
    if ledger.landing not in (None, landing):
        raise StickRefused("the stick was swept into another landing zone than this box ships to")
    ledger.landing = landing
    told = {hashlib.sha256(encode_map(gap.facts)).digest(): gap for gap in ledger.gaps.undelivered()}
    for gap in [told[row.sha] for row in rows if row.kind == "gap" and row.sha in told]:
        ledger.gaps.note_delivered(gap)
    epochs = state.source.lineage.epochs
    true = [row for row in true if owner_of(epochs, row.start)[0] == row.epoch]  # none has begun meanwhile
    for row in true:
        ledger.receipt(row.kind, ReceiptSeen(row.start, row.end, row.kind, row.seq, 0, row.dup, state.now_ms()))
    await state.workers.in_thread(ledger.save)
    for row in true:
        if row.kind == "pick":
            await state.workers.in_background(spool.drop, (row.start, row.end))
    return sum(row.end - row.start for row in true if row.kind == "log")


def _still_true(state: ShipperState, spool: Spool, row: StickReceipt) -> bool:
    """Whether the piece that was receipted is in the spool or comes out of the log again as it was."""
    kept = spool.read((row.start, row.end)) if row.kind == "pick" else None
    if kept is not None:
        return (kept.header.epoch, kept.header.sha) == (row.epoch, row.sha)
    if not state.source.first <= row.start < row.end <= state.source.committed:  # gone since, or of another life
        return False
    if row.kind not in ("log", "pick") or owner_of(state.source.lineage.epochs, row.start)[0] != row.epoch:
        return False
    file_end = state.file_end(row.start)
    pick = state.ledger.express_at(row.start) if row.kind == "pick" else ()
    order = CutOrder(
        _source_of(state, row.start), row.start, min(row.end, file_end), file_end, MAX_RAW_BYTES, "none", pick=pick
    )
    try:
        header = cut_piece(state.source.read_log, order).header
    except OSError as exc:
        if state.source.first <= row.start:
            only_unreadable(exc)
        return False
    return (header.end, header.sha) == (row.end, row.sha)
