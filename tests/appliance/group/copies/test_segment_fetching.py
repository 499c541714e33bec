"""A follower far behind gets whole segments over real links, from wherever it is, and goes on after any cut."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from appliance.group.copies import segment_fetching, segment_sending
from appliance.group.copies.log_copy import LogUnread
from appliance.group.copies.segment_frames import REFUSED, SegmentFetch, SegmentOffer
from appliance.group.leadership import LEADER
from appliance.group.links.frames import FETCH, LinkFrame
from appliance.group.links.link import LinkEnded
from appliance.group.links.thread_stream import ThreadStream
from storage_driver.crc import crc32
from storage_driver.errors import QueueRestarted
from storage_driver.log.copied_segment import COPY, CopiedSegment, CopyDiffers
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.members import MANUAL, RunningMember, group
from tests.appliance.group.test_consensus_driver import pair, same
from tests.waiting import until
from uplink_spark.errors import ProtocolError

pytestmark = [pytest.mark.slow, needs_openssl]
ONE = MANUAL._replace(acknowledge="one")
NUMBER = 150


def log_of(member: RunningMember) -> bytes:
    data, at = b"", member.store.first
    while part := member.store.read_log(at + len(data), 1 << 20):
        data += part
    return data


async def filled(member: RunningMember, seed: int, count: int = NUMBER) -> list[bytes]:
    """Have a member store messages in many segments; return their bodies."""
    dice = random.Random(seed)
    names = [b"%d/%d " % (seed, number) + dice.randbytes(dice.choice([20, 9000])) for number in range(count)]
    await member.put_committed(*names)
    return names


class Fetched:
    """Counts what a member fetched, and may break what is sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.whole = 0
        self.breaks: Callable[[SegmentFetch], bool] = lambda fetch: False
        self.fetches = list[SegmentFetch]()
        install, send = CopiedSegment.install, segment_sending.SegmentSending.send

        def installed(copied: CopiedSegment) -> Any:
            self.whole += 1
            return install(copied)

        def sent(sending: segment_sending.SegmentSending, stream: ThreadStream) -> None:
            self.fetches.append(sending._fetch)
            if self.breaks(sending._fetch):
                raise ConnectionError("a cable is pulled")
            send(sending, stream)

        monkeypatch.setattr(CopiedSegment, "install", installed)
        monkeypatch.setattr(segment_sending.SegmentSending, "send", sent)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Fetched:
    return Fetched(monkeypatch)


async def test_a_follower_that_was_away_gets_whole_segments_and_then_frames(tmp_path: Path, fetched: Fetched) -> None:
    async with group(tmp_path, "a", "b", rules=ONE) as made:
        a, b = await pair(made)
        names = await filled(a, 1, 5)
        await until(lambda: same(a, b))
        assert not fetched.whole, "a follower that is level gets frames"
        await made.stop("b")
        names += await filled(a, 2)
        assert len(a.store.segments()) > 3
        [b] = await made.start("b")
        await until(lambda: same(a, b))
        assert fetched.whole >= len(a.store.segments()) - 2
        names += await filled(a, 3, 5)
        await until(lambda: same(a, b))
        assert log_of(a) == log_of(b)
        assert await b.bodies() == names == await a.bodies()
        await b.driver.orders.promote()
        await until(b.leads)
        await b.put_committed(b"of b")
        await until(lambda: same(a, b))
        assert (await a.bodies())[-1] == b"of b"


async def test_a_new_member_gets_all_from_the_first_segment_on(tmp_path: Path, fetched: Fetched) -> None:
    async with group(tmp_path, "a", "b", rules=ONE) as made:
        [a] = await made.start("a")
        await a.driver.orders.promote(accept_loss=True)
        await until(a.leads)
        names = await filled(a, 1)
        await a.store.drop_first()
        [b] = await made.start("b")
        await until(lambda: same(a, b))
        assert b.store.first == a.store.first > 0
        assert b.store.lineage.epochs == a.store.lineage.epochs
        assert fetched.whole
        assert log_of(a) == log_of(b)
        assert names[-1] == (await b.bodies())[-1]


async def test_a_fetch_goes_on_where_it_was_cut(
    tmp_path: Path, fetched: Fetched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_sending, "PIECE", 10_000)
    broken, pieces = [0], [0]
    bytes_of = segment_sending.SegmentSending._bytes

    def now_and_then(sending: segment_sending.SegmentSending, at: int, end: int) -> bytes:
        pieces[0] += end == sending._fetch.end  # not of what the follower has
        if not pieces[0] % 5 and end == sending._fetch.end:
            broken[0] += 1
            raise ConnectionError("a cable is pulled")
        return bytes_of(sending, at, end)

    async with group(tmp_path, "a", "b", rules=ONE) as made:
        a, b = await pair(made)
        await made.stop("b")
        await filled(a, 1)
        monkeypatch.setattr(segment_sending.SegmentSending, "_bytes", now_and_then)
        [b] = await made.start("b")
        with trio.fail_after(120):
            await until(lambda: same(a, b))
        assert broken[0] > 2
        assert any(fetch.at > fetch.start for fetch in fetched.fetches), "it went on in the middle"
        assert fetched.whole
        assert log_of(a) == log_of(b)


async def test_what_cannot_be_fetched_comes_in_frames(tmp_path: Path, fetched: Fetched) -> None:
    fetched.breaks = lambda fetch: True
    async with group(tmp_path, "a", "b", rules=ONE) as made:
        a, b = await pair(made)
        await made.stop("b")
        await filled(a, 1)
        [b] = await made.start("b")
        await until(lambda: same(a, b))
        assert fetched.fetches
        assert not fetched.whole
        assert log_of(a) == log_of(b)
        assert not (b.store.config.root / COPY).exists(), "what had come takes no space"


async def test_a_full_disk_fetches_nothing(tmp_path: Path, fetched: Fetched) -> None:
    async with group(tmp_path, "a", "b", rules=ONE) as made:
        a, b = await pair(made)
        await made.stop("b")
        await filled(a, 1)
        [b] = await made.start("b")
        fetching = b.driver._segments
        b.store.full = "97 % used"
        start = b.store.end
        offer = SegmentOffer(start, start - start % b.store.segment_bytes + b.store.segment_bytes)
        assert (await fetching._fetched("a", offer)).what == REFUSED
        assert (await fetching._fetched("a", offer._replace(start=start + 1))).what == REFUSED
        b.store.full = None
        await until(lambda: same(a, b))


async def test_a_disk_that_gives_other_bytes_back_takes_no_part_any_more(
    tmp_path: Path, fetched: Fetched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs(copied: CopiedSegment, check: Callable[[], None]) -> None:
        raise CopyDiffers("bytes 0 to 1000 are not those that were written")

    async with group(tmp_path, "a", "b", rules=ONE) as made:
        a, b = await pair(made)
        await made.stop("b")
        await filled(a, 1)
        monkeypatch.setattr(CopiedSegment, "finish", differs)
        [b] = await made.start("b")
        await until(lambda: "are not those that were written" in b.driver._core.status.trouble)
        assert not fetched.whole


async def test_a_segment_that_was_changed_on_its_way_is_fetched_again(
    tmp_path: Path, fetched: Fetched, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong, crc = [3], crc32

    def changed(data: bytes, before: int = 0) -> int:
        wrong[0] -= 1
        return crc(data, before) ^ (wrong[0] == 0)

    async with group(tmp_path, "a", "b", rules=ONE) as made:
        a, b = await pair(made)
        await made.stop("b")
        await filled(a, 1)
        monkeypatch.setattr(segment_sending, "crc32", changed)
        [b] = await made.start("b")
        await until(lambda: same(a, b))
        assert wrong[0] < 0
        assert fetched.whole
        assert log_of(a) == log_of(b)


async def test_only_what_was_offered_to_a_member_is_sent_to_it(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b", rules=ONE) as made:
        a, b = await pair(made)
        await filled(a, 1)
        await until(lambda: same(a, b))
        fetch = SegmentFetch("press", "b", 0, a.store.segment_bytes, 0)
        async with b.driver.links.connected("a") as stream:
            await stream.send_all(fetch.encode())
            with trio.fail_after(60):
                assert await stream.receive_some() == b""
        with pytest.raises(LinkEnded, match="not a member"):
            async with b.driver.links.connected("x"):
                pass
        shipping = a.driver._heard._shipping
        for member, frame in (("c", fetch), ("b", fetch._replace(member="a"))):
            with pytest.raises(LinkEnded, match="was not offered"):
                await shipping.send_segment(member, stream, LinkFrame(FETCH, frame.encode()[7:]))
        with pytest.raises(ProtocolError):
            await shipping.send_segment("b", stream, LinkFrame(FETCH, b"garbage"))


async def test_a_new_leader_has_read_all_of_its_log_before_it_appends(
    tmp_path: Path, fetched: Fetched, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with group(tmp_path, "a", "b", rules=ONE) as made:
        a, b = await pair(made)
        await made.stop("b")
        names = await filled(a, 1)
        [b] = await made.start("b")
        reads, allowed = b.store.copies.read_some, trio.Event()

        async def slowly() -> None:
            await allowed.wait()
            await reads()

        monkeypatch.setattr(b.store.copies, "read_some", slowly)
        monkeypatch.setattr(segment_fetching, "LEAD_S", 60.0)
        await until(lambda: fetched.whole >= 2 and b.driver._segments.unread)
        await made.stop("a")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(b.driver.orders.promote, accept_loss=True))
            await until(lambda: b.driver._core.status.role == LEADER)
            assert b.driver._segments.unread
            assert b.store.full is None
            allowed.set()
        await until(b.leads)
        await b.put_committed(b"of b")
        found = await b.bodies()
        assert found == [*names[: len(found) - 1], b"of b"]
        assert len(found) > 10


@pytest.mark.parametrize("cause", [None, QueueRestarted("T", 0, 0)])
async def test_a_box_that_is_elected_and_cannot_read_its_log_now_starts_anew(
    tmp_path: Path, fetched: Fetched, monkeypatch: pytest.MonkeyPatch, cause: Exception | None
) -> None:
    monkeypatch.setattr(segment_fetching, "LEAD_S", 0.1)

    async def never() -> None:
        if cause is not None and b.driver._core.status.role == LEADER:
            raise cause
        await trio.sleep_forever()

    with pytest.RaisesGroup(LogUnread, flatten_subgroups=True):
        async with group(tmp_path, "a", "b", rules=ONE) as made:
            a, b = await pair(made)
            await made.stop("b")
            names = await filled(a, 1)
            [b] = await made.start("b")
            monkeypatch.setattr(b.store.copies, "read_some", never)
            await until(lambda: fetched.whole >= 2 and b.driver._segments.unread)
            await made.stop("a")
            await b.driver.orders.promote(accept_loss=True)
            await trio.sleep(60)
    monkeypatch.undo()
    async with group(tmp_path, "a", "b", rules=ONE) as made:
        [b] = await made.start("b")
        assert not b.driver._segments.unread
        await b.driver.orders.promote(accept_loss=True)
        await until(b.leads)
        assert (await b.bodies()) == names[: len(await b.bodies())]
