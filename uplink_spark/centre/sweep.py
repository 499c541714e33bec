"""Sweeping a stick into a landing zone: every file is treated as a PIECE that came over the wire.

A gateway that runs on the zone takes the files through its local socket; where none runs, the sweep is the writer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import trio

from uplink_spark.centre.local_socket import doors, knock
from uplink_spark.centre.verify import Verified, judge_for, verify_piece
from uplink_spark.centre.zone_files.coverage import BoxCover, ShardCover
from uplink_spark.centre.zone_files.landing import NewPiece, ShardWriter
from uplink_spark.centre.zone_files.records import CentreRecords
from uplink_spark.errors import PieceDamaged, Refused
from uplink_spark.wire.batch import PieceHeader, decode_header
from uplink_spark.wire.frames import FrameType, Hello, decode_fault, decode_receipt, decode_refused, encode_frame
from uplink_spark.wire.identity import stick_fork
from uplink_spark.wire.link import FrameReader, LinkClosed
from uplink_spark.wire.stick_files import StickFile, StickIndex, StickReceipt, StickRefused, read_index, write_receipts
from uplink_spark.zone.manifest import Zone, shard_of
from uplink_spark.zone.reader import ZoneReader

COMMIT_BYTES = 8 << 20
AHEAD = 6  # pieces of at most 4 MiB in a window of 32


class StickElsewhere(StickRefused):
    """Another gateway has the box's shard."""


Fetch = Callable[[StickFile], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What came of one box's folder."""

    box: str
    pieces: int
    new: int
    receipts: tuple[StickReceipt, ...]


def sweep_box(root: Path, folder: Path, *, secret: bytes | None, now_ms: Callable[[], int]) -> SweepResult:
    """Land DIR/<box>, through the running gateway or as the shard's writer when none runs; receipts go onto the stick.

    Without the secret no receipts are written: the box learns from `have`. Blocks. Raises StickRefused, LandingError.
    """
    index = read_index(folder, secret)
    zone = ZoneReader(str(root)).zone
    receipts = trio.run(sweep_through_gateway, root, folder, index)
    if receipts is None:
        receipts = _sweep_alone(root, zone, folder, index, now_ms=now_ms)
    if secret is not None:
        write_receipts(folder, secret, zone.landing_id, receipts)
    return SweepResult(index.box, len(receipts), sum(not row.dup for row in receipts), tuple(receipts))


def _sweep_alone(
    root: Path, zone: Zone, folder: Path, index: StickIndex, *, now_ms: Callable[[], int]
) -> list[StickReceipt]:
    records = CentreRecords(root, zone.shards)
    cover = ShardCover()
    writer = ShardWriter(root, shard_of(index.box, zone.shards))
    writer.open(cover)
    try:
        _check_history(index, cover.boxes.get(index.box, BoxCover()), records)
        return _land(index, folder, writer, cover, now_ms)
    finally:
        writer.close()


async def sweep_through_gateway(root: Path, folder: Path, index: StickIndex) -> list[StickReceipt] | None:
    """Hand a stick's files to the gateway that has the box's shard, None where none runs here. Raises StickRefused."""

    async def fetch(file: StickFile) -> bytes:
        return await trio.to_thread.run_sync((folder / file.name).read_bytes)

    elsewhere: StickElsewhere | None = None
    for name in doors(root):
        stream = await knock(root, name)
        if stream is None:
            continue
        try:
            return await hand_over(stream, index, fetch)
        except StickElsewhere as error:
            elsewhere = error
    if elsewhere is not None:
        raise elsewhere
    return None


async def hand_over(stream: trio.SocketStream, index: StickIndex, fetch: Fetch) -> list[StickReceipt]:
    """Send a stick's files, one fetched at a time, to a gateway's door; return their receipts. Raises StickRefused."""
    async with stream:
        try:
            return await _converse(stream, index, fetch)
        except (LinkClosed, trio.BrokenResourceError) as error:
            raise StickRefused(f"the gateway ended the sweep: {error}; see its log and sweep again") from error


async def _converse(stream: trio.SocketStream, index: StickIndex, fetch: Fetch) -> list[StickReceipt]:
    reader, headers, receipts = FrameReader(stream), list[PieceHeader](), list[StickReceipt]()
    await stream.send_all(_hello_of(index).encode())
    await _answer(reader, index, headers, receipts)
    for file in index.files:
        while len(headers) - len(receipts) >= AHEAD:
            await _answer(reader, index, headers, receipts)
        container = await fetch(file)
        try:
            headers.append(decode_header(container)[0])
        except PieceDamaged as error:
            raise StickRefused(f"{index.box}/{file.name}: damaged: {error}") from error
        await stream.send_all(encode_frame(FrameType.PIECE, container))
    while len(receipts) < len(headers):
        await _answer(reader, index, headers, receipts)
    return receipts


async def _answer(
    reader: FrameReader, index: StickIndex, headers: list[PieceHeader], receipts: list[StickReceipt]
) -> None:
    """Take in the next WELCOME or RECEIPT. Raises StickRefused naming the file."""
    while True:
        kind, body = await reader.next_frame(pieces=False)
        if kind == FrameType.WELCOME:
            return
        if kind == FrameType.RECEIPT:
            for row in decode_receipt(body).rows:
                h = headers[row.number]
                receipts.append(StickReceipt(h.epoch, h.start, h.end, h.sha, row.seq, row.dup, h.kind))
            return
        if kind == FrameType.REFUSED:
            refusal = decode_refused(body)
            raise StickRefused(f"{index.files[refusal.number].name}: {refusal.code}: {refusal.text}")
        if kind == FrameType.ERROR:
            fault = decode_fault(body)
            refusal_type = StickElsewhere if fault.code == "moved" else StickRefused
            raise refusal_type(f"{index.box}: {fault.code}: {fault.text}")


def _check_history(index: StickIndex, cover: BoxCover, records: CentreRecords) -> None:
    epoch = index.lineage[-1][0]
    book = records.load(index.box)
    if book.retired:
        raise StickRefused(f"box {index.box} is retired")
    fork = stick_fork(book.runs.get(epoch, ()), index.runs, cover.covered(epoch), index.durable)
    if fork is not None:
        raise StickRefused(
            f"box {index.box}: its history differs from the centre's from log offset {fork} on; "
            "connect it once, then export again"
        )
    if not book.runs.get(epoch):
        records.save(index.box, epoch, index.runs)


class _Landing:
    """Pieces of one stick on their way into the zone, a commit for about 8 MiB."""

    def __init__(self, writer: ShardWriter, cover: ShardCover, now_ms: Callable[[], int]) -> None:
        self._writer, self._cover, self._now_ms = writer, cover, now_ms
        self._draft = cover.draft()
        self._waiting: list[NewPiece] = []
        self.receipts: list[StickReceipt] = []

    def add(self, verified: Verified) -> None:
        """Take a piece. Raises Refused."""
        judged = self._draft.judge(verified)
        self._waiting.append(NewPiece(verified.header, verified.container, judged.parts, verified.gap, judged.heals))
        if sum(len(piece.container) for piece in self._waiting) >= COMMIT_BYTES:
            self.commit()

    def commit(self) -> None:
        new = [piece for piece in self._waiting if piece.parts]
        for entry in self._writer.commit(new, self._now_ms()) if new else []:
            self._cover.note(entry)
        seq = max(0, self._writer.next_seq - 1)
        for piece in self._waiting:
            h = piece.header
            self.receipts.append(StickReceipt(h.epoch, h.start, h.end, h.sha, seq, int(not piece.parts), h.kind))
        self._waiting = []
        self._draft = self._cover.draft()


def _hello_of(index: StickIndex) -> Hello:
    return Hello(index.box, index.lineage, index.runs, 0, index.durable, 0, 0, "stick")


def _land(
    index: StickIndex, folder: Path, writer: ShardWriter, cover: ShardCover, now_ms: Callable[[], int]
) -> list[StickReceipt]:
    judge = judge_for(_hello_of(index))
    landing = _Landing(writer, cover, now_ms)
    for file in index.files:
        try:
            landing.add(verify_piece((folder / file.name).read_bytes(), judge))
        except Refused as reason:
            raise StickRefused(f"{folder / file.name}: {reason}") from reason
    landing.commit()
    return landing.receipts
