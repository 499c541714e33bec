"""Shipping on a stick: pieces as files, an index with a MAC under the box's uplink secret, receipts the same way back.

DIR/<box>/<epoch hex>/<20-digit start>-<20-digit end>.piece; express lane: .pick.piece, loss: .gap-<run>-<number>.piece
    DIR/<box>/INDEX.mac      CBOR {v, box, lineage, runs, durable, files: [[name, bytes, sha256], ...]}, HMAC-SHA-256
    DIR/<box>/RECEIPTS.cbor  CBOR {v, landing, r: [[epoch, start, end, sha, seq, dup, kind], ...]}, HMAC-SHA-256
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from uplink_spark.batch import MAX_RAW_BYTES, Contents, PieceHeader, PieceSource, encode_piece
from uplink_spark.cbor import Fields, decode_map, encode_map
from uplink_spark.cutter import CutOrder, cut_piece
from uplink_spark.errors import PieceDamaged, UplinkError
from uplink_spark.gaps import Gap
from uplink_spark.identity import owner_of, run_of
from uplink_spark.intervals import Range
from uplink_spark.ledger import ReceiptSeen
from uplink_spark.reconcile import repairs_below
from uplink_spark.spool import Spool
from uplink_spark.state import ShipperState

INDEX, RECEIPTS = "INDEX.mac", "RECEIPTS.cbor"
MAC_BYTES = 32


class StickRefused(UplinkError):
    """The stick is not what its index says, or nobody vouches for it."""


@dataclass(frozen=True, slots=True)
class StickFile:
    """One piece on the stick."""

    name: str  # relative to the box's folder
    length: int
    sha: bytes


@dataclass(frozen=True, slots=True)
class StickIndex:
    """What a box put on a stick."""

    box: str
    lineage: tuple[tuple[int, int], ...]
    runs: tuple[tuple[int, int], ...]
    durable: int
    files: tuple[StickFile, ...]

    def encode(self, secret: bytes) -> bytes:
        return _sealed(
            {
                "v": 1,
                "box": self.box,
                "lineage": [list(pair) for pair in self.lineage],
                "runs": [list(pair) for pair in self.runs],
                "durable": self.durable,
                "files": [[file.name, file.length, file.sha] for file in self.files],
            },
            secret,
            b"rocketbox stick index\0",
        )


def _sealed(body: dict[str, object], secret: bytes, purpose: bytes) -> bytes:
    data = encode_map(body)
    return data + hmac.digest(secret, purpose + data, "sha256")


def _opened(data: bytes, secret: bytes | None, purpose: bytes, what: str) -> Fields:
    """Return the fields; secret None: whoever asks vouches for the stick. Raises StickRefused."""
    body, mac = data[:-MAC_BYTES], data[-MAC_BYTES:]
    if secret is not None and not hmac.compare_digest(hmac.digest(secret, purpose + body, "sha256"), mac):
        raise StickRefused(f"{what}: the MAC is wrong: not written with this box's uplink secret, or tampered with")
    try:
        return Fields(decode_map(body), what)
    except PieceDamaged as error:
        raise StickRefused(str(error)) from error


def secret_of(secrets: Path, box: str) -> bytes:
    """Return the uplink secret of a box, kept as hex in the file secrets/<box>. Raises StickRefused."""
    try:
        return bytes.fromhex((secrets / box).read_text().strip())
    except FileNotFoundError as error:
        raise StickRefused(f"no secret for box {box}: write it in hex into {secrets / box}") from error
    except (OSError, ValueError) as error:
        raise StickRefused(
            f"{secrets / box} cannot be used: {error}; write the uplink secret in hex into it"
        ) from error


def read_index(folder: Path, secret: bytes | None) -> StickIndex:
    """Return the index of DIR/<box>, each file's name, length and digest compared. Raises StickRefused."""
    try:
        data = (folder / INDEX).read_bytes()
    except FileNotFoundError as error:
        raise StickRefused(f"{folder} has no {INDEX}: write it with `rocketbox uplink export --to DIR`") from error
    index = decode_index(data, secret, folder)
    for file in index.files:
        _check_file(folder, file)
    return index


def decode_index(data: bytes, secret: bytes | None, folder: Path) -> StickIndex:
    """Return what the index of a box's folder says, its files not looked at. Raises StickRefused."""
    try:
        fields = _opened(data, secret, b"rocketbox stick index\0", str(folder / INDEX))
        rows = fields.rows("files", str, int, bytes)
        files = tuple(StickFile(str(name), int(str(length)), _octets(sha)) for name, length, sha in rows)
        index = StickIndex(
            fields.text("box"),
            tuple(fields.pairs("lineage")),
            tuple(fields.pairs("runs")),
            fields.uint("durable"),
            files,
        )
    except PieceDamaged as error:
        raise StickRefused(str(error)) from error
    if not index.lineage or not index.runs:
        raise StickRefused(f"{folder}: the index names no epoch or no run; export again")
    if index.box != folder.name:
        raise StickRefused(f"{folder}: the index is of box {index.box}")
    return index


def _octets(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise PieceDamaged("a digest that is no byte string")
    return value


def _check_file(folder: Path, file: StickFile) -> None:
    path = folder / file.name
    if ".." in Path(file.name).parts or Path(file.name).is_absolute():
        raise StickRefused(f"{folder}: the index names {file.name}, which is not inside the folder")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StickRefused(f"{path}: {error.strerror}; the stick is not complete") from error
    check_contents(path, data, file)


def check_contents(path: Path, data: bytes, file: StickFile) -> None:
    """Raise StickRefused when these are not the bytes the index names."""
    if len(data) != file.length or hashlib.sha256(data).digest() != file.sha:
        raise StickRefused(f"{path}: length or SHA-256 differs from the index")


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
    return _Missing(durable, epochs, tuple(ledger.undelivered()), tuple(log), tuple(picks), tuple(spool.places()))


async def export_pieces(state: ShipperState, spool: Spool, target: Path, secret: bytes, codec: str) -> StickIndex:
    """Write what is not receipted to target/<box>, synced, index last; shipping and receipts go on meanwhile.

    Raises OSError and, where a new epoch begins meanwhile, StickRefused.
    """
    folder, missing = target / state.config.box, await state.in_thread(_missing, state, spool)
    files = [await state.beside(_export_gap, state, folder, gap, codec) for gap in missing.gaps]
    for place in missing.spooled:
        kept = await state.beside(spool.read, place)
        if kept is not None:  # else it has been receipted
            files.append(await state.beside(_write, folder, _name_of(kept.header), kept.container))
    files += await _export_lane(state, folder, missing.log, codec)
    files += await _export_lane(state, folder, missing.picks, codec, pick=True)
    lineage = state.source.lineage
    if tuple(lineage.epochs) != missing.epochs:
        raise StickRefused("the log parted from the centre's history meanwhile: export again")
    index = StickIndex(
        state.config.box, missing.epochs[-16:], tuple(lineage.runs[-1024:]), missing.durable, tuple(files)
    )
    await state.beside(_write, folder, INDEX, index.encode(secret))
    await state.beside(os.sync)
    return index


async def _export_lane(
    state: ShipperState, folder: Path, holes: Sequence[Range], codec: str, *, pick: bool = False
) -> list[StickFile]:
    """Write the log of some ranges, or what of them travels on the express lane."""
    files: list[StickFile] = []
    for start, end in holes:
        while (start := max(start, state.source.first)) < end:  # what has gone was receipted or declared meanwhile
            order, began = _order(state, start, end, codec, pick), trio.current_time()
            try:
                header, file = await state.beside(_export_cut, state, folder, order)
            except OSError:
                if state.source.first > start:
                    continue
                raise
            files += [file] if file is not None else []
            start, now = header.end, trio.current_time()
            await trio.sleep(state.pace.rest_s(now - began, now, pressed=state.pressed()))
    return files


def _order(state: ShipperState, start: int, end: int, codec: str, pick: bool) -> CutOrder:
    topics, limit = state.ledger.express_at(start), min(end, state.boundary(start))
    return CutOrder(
        _source_of(state, start), start, limit, state.file_end(start), state.config.piece_bytes, codec,
        skip=() if pick else topics, pick=topics if pick else (),
    )  # fmt: skip


def _export_cut(state: ShipperState, folder: Path, order: CutOrder) -> tuple[PieceHeader, StickFile | None]:
    """Cut one piece and write it; bytes that are no records go with the log only."""
    piece = cut_piece(state.source.read_log, order)
    if (piece.header.kind == "pick") != bool(order.pick):
        return piece.header, None
    return piece.header, _write(folder, _name_of(piece.header), piece.frame[5:])


def _name_of(header: PieceHeader) -> str:
    ending = "pick.piece" if header.kind == "pick" else "piece"
    return f"{header.epoch:016x}/{header.start:020d}-{header.end:020d}.{ending}"


def _export_gap(state: ShipperState, folder: Path, gap: Gap, codec: str) -> StickFile:
    source = PieceSource(state.config.box, gap.epoch, gap.run, gap.run_start, state.now_ms(), int(state.clock_ok()))
    _, container = encode_piece(source, Contents("gap", gap.start, gap.end, encode_map(gap.facts)), codec)
    run, number = gap.gap_id
    name = f"{gap.epoch:016x}/{gap.start:020d}-{gap.end:020d}.gap-{run:016x}-{number}.piece"
    return _write(folder, name, container)


def _source_of(state: ShipperState, log_offset: int) -> PieceSource:
    lineage = state.source.lineage
    epoch = owner_of(lineage.epochs, log_offset)[0]
    run, run_start, _ = run_of(lineage.runs, log_offset)
    return PieceSource(state.config.box, epoch, run, run_start, state.now_ms(), int(state.clock_ok()))


def _write(folder: Path, name: str, data: bytes) -> StickFile:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return StickFile(name, len(data), hashlib.sha256(data).digest())


@dataclass(frozen=True, slots=True)
class StickReceipt:
    """One receipted piece of a stick."""

    epoch: int
    start: int
    end: int
    sha: bytes
    seq: int
    dup: int
    kind: str


def write_receipts(folder: Path, secret: bytes, landing: bytes, rows: Sequence[StickReceipt]) -> None:
    """Put the receipts on the stick, for the box to take back."""
    _write(folder, RECEIPTS, encode_receipts(secret, landing, rows))


def encode_receipts(secret: bytes, landing: bytes, rows: Sequence[StickReceipt]) -> bytes:
    listed = [[r.epoch, r.start, r.end, r.sha, r.seq, r.dup, r.kind] for r in rows]
    return _sealed({"v": 1, "landing": landing, "r": listed}, secret, b"rocketbox stick receipts\0")


def read_receipts(folder: Path, secret: bytes) -> tuple[bytes, list[StickReceipt]]:
    """Return landing id and receipts of DIR/<box>. Raises StickRefused."""
    try:
        data = (folder / RECEIPTS).read_bytes()
    except OSError as error:
        raise StickRefused(f"{folder / RECEIPTS}: {error.strerror}; has the stick been swept?") from error
    fields = _opened(data, secret, b"rocketbox stick receipts\0", str(folder / RECEIPTS))
    try:
        rows: list[list[Any]] = fields.rows("r", int, int, int, bytes, int, int, str)
        return fields.octets("landing", 16), [StickReceipt(*row) for row in rows]
    except PieceDamaged as error:
        raise StickRefused(str(error)) from error


async def import_receipts(state: ShipperState, spool: Spool, target: Path, secret: bytes) -> int:
    """Take the receipts of a stick over and save them; returns the receipted bytes.

    A receipt counts only when the bytes still lie here and hash as it says. Raises StickRefused.
    """
    ledger = state.ledger
    landing, rows = await state.beside(read_receipts, target / state.config.box, secret)
    true = [row for row in rows if row.kind != "gap" and await state.beside(_still_true, state, spool, row)]
    if ledger.landing not in (None, landing):
        raise StickRefused("the stick was swept into another landing zone than this box ships to")
    ledger.landing = landing
    told = {hashlib.sha256(encode_map(gap.facts)).digest(): gap for gap in ledger.undelivered()}
    for gap in [told[row.sha] for row in rows if row.kind == "gap" and row.sha in told]:
        ledger.gap_delivered(gap)
    epochs = state.source.lineage.epochs
    true = [row for row in true if owner_of(epochs, row.start)[0] == row.epoch]  # none has begun meanwhile
    for row in true:
        ledger.receipt(row.kind, ReceiptSeen(row.start, row.end, row.kind, row.seq, 0, row.dup, state.now_ms()))
    await state.in_thread(ledger.save)
    for row in true:
        if row.kind == "pick":
            await state.beside(spool.drop, (row.start, row.end))
    return sum(row.end - row.start for row in true if row.kind == "log")


def _still_true(state: ShipperState, spool: Spool, row: StickReceipt) -> bool:
    """Whether the piece that was receipted lies in the spool or comes out of the log again as it was."""
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
    except OSError:
        if state.source.first > row.start:
            return False
        raise
    return (header.end, header.sha) == (row.end, row.sha)
