"""The one task of a shard: what is new of the pieces that wait, one commit for all of them, then their receipts."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import trio

from storage_driver.files.disk import SPACE_ERRORS
from uplink_spark.centre.histogram import Histogram
from uplink_spark.centre.verify import Verified
from uplink_spark.centre.zone_files.contents import ContentCheck, meet
from uplink_spark.centre.zone_files.coverage import CommitDraft, Judged, ShardCover
from uplink_spark.centre.zone_files.landing import Covering, LandedBefore, NewPiece
from uplink_spark.errors import LandingError, Refused
from uplink_spark.zone.manifest import ManifestEntry

log = logging.getLogger("uplink_spark.gateway")
COMMIT_BYTES = 8 << 20
COMMIT_RAW_BYTES = 12 << 20  # well-compressed pieces: a box's window of 32 MiB must not wait for the linger each time


class Writer(Protocol):
    """Packs and manifest of one shard, on a disk or in an object store."""

    next_seq: int
    syncs: Histogram  # what each sync (or PUT) of a commit took

    def open(self, cover: Covering) -> None: ...
    def commit(self, pieces: Sequence[NewPiece], now_ms: int) -> list[ManifestEntry]: ...
    def close(self) -> None: ...


class OfferSource(Protocol):
    """The connection a piece came from; it may have ended. Every offer is landed, refused or dropped, once."""

    def landed(self, number: int, piece: Verified, seq: int, dup: int) -> None: ...
    def refused(self, number: int, piece: Verified, reason: Refused) -> None: ...
    def dropped(self, number: int, piece: Verified) -> None: ...
    def failed(self, code: str, text: str) -> None: ...
    def flush(self, shard: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Offer:
    """A verified piece that waits to be landed."""

    number: int
    piece: Verified
    sender: OfferSource


@dataclass(slots=True)
class LandingCounts:
    """What a shard has done since the start."""

    syncs: Histogram = field(default_factory=Histogram)  # the writer's
    commits: int = 0
    commit_s: Histogram = field(default_factory=Histogram)
    pieces: Counter[tuple[str, str]] = field(default_factory=Counter)  # by kind and result: landed, dup, refused
    gaps: Counter[str] = field(default_factory=Counter)  # by class
    dup_bytes: int = 0
    failures: int = 0

    def go_on_from(self, before: LandingCounts) -> None:
        """Add what the shard had done here before another gateway had it: counters never fall."""
        self.syncs += before.syncs
        self.commits += before.commits
        self.commit_s += before.commit_s
        self.pieces += before.pieces
        self.gaps += before.gaps
        self.dup_bytes += before.dup_bytes
        self.failures += before.failures


class ShardLander:
    """Group commit: at COMMIT_BYTES stored or COMMIT_RAW_BYTES raw, or when the oldest piece has waited linger_s."""

    def __init__(
        self,
        shard: int,
        writer: Writer,
        *,
        linger_s: float,
        now_ms: Callable[[], int],
        cover: ShardCover,
        contents: ContentCheck | None = None,
    ) -> None:
        self.shard, self.writer, self.cover = shard, writer, cover
        self.counts = LandingCounts(writer.syncs)
        self._contents = contents  # None: nobody compares
        self._linger_s, self._now_ms = linger_s, now_ms
        self._offers: list[Offer] = []
        self._bytes = self._raw_bytes = 0
        self._arrived, self._full = trio.Event(), trio.Event()
        self._thread = trio.CapacityLimiter(1)
        self._stopped = False

    def offer(self, offer: Offer) -> None:
        if self._stopped:
            self._drop([offer])
            return
        self._offers.append(offer)
        self._bytes += len(offer.piece.container)
        self._arrived.set()
        self._raw_bytes += offer.piece.header.raw_bytes
        if self._bytes >= COMMIT_BYTES or self._raw_bytes >= COMMIT_RAW_BYTES:
            self._full.set()

    async def run(self) -> None:
        """Land what is offered until cancelled; a commit that has begun is finished."""
        while True:
            await self._arrived.wait()
            with trio.move_on_after(self._linger_s):
                await self._full.wait()
            offers, self._offers = self._offers, []
            self._bytes = self._raw_bytes = 0
            self._arrived, self._full = trio.Event(), trio.Event()
            with trio.CancelScope(shield=True):
                await self.land(offers)

    def stop(self) -> None:
        """The shard goes to another gateway: what waits gets no receipt and comes again there."""
        self._stopped = True
        offers, self._offers = self._offers, []
        self._drop(offers)

    def _drop(self, offers: Sequence[Offer]) -> None:
        for offer in offers:
            offer.sender.dropped(offer.number, offer.piece)
        for sender in {id(offer.sender): offer.sender for offer in offers}.values():
            sender.failed("busy", f"shard {self.shard:04x} goes to another gateway")

    async def land(self, offers: Sequence[Offer]) -> None:
        draft, judged = self.cover.draft(), list[tuple[Offer, Judged | None]]()
        for number, offer in enumerate(offers):
            judged.append((offer, await self._judge(draft, offer, offers[:number])))
        new = [
            NewPiece(o.piece.header, o.piece.container, j.parts, o.piece.gap, j.heals)
            for o, j in judged
            if j and j.parts
        ]
        offers = [offer for offer, verdict in judged if verdict is not None]  # the others have been told
        try:
            entries = await trio.to_thread.run_sync(self._commit, new, limiter=self._thread) if new else []
        except LandedBefore as before:
            for entry in before.entries:
                self._note(entry)
            await self.land(offers)
            return
        except OSError as error:
            self._fail(offers, error)
            return
        except LandingError:
            self._drop(offers)
            raise
        self._receipt(judged, entries)

    def _commit(self, new: list[NewPiece]) -> list[ManifestEntry]:
        began = time.perf_counter()
        entries = self.writer.commit(new, self._now_ms())
        self.counts.commit_s.observe(time.perf_counter() - began)
        return entries

    async def _judge(self, draft: CommitDraft, offer: Offer, before: Sequence[Offer]) -> Judged | None:
        try:
            if self._contents is not None and draft.overlaps(offer.piece):
                await self._compare(self._contents, offer.piece, before)
            return draft.judge(offer.piece)
        except Refused as reason:
            self.counts.pieces[offer.piece.header.kind, "refused"] += 1
            offer.sender.refused(offer.number, offer.piece, reason)
            return None

    async def _compare(self, contents: ContentCheck, piece: Verified, before: Sequence[Offer]) -> None:
        """Raise Refused when what is held of the piece's range, or comes with it, has other bytes."""
        header = piece.header
        places = tuple(self.cover.boxes[header.box].newest) if header.box in self.cover.boxes else ()
        mates = [offer.piece for offer in before if offer.piece.header.box == header.box]
        near = [m.container for m in mates if meet(header, m.header.epoch, m.header.kind, m.header.start, m.header.end)]
        check = partial(contents.check, piece.container, places, near, self._now_ms())
        await trio.to_thread.run_sync(check, limiter=self._thread)

    def _fail(self, offers: Sequence[Offer], error: OSError) -> None:
        self.counts.failures += 1
        code = "full" if error.errno in SPACE_ERRORS else "internal"
        log.error("landing failed shard=%04x pieces=%d error=%s; no receipt is sent", self.shard, len(offers), error)
        for offer in offers:
            offer.sender.dropped(offer.number, offer.piece)
        for sender in {id(offer.sender): offer.sender for offer in offers}.values():
            sender.failed(code, f"the landing zone cannot be written: {error.strerror or error}")

    def _note(self, entry: ManifestEntry) -> None:
        self.cover.note(entry)
        if entry.gap:
            self.counts.gaps[str(entry.gap["class"])] += 1

    def _receipt(self, judged: Sequence[tuple[Offer, Judged | None]], entries: Sequence[ManifestEntry]) -> None:
        for entry in entries:
            self._note(entry)
        self.counts.commits += bool(entries)
        at = 0
        for offer, verdict in judged:
            if verdict is None:
                continue
            seq = entries[at].seq if verdict.parts else max(0, self.writer.next_seq - 1)
            at += len(verdict.parts)
            raw, kind = offer.piece.header.raw_bytes, offer.piece.header.kind
            self.counts.pieces[kind, "landed" if verdict.parts else "dup"] += 1
            if not verdict.parts:
                self.counts.dup_bytes += raw
            offer.sender.landed(offer.number, offer.piece, seq, int(not verdict.parts))
        for sender in {id(offer.sender): offer.sender for offer, _ in judged}.values():
            sender.flush(self.shard)
