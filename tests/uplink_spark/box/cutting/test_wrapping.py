"""Pieces on their way to the wire: one is taken while another is wrapped, in order; a fault is not swallowed."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest
import trio
import trio.testing

from uplink_spark.box.cutting.cutter import CutOrder, CutPiece, Taken, take_piece
from uplink_spark.box.cutting.wrapping import Job, wrap_all
from uplink_spark.box.receipts.gaps import Gap
from uplink_spark.testing import SOURCE, MadeRecord, encode_log

SIZE = 97
RAW = encode_log([MadeRecord(queue_offset=n) for n in range(8)])


@dataclass(frozen=True, slots=True)
class Gated(Taken):
    """A piece whose wrapping waits for a gate."""

    gate: threading.Event | None = None

    def wrap(self) -> CutPiece:
        assert self.gate is not None
        assert self.gate.wait(60)
        return Taken.wrap(self)


def taken(first: int, last: int) -> Taken:
    order = CutOrder(SOURCE, first * SIZE, last * SIZE, len(RAW), 1 << 20, "none")
    return take_piece(lambda start, length: RAW[start : start + length], order)


async def test_the_next_piece_is_handed_on_while_one_is_wrapped_and_does_not_overtake_it() -> None:
    gate, launched = threading.Event(), list[int]()
    slow, quick = taken(0, 4), taken(4, 8).wrap()
    first, second = Job(Gated(slow.order, slow.contents, slow.sizes, gate=gate)), Job(quick)

    async def launch(piece: CutPiece, gap: Gap | None) -> None:
        await trio.lowlevel.checkpoint()
        launched.append(piece.header.start // SIZE)

    send, receive = trio.open_memory_channel[Job](1)
    with trio.fail_after(25):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wrap_all, receive, launch)
            await send.send(first)
            await send.send(second)
            await trio.testing.wait_all_tasks_blocked()
            assert (launched, first.gone.is_set(), second.gone.is_set()) == ([], False, False)
            gate.set()
            await second.gone.wait()
            assert (launched, first.gone.is_set()) == ([0, 4], True)
            assert first.wrap_s > second.wrap_s == 0
            send.close()


async def test_a_piece_that_cannot_be_wrapped_or_sent_ends_the_work() -> None:
    async def launch(piece: CutPiece, gap: Gap | None) -> None:
        await trio.lowlevel.checkpoint()
        raise trio.BrokenResourceError

    send, receive = trio.open_memory_channel[Job](1)
    await send.send(job := Job(taken(0, 4)))
    with pytest.raises(trio.BrokenResourceError):
        await wrap_all(receive, launch)
    assert not job.gone.is_set()
