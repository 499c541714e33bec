"""The way of a piece from the log to the wire: one is read and walked while the one before it is compressed and hashed.

The walk needs the interpreter, compression and digest do not: on two cores both run at once, and shipping is as fast
as the slower of the two. Pieces keep their order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from uplink_spark.box.cutting.cutter import CutPiece, Taken
from uplink_spark.box.receipts.gaps import Gap


@dataclass(slots=True)
class Job:
    """A piece that goes next: taken from the log, or made already."""

    piece: Taken | CutPiece
    gap: Gap | None = None
    wrap_s: float = 0.0
    gone: trio.Event = field(default_factory=trio.Event)  # handed to the writer

    @property
    def raw_bytes(self) -> int:
        return len(self.piece.contents.raw) if isinstance(self.piece, Taken) else self.piece.header.raw_bytes


Jobs = trio.MemorySendChannel[Job]
Launch = Callable[[CutPiece, Gap | None], Awaitable[None]]


async def wrap_all(jobs: trio.MemoryReceiveChannel[Job], launch: Launch) -> None:
    """Make every job a piece, in a thread of its own, and launch it; in order, until there are no more."""
    one = trio.CapacityLimiter(1)
    async for job in jobs:
        piece = job.piece
        if isinstance(piece, Taken):
            began = trio.current_time()
            piece = await trio.to_thread.run_sync(piece.wrap, limiter=one)
            job.wrap_s = trio.current_time() - began
        await launch(piece, job.gap)
        job.gone.set()
