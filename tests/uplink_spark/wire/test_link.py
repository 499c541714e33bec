"""Frames over a stream: what is judged before it is received, what ends a connection, who goes first."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from uplink_spark.errors import ProtocolError
from uplink_spark.wire import link
from uplink_spark.wire.frames import MAX_FRAME, FrameType, encode_bye, encode_frame, encode_ping
from uplink_spark.wire.link import FrameQueue, FrameReader, LinkClosed, pump, unexpected

PING = encode_ping(FrameType.PING, 7)


async def test_a_frame_may_come_in_any_pieces_and_several_at_once() -> None:
    near, far = trio.testing.lockstep_stream_pair()
    frames = PING + encode_bye("x" * 300) + PING

    async def send() -> None:
        for at in range(0, len(frames) - 6, 1):
            await near.send_all(frames[at : at + 1])
        await near.send_all(frames[len(frames) - 6 :])

    reader = FrameReader(far)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        kinds = [(await reader.next_frame(pieces=False))[0] for _ in range(3)]
    assert kinds == [FrameType.PING, FrameType.BYE, FrameType.PING]
    assert reader.received_bytes == len(frames)


async def test_the_body_of_a_piece_is_not_read_before_it_is_admitted() -> None:
    near, far = trio.testing.memory_stream_pair()
    reader, asked, go = FrameReader(far), list[int](), trio.Event()

    async def admit(length: int) -> None:
        asked.append(length)
        await go.wait()

    await near.send_all(encode_frame(FrameType.PIECE, b"p" * 900)[:5])
    async with trio.open_nursery() as nursery:
        got = list[tuple[int, bytes]]()

        async def read() -> None:
            got.append(await reader.next_frame(pieces=True, admit=admit))

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        assert (asked, reader.received_bytes) == ([900], 5)
        await near.send_all(b"p" * 900)
        await trio.testing.wait_all_tasks_blocked()
        assert (got, reader.received_bytes) == ([], 5)  # back-pressure: it stays in the socket
        go.set()
    assert got == [(FrameType.PIECE, b"p" * 900)]


async def test_a_length_that_is_not_allowed_ends_it_before_anything_is_received() -> None:
    near, far = trio.testing.memory_stream_pair()
    await near.send_all((1 << 31).to_bytes(4, "big") + bytes([FrameType.PING]))
    reader = FrameReader(far)
    with pytest.raises(ProtocolError):
        await reader.next_frame(pieces=False)
    assert reader.head[4] == FrameType.PING  # for the log
    near, far = trio.testing.memory_stream_pair()
    await near.send_all(encode_frame(FrameType.PIECE, b"p" * MAX_FRAME)[:5])
    with pytest.raises(ProtocolError):
        await FrameReader(far).next_frame(pieces=False)  # nobody sends pieces to a box


async def test_an_end_inside_a_frame_and_silence_have_their_own_text(autojump_clock: trio.testing.MockClock) -> None:
    near, far = trio.testing.memory_stream_pair()
    await near.send_all(PING[:-1])
    await near.send_eof()
    with pytest.raises(LinkClosed, match="the peer closed the connection"):
        await FrameReader(far).next_frame(pieces=False)
    near, far = trio.testing.memory_stream_pair()
    reader = FrameReader(far, idle_s=90)
    began = trio.current_time()
    with pytest.raises(LinkClosed, match="nothing received for 90 s"):
        await reader.next_frame(pieces=False)
    assert trio.current_time() - began == pytest.approx(90)


class Caught:
    """A stream that notes each chunk; a wait of the throttle is noted too."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.chunks, self.seconds = list[bytes](), seconds

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.sleep(self.seconds)
        self.chunks.append(bytes(data))

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.sleep_forever()
        return b""

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_a_socket_that_takes_nothing_ends_the_link(autojump_clock: trio.testing.MockClock) -> None:
    outbox = FrameQueue(Caught(seconds=link.STUCK_S + 1))
    outbox.put(PING)
    with pytest.raises(LinkClosed, match=f"{len(PING)} bytes not taken by the socket in 60 s"):
        await outbox.flush()
    assert outbox.sent_bytes == 0


async def test_small_frames_go_between_pieces_and_a_piece_counts_once_it_has_left_whole() -> None:
    stream = Caught()
    outbox = FrameQueue(stream)
    send, receive = trio.open_memory_channel[bytes](2)
    piece = encode_frame(FrameType.PIECE, b"p" * 200_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pump, outbox, receive)
        await send.send(piece)
        await send.send(piece)
        outbox.put(PING)
        await trio.testing.wait_all_tasks_blocked()
        assert outbox.piece_bytes == 2 * len(piece)
        outbox.put(PING)
        outbox.close_after(encode_bye("end"))
        await trio.testing.wait_all_tasks_blocked()
        assert not nursery.child_tasks  # ended by its last frame though the channel is open
    sent = b"".join(stream.chunks)
    assert len(sent) == outbox.sent_bytes == 2 * len(piece) + 2 * len(PING) + len(encode_bye("end"))
    assert sent.endswith(PING + encode_bye("end"))
    assert max(map(len, stream.chunks)) <= link.FAST_CHUNK


async def test_a_cap_sees_every_chunk_and_keeps_chunks_small() -> None:
    class Capped:
        def __init__(self) -> None:
            self.lengths = list[int]()

        async def wait_for(self, length: int) -> bool:
            self.lengths.append(length)
            await trio.lowlevel.checkpoint()
            return True

    throttle, stream = Capped(), Caught()
    await FrameQueue(stream, throttle).send(b"x" * 200_000)
    assert throttle.lengths == [65536, 65536, 65536, 200_000 - 3 * 65536]
    assert [len(chunk) for chunk in stream.chunks] == throttle.lengths


def test_an_unexpected_frame_is_named_by_its_number() -> None:
    assert str(unexpected(0x2A)) == "a frame of type 0x2a is not expected here"


async def test_who_reads_no_answers_is_not_listened_to_until_they_are_taken() -> None:
    near, far = trio.testing.lockstep_stream_pair()
    outbox, ready = FrameQueue(near), trio.Event()

    async def wait() -> None:
        await outbox.wait_room()
        ready.set()

    async with trio.open_nursery() as nursery:
        outbox.put(bytes(link.MOST_HELD))
        await outbox.wait_room()  # so much may wait
        outbox.put(b"x")
        nursery.start_soon(wait)
        nursery.start_soon(outbox.run)
        await trio.testing.wait_all_tasks_blocked()
        assert not ready.is_set()
        taken = 0
        while taken <= link.MOST_HELD:
            taken += len(await far.receive_some())
        await ready.wait()
        nursery.cancel_scope.cancel()
