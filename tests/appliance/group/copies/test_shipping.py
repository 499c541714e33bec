"""Frames for followers: each from where it is, as far as its window allows."""

from collections import deque
from zlib import crc32

import pytest
import trio
import trio.testing

from appliance.group.copies import shipping
from appliance.group.copies.feed import Feed, FeedGone
from appliance.group.copies.pieces import LogPiece
from appliance.group.copies.shipping import Shipping
from appliance.group.links.frames import LinkFrameDecoder
from appliance.group.links.message_frames import APPEND, decode_message
from storage_driver.consensus.effects import FollowerProgress
from storage_driver.consensus.messages import Append


class Core:
    """Says what may be sent, and keeps what was."""

    def __init__(self, end: int) -> None:
        self.next, self.end, self.on_disk = 0, end, 0

    def to_ship(self, member: str) -> tuple[int, int]:
        return self.next, self.end

    def copied(self) -> int:
        return self.on_disk

    @property
    def waits_for_copies(self) -> bool:
        return True

    def ship(self, member: str, length: int, crc: int) -> Append:
        start, self.next = self.next, self.next + length
        return Append(1, start, length, 1, 0, 1 if start else 0, crc, 0, ())

    def progress(self) -> tuple[FollowerProgress, ...]:
        return (FollowerProgress("b", matched=True, next=self.next, synced=self.on_disk, heard_s=0.0),)


class Pieces(Feed):
    """A log of `x` in pieces of a hundred bytes; `core` changes while one is read, when it is set."""

    def __init__(self, size: int) -> None:
        super().__init__(lambda start, count: b"", segment_bytes=1 << 20, synced=lambda: size)
        self.gone, self.from_disk = 0, False
        self.core: Core | None = None

    async def piece(self, start: int, upto: int, reader: str = "") -> LogPiece | None:
        await trio.lowlevel.checkpoint()
        if self.gone:
            self.gone -= 1
            raise FeedGone(f"the log at {start} is deleted")
        self.read_by[reader] += 100 * self.from_disk
        if self.core is not None:
            self.core.next, self.core = 500, None
        return LogPiece(start, b"x" * min(100, upto - start), min(start + 100, upto))


async def sent(made: Shipping) -> list[tuple[int, int]]:
    """Return the ranges of all frames that there are now."""
    found, decoder = [], LinkFrameDecoder(most_record_bytes=1000, with_bytes=frozenset({APPEND}))
    while (data := await made.next_frame("b")) is not None:
        [frame] = decoder.feed(data)
        append = decode_message(frame)
        assert isinstance(append, Append)
        assert append.crc == crc32(frame.data)
        found.append((append.start, append.end))
    return found


@pytest.mark.pure
async def test_a_follower_gets_what_there_is_and_no_more_than_its_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shipping, "WINDOW", 300)
    core = Core(1000)
    made = Shipping(core, Pieces(1000), ship=lambda: None)
    assert await sent(made) == [(at, at + 100) for at in range(0, 400, 100)]
    core.on_disk = 300
    assert await sent(made) == [(at, at + 100) for at in range(400, 700, 100)]
    core.on_disk = 1000
    assert (await sent(made))[-1] == (900, 1000)
    assert await sent(made) == []


@pytest.mark.pure
async def test_what_was_read_for_another_place_is_read_again() -> None:
    core, pieces = Core(600), Pieces(600)
    pieces.core = core
    assert await sent(Shipping(core, pieces, ship=lambda: None)) == [(500, 600)]


@pytest.mark.pure
async def test_a_log_that_cannot_be_read_is_tried_again(autojump_clock: trio.testing.MockClock) -> None:
    core, pieces = Core(100), Pieces(100)
    pieces.gone = 3
    began = trio.current_time()
    made = Shipping(core, pieces, ship=lambda: None)
    while not core.next:
        asked = trio.current_time()
        assert await sent(made) in ([], [(0, 100)])
        assert trio.current_time() == asked, "messages for the follower do not wait meanwhile"
        await trio.sleep(0.25)
    assert trio.current_time() - began >= 3 * shipping.RETRY_S


@pytest.mark.pure
async def test_what_comes_from_the_disk_comes_at_a_rate(autojump_clock: trio.testing.MockClock) -> None:
    for from_disk, seconds in ((True, 9.0), (False, 0.0)):
        pieces, core, began = Pieces(1000), Core(1000), trio.current_time()
        pieces.from_disk = from_disk
        made = Shipping(core, pieces, ship=lambda: None, rate=100)
        while True:
            asked = trio.current_time()
            await sent(made)
            assert trio.current_time() == asked, "messages for the follower do not wait meanwhile"
            if core.next == 1000:
                break
            await trio.sleep(0.25)
        assert abs(trio.current_time() - began - seconds) <= 1


@pytest.mark.pure
async def test_nothing_that_was_read_ahead_stays_for_a_follower_that_has_everything() -> None:
    core, pieces = Core(600), Pieces(600)
    made = Shipping(core, pieces, ship=lambda: None)
    pieces._ahead["b"] = deque([LogPiece(600, b"x" * 100, 700)])
    pieces._ahead["c"] = deque([LogPiece(300, b"x" * 100, 400)])
    assert (await sent(made))[-1] == (500, 600)
    assert list(pieces._ahead) == ["c"], "each follower has its own"


@pytest.mark.pure
def test_followers_are_asked_for_as_long_as_there_is_more() -> None:
    core, asked = Core(300), list[int]()
    made = Shipping(core, Pieces(300), ship=lambda: asked.append(core.next))
    made.look()
    core.next = 300
    made.look()
    assert asked == [0]
