"""The one task of a shard: one commit for what waits, receipts in the order of offers, none for what failed."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from uplink_spark.centre import lander as lander_module
from uplink_spark.centre.lander import Offer, ShardLander
from uplink_spark.centre.verify import Verified, verify_piece
from uplink_spark.centre.zone_files.coverage import ShardCover
from uplink_spark.centre.zone_files.landing import ShardWriter, open_zone
from uplink_spark.testing import (
    SOURCE,
    MadeRecord,
    RecordingSender,
    encode_log,
    files_end_at,
    landed_entries,
    raw_piece,
)
from uplink_spark.wire.batch import PieceContents, encode_piece
from uplink_spark.wire.cbor import encode_map

NOW = 1_700_000_000_000
SIZE = 97
RAW = encode_log([MadeRecord(queue_offset=n) for n in range(20)])


def log(first: int, last: int) -> Verified:
    return verify_piece(raw_piece(RAW[first * SIZE : last * SIZE], first * SIZE, codec="none")[1], lambda _: None)


@pytest.fixture
def lander(tmp_path: Path) -> Iterator[ShardLander]:
    open_zone(tmp_path / "zone")
    cover, writer = ShardCover(), ShardWriter(tmp_path / "zone", 0)
    writer.open(cover)
    yield ShardLander(0, writer, linger_s=1, now_ms=lambda: NOW, cover=cover)
    writer.close()


async def test_what_waits_is_one_commit_and_each_is_told_its_own_first_seq(lander: ShardLander) -> None:
    one, other = RecordingSender(), RecordingSender()
    await lander.land([Offer(0, log(0, 2), one), Offer(0, log(4, 6), other)])
    assert one.heard == [("landed", 0, 0, 0), ("flush", 0)]
    await lander.land([Offer(1, log(0, 8), one), Offer(1, log(1, 5), other), Offer(2, log(8, 9), other)])
    # 0..8 has two new parts (2..4, 6..8), 1..5 is then all there
    assert one.heard[2:] == [("landed", 1, 2, 0), ("flush", 0)]
    assert other.heard == [("landed", 0, 1, 0), ("flush", 0), ("landed", 1, 4, 1), ("landed", 2, 4, 0), ("flush", 0)]
    assert (lander.counts.commits, lander.counts.dup_bytes) == (2, 4 * SIZE)
    root = lander.writer.root  # type: ignore[attr-defined]
    assert [(e.start // SIZE, e.end // SIZE) for e in landed_entries(root, "box-17")] == [
        (0, 2), (4, 6), (2, 4), (6, 8), (8, 9)
    ]  # fmt: skip


async def test_a_refused_piece_does_not_keep_the_others_from_landing(lander: ShardLander) -> None:
    told = RecordingSender()
    await lander.land([Offer(0, log(0, 2), told)])
    lander.cover.boxes["box-17"].epochs[SOURCE.epoch].data.add(3 * SIZE, 3 * SIZE + 5)  # held to inside a record
    await lander.land([Offer(1, log(2, 6), told), Offer(2, log(8, 9), told)])
    assert told.heard[2:] == [("refused", 1, "diverged"), ("landed", 2, 1, 0), ("flush", 0)]
    assert lander.counts.pieces == {("log", "landed"): 2, ("log", "refused"): 1}


async def test_nobody_is_receipted_by_a_commit_that_failed_and_the_repeat_is_no_duplicate(lander: ShardLander) -> None:
    one, other = RecordingSender(), RecordingSender()
    with files_end_at(20):
        await lander.land([Offer(0, log(0, 2), one), Offer(0, log(4, 6), other), Offer(1, log(6, 7), other)])
    assert [heard[:2] for heard in one.heard] == [("failed", "internal")]
    assert [heard[:2] for heard in other.heard] == [("failed", "internal")]  # once, not for each piece
    assert "the landing zone cannot be written" in str(one.heard[0][2])
    assert lander.counts.failures == 1
    again = RecordingSender()
    await lander.land([Offer(0, log(0, 2), again)])
    assert again.heard[0] == ("landed", 0, 0, 0)
    assert (lander.counts.commits, lander.counts.dup_bytes) == (1, 0)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
async def test_a_full_disk_is_told_as_such(lander: ShardLander, number: int) -> None:
    def step(_name: str) -> None:
        raise OSError(number, "No room")

    lander.writer._step = step  # type: ignore[attr-defined]
    told = RecordingSender()
    await lander.land([Offer(0, log(0, 2), told)])
    assert told.heard == [("failed", "full", "the landing zone cannot be written: No room")]


async def test_nothing_new_costs_no_commit_and_an_empty_shard_has_no_seq(lander: ShardLander) -> None:
    facts: dict[str, object] = {"id": [7, 1], "class": "rejected", "reason": "disk_full"}
    container = encode_piece(SOURCE, PieceContents("gap", 5, 5, encode_map(facts)), "none")[1]
    gap = verify_piece(container, lambda _: None)
    told = RecordingSender()
    await lander.land([Offer(0, gap, told), Offer(1, gap, told)])
    await lander.land([Offer(2, gap, told)])
    assert told.heard == [("landed", 0, 0, 0), ("landed", 1, 0, 1), ("flush", 0), ("landed", 2, 0, 1), ("flush", 0)]
    assert lander.counts.commits == 1
    assert lander.counts.gaps == {"rejected": 1}


async def test_a_commit_waits_for_others_but_not_longer_than_the_linger_or_once_it_is_large(
    lander: ShardLander, mock_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = RecordingSender()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lander.run)
        lander.offer(Offer(0, log(0, 1), told))
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(0.9)
        lander.offer(Offer(1, log(1, 2), told))
        await trio.testing.wait_all_tasks_blocked()
        assert told.heard == []
        mock_clock.jump(0.11)  # a second since the oldest came
        await told.flushed.wait()
        assert told.heard == [("landed", 0, 0, 0), ("landed", 1, 1, 0), ("flush", 0)]
        told.flushed = trio.Event()
        monkeypatch.setattr(lander_module, "COMMIT_RAW_BYTES", 2 * SIZE)
        lander.offer(Offer(2, log(2, 3), told))
        lander.offer(Offer(3, log(3, 4), told))
        await told.flushed.wait()  # without a tick of the clock
        nursery.cancel_scope.cancel()
    assert lander.counts.commits == 2


async def test_a_commit_that_has_begun_is_finished_and_receipted_though_the_gateway_stops(lander: ShardLander) -> None:
    told = RecordingSender()
    lander._linger_s = 0
    async with trio.open_nursery() as nursery:

        def step(name: str) -> None:
            if name == "G2":  # the pack is written, its name is not
                trio.from_thread.run_sync(nursery.cancel_scope.cancel)

        lander.writer._step = step  # type: ignore[attr-defined]
        nursery.start_soon(lander.run)
        lander.offer(Offer(0, log(0, 1), told))
    assert told.heard == [("landed", 0, 0, 0), ("flush", 0)]
