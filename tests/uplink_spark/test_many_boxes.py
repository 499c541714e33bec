"""Many boxes at one gateway that is killed at random: whatever they send, and how often, each record lands once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import trio

from tests.uplink_spark.killing import Site
from uplink_spark.box.cutting.scan import scan_records
from uplink_spark.errors import ProtocolError
from uplink_spark.testing import MadeRecord, encode_log, landed_log, raw_piece
from uplink_spark.wire import frames
from uplink_spark.wire.batch import PieceSource
from uplink_spark.wire.frames import FrameType, Hello, encode_frame
from uplink_spark.wire.intervals import Intervals
from uplink_spark.wire.link import FrameReader, LinkClosed

NOW = 1_700_000_000_000
CUT_OFF = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, LinkClosed, ProtocolError)


class ToyBox:
    """A box that keeps the protocol and nothing else: cuts at random, repeats, overlaps, newest first, hangs up."""

    def __init__(self, number: int, dice: random.Random, records: int) -> None:
        self.name, self._dice = f"box-{number}", dice
        made = [MadeRecord(queue_offset=n, body=dice.randbytes(dice.randrange(1, 300))) for n in range(records)]
        self.raw = encode_log(made, 0)
        self.borders = [0]
        for size in scan_records(self.raw, 0, len(self.raw)).sizes:
            self.borders.append(self.borders[-1] + size)
        self.held = Intervals()
        self.told: frames.ErrorFrame | None = None  # by the gateway that turned it away last
        self._source = PieceSource(self.name, number + 1, 7, 0, NOW, 1)

    @property
    def whole(self) -> bool:
        return self.held.covers(0, len(self.raw))

    async def run(self, port: int, deadline: float) -> None:
        """Send until everything is receipted and the deadline is past."""
        while not self.whole or trio.current_time() < deadline:
            try:
                await self._converse(port, deadline)
            except CUT_OFF:
                await trio.sleep(self._dice.uniform(0, 1))

    async def _converse(self, port: int, deadline: float) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            reader = FrameReader(stream)
            epoch = self._source.epoch
            hello = Hello(self.name, ((epoch, 0),), ((7, 0),), 0, len(self.raw), NOW, 1, "toy")
            await stream.send_all(hello.encode())
            kind, body = await reader.next_frame(pieces=False)
            if kind != FrameType.WELCOME:
                self.told = frames.decode_fault(body)
                raise LinkClosed("turned away")
            have = Intervals((start, end) for _, start, end in frames.decode_welcome(body).have)
            assert all(have.covers(start, end) for start, end in self.held), "a receipt was taken back"
            mend = False
            while not self.whole or trio.current_time() < deadline:
                frame = self._cut(mend=mend)
                if self._dice.random() < 0.02:
                    await stream.send_all(frame[: len(frame) // 2])
                    return
                await stream.send_all(frame)
                mend = await self._answered(reader)

    def _cut(self, *, mend: bool) -> bytes:
        """A frame of some piece; mend: of the oldest that is missing."""
        dice, last = self._dice, len(self.borders) - 1
        missing = self.held.missing(0, len(self.raw))
        if missing and (mend or dice.random() < 0.6):
            low = self.borders.index(missing[0 if mend or dice.random() < 0.5 else -1][0])
        else:
            low = dice.randrange(last)
        high = min(last, low + dice.randrange(1, 40))
        start, end = self.borders[low], self.borders[high]
        codec = dice.choice(("zstd", "zlib", "none"))
        return encode_frame(FrameType.PIECE, raw_piece(self.raw[start:end], start, source=self._source, codec=codec)[1])

    async def _answered(self, reader: FrameReader) -> bool:
        """Take the answer in; whether the centre wants the oldest first."""
        kind, body = await reader.next_frame(pieces=False)
        if kind == FrameType.REFUSED:
            assert frames.decode_refused(body).code == "holes"
            return True
        if kind != FrameType.RECEIPT:
            raise LinkClosed(f"frame {kind}")
        for row in frames.decode_receipt(body).rows:
            self.held.add(row.start, row.end)
        return False


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.end()


async def kill_at_random(site: Site, dice: random.Random, every_s: float) -> None:
    while True:
        process = await trio.to_thread.run_sync(site.gateway)
        await trio.sleep(dice.uniform(0.3, 1) * every_s)
        process.kill()
        await trio.to_thread.run_sync(process.wait)


@pytest.mark.parametrize(
    ("boxes", "records", "seconds", "every_s"),
    [
        pytest.param(6, 120, 4, 4.0, marks=pytest.mark.slow),
        pytest.param(200, 1000, 300, 20.0, marks=pytest.mark.soak),
    ],
)
async def test_boxes_that_send_anything_twice_to_a_gateway_that_dies_land_each_record_once(
    site: Site, boxes: int, records: int, seconds: float, every_s: float
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    toys = [ToyBox(number, random.Random(seed + number), records) for number in range(boxes)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kill_at_random, site, random.Random(seed), every_s)
        deadline = trio.current_time() + seconds
        with trio.fail_after(seconds + 900):
            async with trio.open_nursery() as fleet:
                for toy in toys:
                    fleet.start_soon(toy.run, site.port, deadline)
        nursery.cancel_scope.cancel()
    for toy in toys:
        landed = landed_log(site.landing, toy.name)  # raises where one landed twice
        assert landed == {low: toy.raw[low:high] for low, high in pairwise(toy.borders)}
