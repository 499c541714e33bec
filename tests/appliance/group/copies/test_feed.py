"""What followers are sent: whole records, from memory while new, from the disk later, never across a segment."""

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from appliance.group.copies import feed as feed_module
from appliance.group.copies.feed import Feed, FeedGone
from appliance.group.copies.pieces import LogPiece
from storage_driver.store import MessageStore, open_store
from tests.storage_driver.test_store import Clock, message, small
from tests.waiting import until

SEGMENT = 128 * 1024


@asynccontextmanager
async def fed(tmp_path: Path) -> AsyncIterator[tuple[MessageStore, Feed]]:
    """A shared store, and what feeds its followers."""
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        feed = Feed(partial(store.read_log, synced=True), segment_bytes=SEGMENT, synced=lambda: store.synced)
        store.share(lambda log_offset: None, feed.batch)
        yield store, feed


async def filled(store: MessageStore, seed: int, count: int = 60) -> None:
    """Append messages of all sizes, some together, some alone."""
    pick = random.Random(seed)
    for _ in range(count):
        for _ in range(pick.choice((1, 1, 5))):
            store.put(message(bytes(pick.choice((1, 900, 20_000)))))
        if pick.random() < 0.5:
            await until(lambda: store.synced == store.end)
    await until(lambda: store.synced == store.end)


async def copied(store: MessageStore, feed: Feed, copy: MessageStore) -> int:
    """Append all pieces to another store, return how many there were."""
    count = 0
    while copy.end < store.end:
        piece = await feed.piece(copy.end, store.end)
        assert piece is not None
        assert piece.start == copy.end
        assert copy.append_raw(piece.start, piece.data) == piece.end
        count += 1
    return count


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("where", ["memory", "disk", "both"])
async def test_pieces_are_whole_records_wherever_they_come_from(tmp_path: Path, seed: int, where: str) -> None:
    async with fed(tmp_path / "a") as (store, feed), open_store(small(tmp_path / "b"), now_ms=Clock()) as copy:
        await filled(store, seed)
        if where != "memory":
            feed.clear()
        if where == "both":
            await filled(store, seed + 100)
        await copied(store, feed, copy)
        assert (feed.read_by[""] > 0) == (where != "memory")
        await until(lambda: copy.synced == store.synced)
        for segment, other in zip(store.segments(), copy.segments(), strict=True):
            assert segment.path.read_bytes() == other.path.read_bytes()


@pytest.mark.pure
async def test_large_pieces_are_read_from_the_disk_several_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "MOST_PIECE", 20_000)
    async with fed(tmp_path / "a") as (store, feed), open_store(small(tmp_path / "b"), now_ms=Clock()) as copy:
        for number in range(300):
            store.put(message(b"%d" % number + bytes(900)))
        await until(lambda: store.synced == store.end)
        feed.clear()
        asked = list[int]()
        read = feed.read

        def counting(start: int, count: int) -> bytes:
            asked.append(start)
            return read(start, count)

        feed.read = counting
        assert await copied(store, feed, copy) >= 12
        assert len(asked) >= 12
        assert len(feed._ahead.get("", ())) <= feed_module.AHEAD
        first = await feed.piece(0, store.end)
        assert first is not None
        second = await feed.piece(first.end, first.end + 2_000)
        assert second is not None
        assert second.end <= first.end + 2_000, "what was read ahead may be too much"


@pytest.mark.pure
async def test_what_is_read_ahead_is_each_readers_own_and_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "MOST_PIECE", 20_000)
    async with fed(tmp_path) as (store, feed):
        for number in range(300):
            store.put(message(b"%d" % number + bytes(900)))
        await until(lambda: store.synced == store.end)
        feed.clear()
        places = dict.fromkeys("bcd", 0)
        shipped = Counter[str]()
        for turn in range(1000):  # one after the other, each some pieces behind the one before
            for lag, reader in enumerate(places):
                if turn >= 2 * lag and places[reader] < store.end:
                    piece = await feed.piece(places[reader], store.end, reader)
                    assert piece is not None
                    assert len(feed._ahead.get(reader, ())) <= feed_module.AHEAD
                    places[reader] = piece.end
                    shipped[reader] += len(piece.data)
        assert set(places.values()) == {store.end}
        assert feed.read_by == shipped, "nothing is read twice for one of them"
        await feed.piece(0, store.end, "b")
        assert feed._ahead["b"]
        feed.forget("b")
        assert "b" not in feed._ahead


@pytest.mark.parametrize("most_piece", [20_000, 1 << 20])
async def test_what_is_read_while_the_feed_is_cleared_is_not_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_piece: int
) -> None:
    monkeypatch.setattr(feed_module, "MOST_PIECE", most_piece)
    async with fed(tmp_path) as (store, feed):
        for number in range(100):
            store.put(message(b"%d" % number + bytes(900)))
        await until(lambda: store.synced == store.end)
        feed.clear()
        read = feed.read

        def reading(start: int, count: int) -> bytes:
            trio.from_thread.run_sync(
                feed.clear
            )  # this box leads no more; what follows may be cut off, and written anew
            return read(start, count)

        feed.read = reading
        assert await feed.piece(0, store.end, "b") is None
        assert not feed._ahead
        feed.read = read
        assert await feed.piece(0, store.end, "b") is not None


async def test_a_piece_ends_where_it_is_told_to_and_begins_within_a_batch(tmp_path: Path) -> None:
    async with fed(tmp_path) as (store, feed):
        ends = [store.put(message(b"%d" % number)).end for number in range(5)]
        await until(lambda: store.synced == ends[-1])
        for _ in range(2):
            piece = await feed.piece(ends[0], ends[2])
            assert piece is not None
            assert (piece.start, piece.end, len(piece.data)) == (ends[0], ends[2], ends[2] - ends[0])
            feed.clear()  # the same from the disk


@pytest.mark.pure
async def test_memory_is_bounded_and_what_is_not_synced_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "MOST_KEPT", 100_000)
    async with fed(tmp_path) as (store, feed):
        await filled(store, 1)
        assert feed._kept_bytes <= 100_000 + 5 * 21_000
        assert await feed.piece(store.end, store.end) is None
        assert await feed.piece(store.end, store.end + 100) is None, "not appended yet"


async def test_what_retention_deleted_is_gone(tmp_path: Path) -> None:
    async with fed(tmp_path) as (store, feed):
        await filled(store, 1)
        feed.clear()
        store.commit(store.end)
        assert await store.drop_first()
        with pytest.raises(FeedGone, match="is deleted"):
            await feed.piece(0, store.end)
        with trio.fail_after(5):
            assert await feed.piece(store.first, store.end) is not None


def test_the_newest_of_many_batches_is_found_without_a_look_at_all_of_them() -> None:
    looked = 0

    class Counting(LogPiece):
        def __getattribute__(self, name: str) -> object:
            nonlocal looked
            looked += name == "end"
            return super().__getattribute__(name)

    feed = Feed(lambda start, count: b"", segment_bytes=SEGMENT, synced=lambda: 0)
    feed._kept.extend(Counting(at, b"x" * 10, at + 10) for at in range(0, 50_000, 10))
    assert feed._from_memory(49_990, 50_000) == LogPiece(49_990, b"x" * 10, 50_000)
    assert looked < 20
    assert [piece.start for piece in feed._from(49_985)] == [49_980, 49_990]
    assert feed._from_memory(0, 30) == LogPiece(0, b"x" * 30, 30)
