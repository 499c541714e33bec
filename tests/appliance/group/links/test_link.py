"""One link: messages before bytes, signs of life, silence, a member that takes nothing."""

import pytest
import trio
import trio.testing

from appliance.group.links import link as link_module
from appliance.group.links.frames import PING, LinkFrame, LinkFrameDecoder, LinkRefused, encode_frame
from appliance.group.links.link import Link, LinkClocks, LinkEnded, LinkPace, LinkStream
from uplink_spark.errors import ProtocolError

MESSAGE, BYTES = 0x12, 0x18
PACE = LinkPace(ping_s=1.0, silence_s=5.0)


def make(stream: LinkStream, *, ahead_s: float = 0.0) -> Link:
    decoder = LinkFrameDecoder(most_record_bytes=1000, with_bytes=frozenset({BYTES}))
    clocks = LinkClocks(trio.current_time, lambda: int((trio.current_time() + ahead_s) * 1000))
    return Link(stream, "b", decoder, pace=PACE, clocks=clocks)


class Taken:
    """Keeps what came."""

    def __init__(self) -> None:
        self.frames: list[LinkFrame] = []

    async def __call__(self, frame: LinkFrame) -> None:
        self.frames.append(frame)


async def test_messages_go_before_bytes_and_bytes_one_frame_at_a_time(autojump_clock: trio.testing.MockClock) -> None:
    near, far = trio.testing.memory_stream_pair()
    link, taken, left = make(near), Taken(), [b"1", b"2", b"3"]

    async def next_bytes() -> bytes | None:
        if not left:
            return None
        if len(left) == 2:
            link.put(encode_frame(MESSAGE, {"late": 1}))
        return encode_frame(BYTES, {}, left.pop(0))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(make(far).run, taken)
        nursery.start_soon(link.run, Taken())
        link.put(encode_frame(MESSAGE, {}))
        link.pump(next_bytes)
        await trio.sleep(0.5)
        assert [frame.data or frame.kind for frame in taken.frames] == [MESSAGE, b"1", b"2", MESSAGE, b"3"]
        left.append(b"4")
        link.wake()
        await trio.sleep(0.1)
        assert taken.frames[-1].data == b"4"
        nursery.cancel_scope.cancel()


async def test_a_side_that_says_something_anyway_pings_only_to_measure(
    autojump_clock: trio.testing.MockClock,
) -> None:
    near, far = trio.testing.memory_stream_pair()
    link, decoder = make(near), LinkFrameDecoder(most_record_bytes=1000, with_bytes=frozenset({BYTES}))
    seen = list[tuple[int, int]]()  # second, kind

    async def hear() -> None:
        while data := await far.receive_some():
            await far.send_all(encode_frame(MESSAGE, {}))
            seen.extend((int(trio.current_time() - began), frame.kind) for frame in decoder.feed(data))

    async with trio.open_nursery() as nursery:
        began = trio.current_time()
        nursery.start_soon(hear)
        nursery.start_soon(link.run, Taken())
        for _ in range(25):
            link.put(encode_frame(MESSAGE, {}))
            await trio.sleep(0.5)
        assert [second for second, kind in seen if kind == PING] == [0, 10]
        await trio.sleep(3.6)
        assert [second for second, kind in seen if kind == PING] == [0, 10, 13, 14, 15, 16]
        nursery.cancel_scope.cancel()


async def test_an_idle_side_is_never_silent_for_longer_than_a_ping(autojump_clock: trio.testing.MockClock) -> None:
    near, far = trio.testing.memory_stream_pair()
    link, other = make(near), make(far)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.run, Taken())
        await trio.sleep(0.3)
        nursery.start_soon(other.run, Taken())
        for _ in range(400):
            await trio.sleep(0.05)
            now_s = trio.current_time()
            assert max(now_s - link.heard_s, now_s - other.heard_s) < PACE.ping_s + 0.1
        bytes_s = link.sent_bytes / 20
        assert bytes_s < 60, "a ping or an answer a second"
        nursery.cancel_scope.cancel()


async def test_pings_tell_how_long_a_round_takes_and_how_far_the_clocks_are_apart(
    autojump_clock: trio.testing.MockClock,
) -> None:
    near, far = trio.testing.memory_stream_pair()
    link = make(near)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(make(far, ahead_s=90).run, Taken())
        nursery.start_soon(link.run, Taken())
        await trio.sleep(30)
        assert link.round_s == pytest.approx(0, abs=0.1)
        assert link.clock_drift_s == pytest.approx(90, abs=0.1)
        nursery.cancel_scope.cancel()


async def test_a_member_that_says_nothing_is_left_after_five_seconds(autojump_clock: trio.testing.MockClock) -> None:
    near, far = trio.testing.memory_stream_pair()
    began = trio.current_time()
    with pytest.RaisesGroup(pytest.RaisesExc(LinkEnded, match="said nothing for 5 s")):
        await make(near).run(Taken())
    assert 0 <= trio.current_time() - began - PACE.silence_s < 0.1
    await far.aclose()


async def test_a_box_that_was_suspended_hears_what_has_come_before_it_judges(
    autojump_clock: trio.testing.MockClock,
) -> None:
    near, far = trio.testing.memory_stream_pair()
    slept_s, taken = 0.0, Taken()
    clocks = LinkClocks(lambda: trio.current_time() + slept_s, lambda: 0)
    decoder = LinkFrameDecoder(most_record_bytes=1000, with_bytes=frozenset({BYTES}))
    link = Link(near, "b", decoder, pace=PACE, clocks=clocks)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.run, taken)
        await trio.sleep(4.9)
        slept_s = 3600
        await trio.sleep(0.1 + link_module.SHORTEST_REST_S / 2)
        await far.send_all(encode_frame(MESSAGE, {}))
        await trio.sleep(4.9)
        assert [frame.kind for frame in taken.frames] == [MESSAGE]
        nursery.cancel_scope.cancel()


async def test_a_member_that_takes_nothing_is_left(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "MOST_HELD", 100_000)

    class Stuck:
        async def send_all(self, data: bytes | bytearray | memoryview) -> None:
            await trio.sleep_forever()

        async def receive_some(self, max_bytes: int | None = None) -> bytes:
            await trio.sleep(1)
            return encode_frame(MESSAGE, {})

    with pytest.RaisesGroup(pytest.RaisesExc(LinkEnded, match="did not take")):
        await make(Stuck()).run(Taken())
    link = make(Stuck())
    for _ in range(20_000):  # bounded: what is too much is the end of the link
        link.put(encode_frame(MESSAGE, {"n": 1}))
    with pytest.RaisesGroup(pytest.RaisesExc(LinkEnded, match="does not take its messages")):
        await link.run(Taken())


async def test_the_other_side_hears_why_a_link_ends(autojump_clock: trio.testing.MockClock) -> None:
    near, far = trio.testing.memory_stream_pair()
    link, other = make(near), make(far)
    link.end(LinkEnded("differs", "another log", LinkRefused("differs", "another log", 9000)))
    told = list[LinkEnded]()

    async def hear() -> None:
        try:
            await other.run(Taken())
        except* LinkEnded as group:
            told.extend(exc for exc in group.exceptions if isinstance(exc, LinkEnded))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hear)
        with pytest.RaisesGroup(pytest.RaisesExc(LinkEnded, match="another log")):
            await link.run(Taken())
        await near.aclose()
    assert told[0].refused == LinkRefused("differs", "another log", 9000)


async def test_what_no_member_sends_ends_the_link(autojump_clock: trio.testing.MockClock) -> None:
    near, far = trio.testing.memory_stream_pair()
    await far.send_all(b"\xff" * 64)
    with pytest.RaisesGroup(ProtocolError):
        await make(near).run(Taken())
