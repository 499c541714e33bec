"""A raw client against a real gateway: every code of the protocol, what is new of a piece, limits, what is landed."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.waiting import until_it
from uplink_spark.centre.gateway import open_landers, run_gateway
from uplink_spark.centre.ingest import LONGEST_S, BoxSession
from uplink_spark.centre.zone_files.landing import ShardWriter, open_zone
from uplink_spark.centre.zone_files.records import CentreRecords
from uplink_spark.config import GatewayConfig
from uplink_spark.testing import (
    SOURCE,
    MadeRecord,
    encode_log,
    files_end_at,
    gap_piece,
    landed_entries,
    landed_log,
    log_piece,
    raw_piece,
)
from uplink_spark.wire import frames
from uplink_spark.wire.batch import PieceContents, decode_header, encode_piece
from uplink_spark.wire.cbor import encode_map
from uplink_spark.wire.frames import ErrorFrame, FrameType, Hello, Receipt, Refusal, Welcome, encode_frame, encode_ping
from uplink_spark.wire.link import FrameReader, LinkClosed

NOW = 1_700_000_000_000
EPOCH = SOURCE.epoch
HELLO = Hello("box-17", ((EPOCH, 0),), ((7, 0),), 0, 1 << 40, NOW, 1, "test")
RECORDS = [MadeRecord(queue_offset=n) for n in range(10)]
SIZE = 97  # of one record
Answer = Welcome | Receipt | Refusal | ErrorFrame


class Client:
    """Frames by hand."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream, self.reader = stream, FrameReader(stream)

    async def say(self, hello: Hello = HELLO) -> Answer:
        await self.stream.send_all(hello.encode())
        return await self.answer()

    async def piece(self, *containers: bytes) -> Answer:
        await self.stream.send_all(b"".join(encode_frame(FrameType.PIECE, c) for c in containers))
        return await self.answer()

    async def answer(self) -> Answer:
        with trio.fail_after(25):
            while True:
                kind, body = await self.reader.next_frame(pieces=False)
                if kind == FrameType.WELCOME:
                    return frames.decode_welcome(body)
                if kind == FrameType.RECEIPT:
                    return frames.decode_receipt(body)
                if kind == FrameType.REFUSED:
                    return frames.decode_refused(body)
                if kind == FrameType.ERROR:
                    return frames.decode_fault(body)

    async def closed(self) -> bool:
        """Whether the gateway ended the stream, maybe after more frames."""
        with trio.fail_after(25):
            while True:
                try:
                    await self.reader.next_frame(pieces=False)
                except (LinkClosed, trio.BrokenResourceError):
                    return True


class Site:
    """A running gateway."""

    def __init__(self, root: Path, port: int) -> None:
        self.root, self.port = root, port

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        async with stream:
            yield Client(stream)


@asynccontextmanager
async def site(root: Path, used: Callable[[], float] = lambda: 0.1, **settings: object) -> AsyncIterator[Site]:
    config = GatewayConfig(landing=str(root), listen=("127.0.0.1", 0), linger_ms=10)
    config = replace(config, **settings)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:

        async def serve(task_status: trio.TaskStatus[tuple[str, int]]) -> None:
            await run_gateway(config, now_ms=lambda: NOW, used=used, task_status=task_status)

        _, port = await nursery.start(serve)
        yield Site(root, port)
        nursery.cancel_scope.cancel()


def code_of(answer: Answer) -> str:
    assert isinstance(answer, Refusal | ErrorFrame), answer
    return answer.code


def rows_of(answer: Answer) -> list[tuple[int, int, int, int]]:
    assert isinstance(answer, Receipt), answer
    return [(row.number, row.start, row.end, row.dup) for row in answer.rows]


async def test_a_piece_is_receipted_with_its_digest_and_a_repeat_is_dup(tmp_path: Path) -> None:
    header, container = log_piece(RECORDS)
    async with site(tmp_path) as centre:
        async with centre.client() as client:
            welcome = await client.say()
            assert isinstance(welcome, Welcome)
            assert (welcome.have, welcome.window, welcome.pieces) == ((), 32 << 20, 64)
            first = await client.piece(container)
            assert rows_of(first) == [(0, 0, header.end, 0)]
            assert isinstance(first, Receipt)
            assert first.rows[0].sha == header.sha
            assert rows_of(await client.piece(container)) == [(1, 0, header.end, 1)]
        async with centre.client() as client:
            welcome = await client.say()
            assert isinstance(welcome, Welcome)
            assert welcome.have == ((EPOCH, 0, header.end),)
            assert welcome.last == (EPOCH, 0, header.end, header.sha)
    assert len(landed_log(tmp_path, "box-17")) == 10


async def test_what_is_known_survives_the_gateway(tmp_path: Path) -> None:
    header, container = log_piece(RECORDS)
    async with site(tmp_path) as centre, centre.client() as client:
        await client.say()
        await client.piece(container)
    async with site(tmp_path) as centre, centre.client() as client:
        welcome = await client.say()
        assert isinstance(welcome, Welcome)
        assert (welcome.have, welcome.last) == (((EPOCH, 0, header.end),), (EPOCH, 0, header.end, header.sha))


async def test_an_overlap_lands_whole_but_counts_once(tmp_path: Path) -> None:
    raw = encode_log(RECORDS)
    pieces = [raw_piece(raw[: 4 * SIZE], 0), raw_piece(raw[6 * SIZE : 8 * SIZE], 6 * SIZE), raw_piece(raw, 0)]
    async with site(tmp_path) as centre, centre.client() as client:
        await client.say()
        for _, container in pieces:
            await client.piece(container)
    entries = landed_entries(tmp_path, "box-17")
    assert [(e.start // SIZE, e.end // SIZE) for e in entries] == [(0, 4), (6, 8), (4, 6), (8, 10)]
    assert landed_log(tmp_path, "box-17") == {n * SIZE: raw[n * SIZE :][:SIZE] for n in range(10)}


async def test_a_trim_inside_a_record_is_another_history(tmp_path: Path) -> None:
    other = encode_log([MadeRecord(body=b"longer than hello", queue_offset=n) for n in range(3)])
    async with site(tmp_path) as centre, centre.client() as client:
        await client.say()
        await client.piece(log_piece(RECORDS[:2])[1])
        answer = await client.piece(raw_piece(other, 0)[1])
        assert isinstance(answer, ErrorFrame)
        assert (answer.code, answer.fork) == ("diverged", 0)
        assert await client.closed()
    assert len(landed_log(tmp_path, "box-17")) == 2


def changed(container: bytes, at: int) -> bytes:
    return container[:at] + bytes([container[at] ^ 1]) + container[at + 1 :]


def with_header(**changes: object) -> bytes:
    """A piece whose records and CRC are right and whose header says something else."""
    header, container = log_piece(RECORDS, codec="none")
    from uplink_spark.wire.batch import decode_header, encode_header

    _, at = decode_header(container)
    return encode_header(replace(header, **changes)) + container[at:]  # type: ignore[arg-type]


def records_at_other_offsets() -> bytes:
    raw = encode_log(RECORDS, 5000)
    contents = PieceContents("log", 0, len(raw), raw, b"".join(SIZE.to_bytes(4, "little") for _ in RECORDS), NOW, NOW)
    return encode_piece(SOURCE, contents, "none")[1]


@pytest.mark.parametrize(
    ("container", "code"),
    [
        (changed(log_piece(RECORDS)[1], -3), "damaged"),
        (b"RBU1" + bytes(40), "damaged"),
        (b"", "damaged"),
        (with_header(sha=bytes(32)), "damaged"),
        (with_header(stored_ms_max=5), "bad_records"),
        (records_at_other_offsets(), "bad_records"),
        (with_header(box="box-18"), "not_yours"),
        (with_header(epoch=5), "not_yours"),
        (with_header(run=8), "not_yours"),
        (with_header(raw_bytes=9 << 20, end=10 << 20), "damaged"),
        (with_header(kind="wrong"), "damaged"),
        (encode_piece(SOURCE, PieceContents("gap", 0, 9, b"\xa0"), "none")[1], "damaged"),
        (encode_piece(SOURCE, PieceContents("blob", 0, 9 << 20, bytes(9 << 20)), "zstd")[1], "too_big"),
    ],
)
async def test_a_bad_piece_is_refused_and_the_connection_goes_on(tmp_path: Path, container: bytes, code: str) -> None:
    header, good = log_piece(RECORDS)
    async with site(tmp_path) as centre, centre.client() as client:
        await client.say()
        assert code_of(await client.piece(container)) == code
        assert rows_of(await client.piece(good)) == [(1, 0, header.end, 0)]
    kept = list((tmp_path / "quarantine").iterdir()) if (tmp_path / "quarantine").exists() else []
    assert len(kept) == (code in ("damaged", "bad_records"))
    assert len(landed_entries(tmp_path, "box-17")) == 1


async def test_a_codec_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uplink_spark.centre.verify.codecs_here", lambda: ("zlib", "none"))
    async with site(tmp_path) as centre, centre.client() as client:
        await client.say()
        assert code_of(await client.piece(log_piece(RECORDS, codec="zstd")[1])) == "codec"


async def test_the_65th_hole_is_refused_and_filling_one_is_not(tmp_path: Path) -> None:
    raw = encode_log([MadeRecord(queue_offset=n) for n in range(140)])
    one = [raw_piece(raw[n * SIZE : (n + 1) * SIZE], n * SIZE)[1] for n in range(140)]
    async with site(tmp_path) as centre, centre.client() as client:
        await client.say()
        for n in range(0, 128, 32):
            answers = 0
            await client.stream.send_all(b"".join(encode_frame(FrameType.PIECE, one[m]) for m in range(n, n + 32, 2)))
            while answers < 16:
                answers += len(rows_of(await client.answer()))
        assert code_of(await client.piece(one[130])) == "holes"
        assert len(rows_of(await client.piece(one[1]))) == 1
        assert len(rows_of(await client.piece(one[130]))) == 1


async def test_gaps_count_as_held_and_late_data_heals_them(tmp_path: Path) -> None:
    raw = encode_log(RECORDS)
    gap = gap_piece(0, 4 * SIZE, {"id": [7, 1], "class": "missing", "reason": "operator", "bytes": 4 * SIZE})
    async with site(tmp_path) as centre:
        async with centre.client() as client:
            await client.say()
            await client.piece(gap.container)
            assert rows_of(await client.piece(gap.container))[0][3] == 1
        async with centre.client() as client:
            welcome = await client.say()
            assert isinstance(welcome, Welcome)
            assert welcome.have == ((EPOCH, 0, 4 * SIZE),)
            await client.piece(raw_piece(raw[: 2 * SIZE], 0)[1])
    entries = landed_entries(tmp_path, "box-17")
    assert [(e.kind, e.heals) for e in entries] == [("gap", 0), ("log", 1)]


async def test_a_rejected_gap_has_no_bytes_and_is_known_by_its_id(tmp_path: Path) -> None:
    gaps = [gap_piece(97, 97, {"id": [7, n], "class": "rejected", "reason": "disk_full"}) for n in (1, 2)]
    async with site(tmp_path) as centre, centre.client() as client:
        await client.say()
        for gap, dup in ((gaps[0], 0), (gaps[1], 0), (gaps[0], 1)):
            assert rows_of(await client.piece(gap.container))[0][3] == dup


async def retire(root: Path) -> None:
    CentreRecords(root, open_zone(root).shards).retire("box-17")


async def nothing(root: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("prepare", "hello", "code"),
    [
        (nothing, replace(HELLO, versions=(2, 3)), "version"),
        (nothing, replace(HELLO, box=".."), "identity"),
        (retire, HELLO, "retired"),
    ],
)
async def test_a_hello_is_turned_away_with_a_code(
    tmp_path: Path, prepare: Callable[[Path], Awaitable[None]], hello: Hello, code: str
) -> None:
    await prepare(tmp_path)
    async with site(tmp_path) as centre, centre.client() as client:
        answer = await client.say(hello)
        assert isinstance(answer, ErrorFrame)
        assert answer.code == code
        assert answer.to is None
        assert await client.closed()


async def test_too_many_boxes_are_told_when_to_come_again(tmp_path: Path) -> None:
    async with site(tmp_path, max_boxes=1) as centre, centre.client() as first, centre.client() as second:
        await first.say()
        answer = await second.say(replace(HELLO, box="other"))
        assert isinstance(answer, ErrorFrame)
        assert answer.code == "busy"
        assert 1000 <= answer.retry_ms <= 60_000


async def test_a_restored_disk_is_told_where_its_history_parts(tmp_path: Path) -> None:
    header, container = log_piece(RECORDS)
    async with site(tmp_path) as centre:
        async with centre.client() as client:
            await client.say(replace(HELLO, durable=header.end))
            await client.piece(container)
        async with centre.client() as client:
            answer = await client.say(replace(HELLO, runs=((7, 0), (9, 5 * SIZE)), durable=6 * SIZE))
            assert isinstance(answer, ErrorFrame)
            assert (answer.code, answer.fork) == ("diverged", 5 * SIZE)
        forked = replace(HELLO, lineage=((EPOCH, 0), (99, 5 * SIZE)), runs=((7, 0), (9, 5 * SIZE)))
        async with centre.client() as client:
            assert isinstance(await client.say(forked), Welcome)


@pytest.mark.parametrize(("used", "code"), [(0.96, "full"), (0.86, None)])
async def test_a_full_landing_disk_pauses_boxes_and_at_last_sends_them_away(
    tmp_path: Path, used: float, code: str | None
) -> None:
    async with site(tmp_path, used=lambda: used) as centre:

        async def heard() -> bool:  # once the disk was measured
            async with centre.client() as client:
                answer = await client.say()
            return answer.window == 0 if isinstance(answer, Welcome) else code_of(answer) == code

        await until_it(heard)


@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOSPC, "full"), (errno.EIO, "internal"), (errno.EROFS, "internal")]
)
async def test_a_landing_that_cannot_be_written_gives_no_receipt_and_works_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    header, container = log_piece(RECORDS)
    real, failing = ShardWriter._write_pack, [True]

    def broken(self: ShardWriter, pack: str, containers: Sequence[bytes]) -> None:
        if failing[0]:
            raise OSError(number, "planted")
        real(self, pack, containers)

    monkeypatch.setattr(ShardWriter, "_write_pack", broken)
    async with site(tmp_path) as centre:
        async with centre.client() as client:
            await client.say()
            answer = await client.piece(container)
            assert code_of(answer) == code
            assert await client.closed()
        failing[0] = False
        async with centre.client() as client:
            welcome = await client.say()
            assert isinstance(welcome, Welcome)
            assert welcome.have == ()
            assert rows_of(await client.piece(container)) == [(0, 0, header.end, 0)]
    assert len(landed_log(tmp_path, "box-17")) == 10


async def test_what_the_zone_cannot_keep_beside_its_packs_ends_no_connection(tmp_path: Path) -> None:
    header, good = log_piece(RECORDS)
    status = frames.Status(100, 3, 4, 5, 6, 0, "clean", "rocketbox 1", NOW + 5, 1)
    async with site(tmp_path) as centre, centre.client() as client:
        await client.say()
        for name in ("quarantine", "status"):
            (tmp_path / name).write_text("in the way")
        await client.stream.send_all(status.encode())
        assert code_of(await client.piece(changed(good, -3))) == "damaged"
        assert rows_of(await client.piece(good)) == [(1, 0, header.end, 0)]


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, "full"), (errno.EROFS, "internal")])
async def test_a_run_list_that_cannot_be_written_is_a_code_and_no_welcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    def broken(_self: CentreRecords, path: str, _data: bytes) -> None:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(CentreRecords, "replace", broken)
    async with site(tmp_path) as centre, centre.client() as client:
        answer = await client.say()
        assert isinstance(answer, ErrorFrame)
        assert answer.code == code
        assert os.strerror(number) in answer.text
        assert 1000 <= answer.retry_ms < 60_000
        assert await client.closed()


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes.fromhex("8000000001") + bytes(100),
        bytes.fromhex("0000000503") + bytes(4),
        encode_frame(FrameType.HELLO, b"\xa0"),
        encode_frame(FrameType.HELLO, b"\xff" * 60),
        encode_frame(FrameType.PING, encode_map({"t": 1})),
        b"\0" * 5,
    ],
)
async def test_what_is_no_hello_is_closed_without_an_answer(tmp_path: Path, first: bytes) -> None:
    async with site(tmp_path) as centre, centre.client() as client:
        await client.stream.send_all(first)
        with trio.fail_after(25):
            assert await client.stream.receive_some() == b""


@pytest.mark.parametrize(
    "frame",
    [
        bytes.fromhex("8000000003"),
        bytes.fromhex("0000000520") + bytes(4),
        encode_frame(FrameType.STATUS, encode_map({"durable": "x"})),
        encode_frame(FrameType.PING, b""),
        encode_frame(FrameType.WELCOME, encode_map({})),
    ],
)
async def test_a_broken_frame_after_welcome_is_error_protocol(tmp_path: Path, frame: bytes) -> None:
    async with site(tmp_path) as centre, centre.client() as client:
        await client.say()
        await client.stream.send_all(frame)
        assert code_of(await client.answer()) == "protocol"
        assert await client.closed()


async def test_more_than_the_window_is_error_protocol(tmp_path: Path) -> None:
    raw = encode_log([MadeRecord(body=bytes(60_000)) for _ in range(20)])
    pieces = [raw_piece(raw[: len(raw) // 2], 0)[1], raw_piece(raw[len(raw) // 2 :], len(raw) // 2)[1]]
    async with site(tmp_path, window_bytes=700_000, linger_ms=300) as centre, centre.client() as client:
        await client.say()
        await client.stream.send_all(b"".join(encode_frame(FrameType.PIECE, piece) for piece in pieces))
        assert code_of(await client.answer()) == "protocol"


async def test_more_pieces_than_allowed_are_error_protocol(tmp_path: Path) -> None:
    raw = encode_log(RECORDS)
    one = [raw_piece(raw[n * SIZE : (n + 1) * SIZE], n * SIZE)[1] for n in range(10)]
    async with site(tmp_path, window_pieces=3, linger_ms=300) as centre, centre.client() as client:
        await client.say()
        assert code_of(await client.piece(*one)) == "protocol"


async def test_unknown_frames_from_40_to_7f_are_ignored_and_ping_is_answered(tmp_path: Path) -> None:
    async with site(tmp_path) as centre, centre.client() as client:
        await client.say()
        await client.stream.send_all(bytes.fromhex("0000000540") + b"what" + frames.encode_ping(FrameType.PING, 5))
        kind, body = await client.reader.next_frame(pieces=False)
        assert (kind, frames.decode_ping(body)) == (FrameType.PONG, 5)


async def test_a_status_line_is_kept_for_spark(tmp_path: Path) -> None:
    status = frames.Status(100, 3, 4, 5, 6, 0, "clean", "rocketbox 1", NOW + 5, 1)
    async with site(tmp_path) as centre, centre.client() as client:
        await client.say()
        await client.stream.send_all(status.encode() + frames.encode_ping(FrameType.PING, 5))
        await client.reader.next_frame(pieces=False)
    (lines,) = (tmp_path / "status" / "0000").glob("*.jsonl")
    assert '"box": "box-17"' in lines.read_text()


async def test_the_newer_connection_of_a_box_wins(tmp_path: Path) -> None:
    async with site(tmp_path) as centre, centre.client() as first, centre.client() as second:
        await first.say()
        assert isinstance(await second.say(), Welcome)
        told = await first.answer()
        assert isinstance(told, ErrorFrame)
        assert (told.code, told.text.endswith("do two machines use one name and certificate?")) == ("busy", True)
        assert await first.closed()


@pytest.mark.parametrize("disk_bytes", [20, 1 << 20])
async def test_a_piece_holds_its_memory_until_the_shard_is_done_with_it_though_its_box_has_left(
    tmp_path: Path, disk_bytes: int
) -> None:
    config = GatewayConfig(landing=str(tmp_path / "zone"), listen=("127.0.0.1", 0))
    container = log_piece(RECORDS)[1]
    with open_landers(config, lambda: NOW) as ((lander,), hub):
        box, stream = trio.testing.memory_stream_pair()

        async def serve() -> None:
            with suppress(ExceptionGroup):  # the box has left
                await BoxSession(stream, "test", hub, certified=None, deadline_s=LONGEST_S).run()

        with trio.fail_after(25):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve)
                await box.send_all(HELLO.encode() + encode_frame(FrameType.PIECE, container))
                await lander._arrived.wait()
                await box.aclose()
        assert hub.budget.left == config.memory_bytes - len(container)
        with files_end_at(disk_bytes):
            await lander.land(lander._offers)
        assert (hub.budget.left, lander.counts.failures) == (config.memory_bytes, int(disk_bytes == 20))


@pytest.mark.slow
async def test_a_connection_that_is_old_ends_with_bye_so_that_new_certificates_count(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    with open_landers(GatewayConfig(landing=str(tmp_path / "zone"), listen=("127.0.0.1", 0)), lambda: NOW) as (_, hub):
        box, stream = trio.testing.memory_stream_pair()
        reader = FrameReader(box)
        autojump_clock.autojump_threshold = 0.05  # file work in threads is no time that passes

        async def live() -> None:
            while True:
                await trio.sleep(25)
                await box.send_all(frames.encode_ping(FrameType.PING, 1))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(live)
            await box.send_all(HELLO.encode())

            async def listen() -> None:
                kind = FrameType.WELCOME
                while kind != FrameType.BYE:
                    kind = FrameType((await reader.next_frame(pieces=False))[0])
                assert 3600 <= trio.current_time() < 3700
                nursery.cancel_scope.cancel()

            nursery.start_soon(listen)
            await BoxSession(stream, "test", hub, certified=None, deadline_s=3600).run()
            await trio.sleep_forever()


@pytest.mark.slow
async def test_a_piece_that_comes_a_byte_at_a_time_keeps_its_memory_only_while_nobody_waits(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    config = GatewayConfig(landing=str(tmp_path / "zone"), listen=("127.0.0.1", 0), memory_bytes=1 << 20)
    with open_landers(config, lambda: NOW) as (_, hub):
        box, stream = trio.testing.memory_stream_pair()
        reader = FrameReader(box)
        autojump_clock.autojump_threshold = 0.05  # file work in threads is no time that passes

        async def dribble() -> None:
            await box.send_all(encode_frame(FrameType.PIECE, bytes(900_000))[:5])
            with suppress(trio.BrokenResourceError):
                while True:
                    await box.send_all(b"x")
                    await trio.sleep(80)

        async with trio.open_nursery() as nursery:
            session = BoxSession(stream, "test", hub, certified=None, deadline_s=LONGEST_S)
            nursery.start_soon(session.run)
            await box.send_all(HELLO.encode())
            assert (await reader.next_frame(pieces=False))[0] == FrameType.WELCOME
            nursery.start_soon(dribble)
            await trio.sleep(600)
            assert (hub.budget.left, session.outbox.closing) == ((1 << 20) - 900_000, False)
            with trio.fail_after(60):
                await hub.budget.acquire(500_000)
            while (kind_and_body := await reader.next_frame(pieces=False))[0] == FrameType.PING:
                pass
            fault = frames.decode_fault(kind_and_body[1])
            assert (fault.code, "others wait for memory" in fault.text) == ("busy", True)
            nursery.cancel_scope.cancel()


STATUS = frames.Status(1, 2, 3, 4, 5, 6, "clean", "rocketbox 1", NOW, 1)


@pytest.mark.parametrize("connections", [1, 3])
async def test_a_box_has_one_line_of_status_however_often_it_says_it_and_connects(
    tmp_path: Path, connections: int
) -> None:
    async with site(tmp_path) as centre:
        for _ in range(connections):
            async with centre.client() as client:
                await client.say()
                for _ in range(50):
                    await client.stream.send_all(STATUS.encode())
                await client.stream.send_all(encode_ping(FrameType.PING, 5))
                kind, _ = await client.reader.next_frame(pieces=False)
                assert kind == FrameType.PONG
    (day,) = (tmp_path / "status").rglob("*.jsonl")
    assert len(day.read_text().splitlines()) == 1


@pytest.mark.parametrize("frame", [STATUS.encode(), encode_ping(FrameType.PING, 5), bytes.fromhex("0000000141")])
async def test_a_box_that_sends_small_frames_without_end_is_sent_away_before_they_cost_anything(
    tmp_path: Path, frame: bytes
) -> None:
    async with site(tmp_path) as centre, centre.client() as client:
        await client.say()
        with suppress(trio.BrokenResourceError):
            for _ in range(100):
                await client.stream.send_all(frame * 100)  # and no answer is read
        fault = await client.answer()
        assert isinstance(fault, ErrorFrame)
        assert (fault.code, "small frames" in fault.text) == ("protocol", True)
        assert await client.closed()


async def test_a_status_with_a_long_text_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path) as centre, centre.client() as client:
        await client.say()
        await client.stream.send_all(replace(STATUS, verdict="x" * 257).encode())
        assert code_of(await client.answer()) == "protocol"
    assert not (tmp_path / "status").exists()


def with_other_body(first: int, last: int, at: int, start: int = 0) -> bytes:
    """A piece of RECORDS in which one body differs."""
    made = [MadeRecord(queue_offset=n, body=b"other" if n == at else MadeRecord().body) for n in range(first, last)]
    return raw_piece(encode_log(made, start), start)[1]


@pytest.mark.parametrize("restart", [False, True])
async def test_other_bytes_for_a_range_that_is_held_get_no_receipt_and_are_kept(tmp_path: Path, restart: bool) -> None:
    header, container = log_piece(RECORDS)
    other = with_other_body(0, 10, 4)
    told = decode_header(other)[0]
    assert (told.start, told.end) == (header.start, header.end)
    async with site(tmp_path) as centre, centre.client() as client:
        await client.say()
        assert rows_of(await client.piece(container)) == [(0, 0, header.end, 0)]
        if not restart:
            fault = await client.piece(other)
    if restart:
        async with site(tmp_path) as centre, centre.client() as client:
            await client.say()
            assert rows_of(await client.piece(container)) == [(0, 0, header.end, 1)]
            fault = await client.piece(other)
    assert isinstance(fault, ErrorFrame)
    assert (fault.code, fault.fork) == ("diverged", 0)
    assert header.sha.hex() in fault.text
    assert told.sha.hex() in fault.text
    (kept,) = (tmp_path / "quarantine").iterdir()
    assert kept.read_bytes() == other
    assert b"".join(landed_log(tmp_path, "box-17").values()) == encode_log(RECORDS)


async def test_other_bytes_in_a_part_of_what_is_held_or_beside_it_in_one_commit_get_no_receipt(tmp_path: Path) -> None:
    size = len(encode_log(RECORDS)) // len(RECORDS)
    async with site(tmp_path, linger_ms=200) as centre:
        async with centre.client() as client:
            await client.say()
            both = [log_piece(RECORDS[:6])[1], with_other_body(3, 9, 5, 3 * size)]
            assert code_of(await client.piece(*both)) == "diverged"
        async with centre.client() as client:
            await client.say()
            assert rows_of(await client.piece(log_piece(RECORDS)[1])) == [(0, 0, 10 * size, 0)]  # its own bytes go on
    assert b"".join(landed_log(tmp_path, "box-17").values()) == encode_log(RECORDS)
