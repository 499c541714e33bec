"""One connection of the box against real and false gateways: express lane, refusals, blobs, distrust, back-pressure."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import trio
import trio.testing

from uplink_spark.box.link.connect import BACKOFF_FIRST_S, Backoff
from uplink_spark.centre import verify
from uplink_spark.errors import Refused
from uplink_spark.spark.source_options import parse_options
from uplink_spark.spark.source_tasks import MessageRows
from uplink_spark.spark_source import BatchReader
from uplink_spark.testing import landed_entries, landed_log
from uplink_spark.testing_site import box, fill, gateway, message, shipped, until
from uplink_spark.wire import frames
from uplink_spark.wire.batch import PieceHeader, open_piece
from uplink_spark.wire.frames import FrameType, Receipt, ReceiptRow, Welcome
from uplink_spark.wire.link import MOST_HELD, FrameQueue, FrameReader, LinkClosed

NOW = 1_700_000_000_000


@pytest.mark.slow
async def test_express_topics_travel_on_their_own_lane_each_record_once(tmp_path: Path) -> None:
    async with gateway(tmp_path / "landing") as port:
        async with box(tmp_path / "store", port) as (store, uplink):
            for number in range(100):
                store.put(message(number, topic="alarm" if number % 10 == 0 else "bulk"))
            await until(shipped(store, uplink))
            switch = store.committed
        settings: dict[str, object] = {"express": ("alarm",), "express_max_delay_s": 0.01}
        async with box(tmp_path / "store", port, **settings) as (store, uplink):
            ledger = uplink.shipper.state.ledger
            await until(lambda: bool(ledger.switches))  # what is durable before that belongs to the log's lane
            for number in range(100, 300):
                store.put(message(number, topic="alarm" if number % 10 == 0 else "bulk"))
                if number % 20 == 0:
                    await trio.sleep(0.01)
            await store.wait_committed(store.end)
            await until(lambda: ledger.receipted.pick.covers(switch, store.committed))
            await until(shipped(store, uplink))
            ledger.save()
            assert uplink.may_release(0, store.committed)
    entries = landed_entries(tmp_path / "landing", "box-17")
    late = [entry for entry in entries if entry.kind == "log" and entry.start >= switch]
    early = [entry for entry in entries if entry.kind == "log" and entry.end <= switch]
    assert {entry.skip for entry in late} == {("alarm",)}
    assert {entry.skip for entry in early} == {()}
    picks = [entry for entry in entries if entry.kind == "pick"]
    assert min(entry.start for entry in picks) == switch
    assert sum(entry.records for entry in picks) == 20
    assert len(landed_log(tmp_path / "landing", "box-17")) == 300  # the raw view has all of it


@pytest.mark.slow
async def test_a_range_that_is_refused_again_and_again_shrinks_to_a_blob_and_the_rest_lands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = verify._walk
    bad = 0

    def walk(header: PieceHeader, container: bytes, raw: bytes, index: bytes | None) -> verify.Verified:
        if header.start <= bad < header.end:
            raise Refused("bad_records", "planted")
        return real(header, container, raw, index)

    monkeypatch.setattr(verify, "_walk", walk)
    async with gateway(tmp_path / "landing") as port, box(tmp_path / "store", port, max_delay_s=1) as (store, uplink):
        placed = [store.put(message(number)) for number in range(16)]
        bad = placed[5].log_offset
        await until(shipped(store, uplink))
        assert "bad_records" in uplink.statistics().alarms
    blobs = [entry for entry in landed_entries(tmp_path / "landing", "box-17") if entry.kind == "blob"]
    assert [(blob.start, blob.end) for blob in blobs] == [(placed[5].log_offset, placed[5].end)]
    assert (blobs[0].gap or {})["class"] == "damaged"
    assert len(landed_log(tmp_path / "landing", "box-17")) == 15


@pytest.mark.slow
async def test_express_records_that_are_refused_again_and_again_are_given_up_and_the_log_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, refused = verify._walk, Counter[tuple[int, int]]()

    def walk(header: PieceHeader, container: bytes, raw: bytes, index: bytes | None) -> verify.Verified:
        if (header.kind == "pick" and not refused) or (header.start, header.end) in refused:
            refused[header.start, header.end] += 1
            raise Refused("bad_records", "planted")
        return real(header, container, raw, index)

    monkeypatch.setattr(verify, "_walk", walk)
    async with gateway(tmp_path / "landing") as port, box(tmp_path / "store", port, express=("alarm",)) as (store, up):
        await until(lambda: bool(up.shipper.state.ledger.switches))
        for number in range(16):
            store.put(message(number, topic="alarm"))
        await until(lambda: "express_refused" in up.statistics().alarms)
        for number in range(16):
            store.put(message(number, topic="alarm"))
        await until(shipped(store, up))
        await until(lambda: up.shipper.state.ledger.receipted.pick.end == store.committed)
        assert refused.total() == 3
        assert up.statistics().alarms["express_refused"].endswith("they are shipped only as part of the log (raw=true)")
    assert {entry.kind for entry in landed_entries(tmp_path / "landing", "box-17")} == {"log", "pick"}
    assert len(landed_log(tmp_path / "landing", "box-17")) == 32


class FalseGateway:
    """Answers as a test tells it to."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream, self.reader = stream, FrameReader(stream)
        self.said: frames.ErrorFrame | None = None

    async def welcome(self, **changes: object) -> frames.Hello:
        _, body = await self.reader.next_frame(pieces=False)
        hello = frames.decode_hello(body)
        values: dict[str, object] = {"have": (), "pick": (), "last": None, "window": 32 << 20, "pieces": 64} | changes
        answer = Welcome(bytes(16), codecs=("zstd", "zlib", "none"), rate=0, now_ms=NOW, **values)  # type: ignore[arg-type]
        await self.stream.send_all(answer.encode())
        return hello

    async def piece(self) -> PieceHeader:
        while True:
            kind, body = await self.reader.next_frame(pieces=True)
            if kind == FrameType.PIECE:
                return open_piece(body).header

    async def ended(self) -> bool:
        """Whether the box ended the connection; `said` holds the ERROR it may have sent."""
        try:
            while True:
                kind, body = await self.reader.next_frame(pieces=True)
                if kind == FrameType.ERROR:
                    self.said = frames.decode_fault(body)
        except (LinkClosed, trio.BrokenResourceError):
            return True


@asynccontextmanager
async def false_gateway(serve: Callable[[FalseGateway], Awaitable[None]]) -> AsyncIterator[int]:
    async with trio.open_nursery() as nursery:

        async def answer(stream: trio.SocketStream) -> None:
            with suppress(LinkClosed, trio.BrokenResourceError):  # the box has left
                async with stream:
                    await serve(FalseGateway(stream))

        listeners = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


Change = Callable[[PieceHeader], ReceiptRow]


@pytest.mark.slow
@pytest.mark.parametrize(
    "lie",
    [
        lambda h: ReceiptRow(5, h.start, h.end, h.sha, 0, 0),
        lambda h: ReceiptRow(0, h.start, h.end + 1, h.sha, 0, 0),
        lambda h: ReceiptRow(0, h.start, h.end, bytes(32), 0, 0),
    ],
)
async def test_a_receipt_that_is_not_for_what_was_sent_counts_for_nothing(tmp_path: Path, lie: Change) -> None:
    heard: list[frames.ErrorFrame | None] = []

    async def serve(centre: FalseGateway) -> None:
        await centre.welcome()
        header = await centre.piece()
        await centre.stream.send_all(Receipt(0, (lie(header),), NOW).encode())
        await centre.ended()
        heard.append(centre.said)

    async with false_gateway(serve) as port, box(tmp_path / "store", port) as (store, uplink):
        store.put(message(1))
        await until(lambda: bool(heard) and uplink.shipper.state.counts.errors["protocol"] >= 1)
        assert not list(uplink.shipper.state.ledger.receipted.log)
        assert "RECEIPT for piece" in uplink.statistics().alarms["protocol"]
    assert heard[0] is not None
    assert (heard[0].code, heard[0].text) == ("protocol", uplink.statistics().alarms["protocol"])


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"have": ((5, 0, 10),)}, {"have": ((5, 10, 5),)}])
async def test_have_outside_the_lineage_or_out_of_order_ends_the_connection(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    heard: list[frames.ErrorFrame | None] = []

    async def serve(centre: FalseGateway) -> None:
        await centre.welcome(**changes)
        await centre.ended()
        heard.append(centre.said)

    async with false_gateway(serve) as port, box(tmp_path / "store", port) as (store, uplink):
        store.put(message(1))
        await until(lambda: bool(heard) and uplink.shipper.state.counts.errors["protocol"] >= 1)
        assert "WELCOME: " in uplink.statistics().alarms["protocol"]
    assert heard[0] is not None
    assert (heard[0].code, "WELCOME: " in heard[0].text) == ("protocol", True)


@pytest.mark.slow
async def test_a_centre_that_holds_more_than_is_durable_makes_a_new_epoch(tmp_path: Path) -> None:
    hellos: list[frames.Hello] = []

    async def serve(centre: FalseGateway) -> None:
        _, body = await centre.reader.next_frame(pieces=False)
        hello = frames.decode_hello(body)
        if not hello.durable:
            return
        hellos.append(hello)
        have = ((hellos[0].epoch, 0, 1 << 40),)
        answer = Welcome(bytes(16), have, (), None, 1 << 25, 64, ("none",), 0, NOW)
        await centre.stream.send_all(answer.encode())
        await centre.ended()

    async with false_gateway(serve) as port, box(tmp_path / "store", port) as (store, _uplink):
        store.put(message(1))
        await until(lambda: len(hellos) >= 2 and len(hellos[-1].lineage) == 2)
        assert hellos[-1].lineage[-1][1] <= hellos[-1].durable


@pytest.mark.slow
async def test_a_window_of_0_stops_sending_and_a_new_window_goes_on(tmp_path: Path) -> None:
    order: list[str] = []

    async def serve(centre: FalseGateway) -> None:
        await centre.welcome(window=0)
        with trio.move_on_after(0.3):
            await centre.piece()
            order.append("too early")
        order.append("opened")
        await centre.stream.send_all(frames.Window(1 << 25, 0, 0).encode())
        await centre.piece()
        order.append("piece")
        await centre.ended()

    async with false_gateway(serve) as port, box(tmp_path / "store", port) as (store, _uplink):
        store.put(message(1))
        await until(lambda: len(order) >= 2)
    assert order == ["opened", "piece"]


@pytest.mark.slow
async def test_moved_is_followed_and_busy_is_waited_for(tmp_path: Path) -> None:
    async with gateway(tmp_path / "landing") as there:

        async def serve(centre: FalseGateway) -> None:
            await centre.reader.next_frame(pieces=False)
            await centre.stream.send_all(frames.ErrorFrame("moved", "there", to=f"127.0.0.1:{there}").encode())
            await centre.ended()

        async with false_gateway(serve) as port, box(tmp_path / "store", port) as (store, uplink):
            store.put(message(1))
            await until(shipped(store, uplink))
            assert uplink.shipper.state.counts.errors["moved"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "alarm"),
    [
        (frames.ErrorFrame("identity", "no such box"), True),
        (frames.ErrorFrame("retired", "box box-17 is retired"), True),
        (frames.ErrorFrame("version", "update the gateway", versions=(2, 3)), True),
        (frames.ErrorFrame("protocol", "what was that?"), False),
        (frames.ErrorFrame("full", "the landing disk is full", 10), False),
        (frames.ErrorFrame("internal", "the landing zone cannot be written", 10), False),
        (frames.ErrorFrame("of another century", "unknown here", 10), False),
    ],
)
async def test_a_box_that_is_turned_away_says_why_and_is_well_again_with_the_first_receipt(
    tmp_path: Path, fault: frames.ErrorFrame, alarm: bool
) -> None:
    told: list[str] = []

    async def serve(centre: FalseGateway) -> None:
        if not told:
            told.append(fault.code)
            await centre.reader.next_frame(pieces=False)
            await centre.stream.send_all(fault.encode())
            await centre.ended()
            return
        await centre.welcome()
        while True:
            h = await centre.piece()
            await centre.stream.send_all(Receipt(0, (ReceiptRow(0, h.start, h.end, h.sha, 0, 0),), NOW).encode())
            await centre.ended()

    async with false_gateway(serve) as port, box(tmp_path / "store", port) as (store, uplink):
        store.put(message(1))
        state = uplink.shipper.state
        await until(lambda: state.counts.errors[fault.code] == 1)
        assert fault.text in uplink.statistics().last_error
        assert (uplink.statistics().alarms == {fault.code: fault.text}) == alarm
        state.wakes.connect.set()  # as `ship-now` does: an alarm is not asked again for minutes
        await until(shipped(store, uplink))
        assert uplink.statistics().alarms == {}


async def numbered(centre: FalseGateway, refuse: Callable[[PieceHeader, int], frames.Refusal | None]) -> None:
    """Receipt every piece that is not refused; refuse is told its header and its number on this connection."""
    await centre.welcome()
    number = 0
    while True:
        header = await centre.piece()
        refusal = refuse(header, number)
        receipt = Receipt(0, (ReceiptRow(number, header.start, header.end, header.sha, number, 0),), NOW)
        await centre.stream.send_all((refusal or receipt).encode())
        number += 1


@pytest.mark.slow
@pytest.mark.parametrize("code", ["too_big", "codec", "holes", "damaged", "internal", "of another century"])
async def test_a_refused_piece_comes_again_as_its_code_asks_for(tmp_path: Path, code: str) -> None:
    seen: list[tuple[PieceHeader, float]] = []

    def refuse(header: PieceHeader, number: int) -> frames.Refusal | None:
        seen.append((header, trio.current_time()))
        return frames.Refusal(number, code, "planted", 1500) if len(seen) == 1 else None

    async def serve(centre: FalseGateway) -> None:
        await numbered(centre, refuse)

    async with false_gateway(serve) as port, box(tmp_path / "store", port) as (store, uplink):
        uplink.shipper.state.set_paused(True)
        await fill(store, 300, 1000)
        uplink.shipper.state.set_paused(False)
        await until(shipped(store, uplink))
        assert uplink.statistics().counts.refused == {code: 1}
    first, at = seen[0]
    again, later = next((header, heard) for header, heard in seen[1:] if not header.start)
    assert (again.end < first.end) == (code == "too_big")
    assert (first.codec, again.codec) == ("zstd", "zlib" if code == "codec" else "zstd")
    if code in ("internal", "of another century"):
        assert later - at >= 1.4  # it was asked to wait
    landed = sorted((header.start, header.end) for header, _ in seen[1:])
    assert all(before[1] == after[0] for before, after in pairwise(landed))  # nothing else was sent twice


@pytest.mark.slow
async def test_a_piece_that_is_not_its_own_is_an_alarm(tmp_path: Path) -> None:
    async def serve(centre: FalseGateway) -> None:
        await numbered(centre, lambda _, number: frames.Refusal(number, "not_yours", "epoch 5", 0))

    async with false_gateway(serve) as port, box(tmp_path / "store", port) as (store, uplink):
        store.put(message(1))
        await until(lambda: "not_yours" in uplink.statistics().alarms)
        assert uplink.statistics().alarms["not_yours"] == "epoch 5"
        assert not list(uplink.shipper.state.ledger.receipted.log)


@pytest.mark.slow
async def test_an_address_the_box_was_moved_to_is_given_up_when_it_cannot_be_reached(tmp_path: Path) -> None:
    asked: list[int] = []

    async def serve(centre: FalseGateway) -> None:
        asked.append(1)
        await centre.reader.next_frame(pieces=False)
        await centre.stream.send_all(
            frames.ErrorFrame("moved", "there", to="127.0.0.1:1").encode()
        )  # nobody listens there
        await centre.ended()

    async with false_gateway(serve) as port, box(tmp_path / "store", port) as (_, uplink):
        await until(lambda: len(asked) >= 3)
        errors = uplink.shipper.state.counts.errors
        assert errors["moved"] - errors["tcp"] in (0, 1)  # each time it is asked again after one attempt


@pytest.mark.slow
async def test_gateways_that_send_a_box_to_one_another_are_not_asked_without_end(tmp_path: Path) -> None:
    asked: list[int] = []

    async def serve(centre: FalseGateway) -> None:
        asked.append(1)
        await centre.reader.next_frame(pieces=False)
        await centre.stream.send_all(frames.ErrorFrame("moved", "there", to=f"localhost:{ports[0]}").encode())
        await centre.ended()

    ports: list[int] = []
    async with false_gateway(serve) as port:
        ports.append(port)
        async with box(tmp_path / "store", port) as (_, uplink):
            await until(lambda: len(asked) >= 7)
            assert uplink.shipper._backoff._next >= 8 * BACKOFF_FIRST_S


@pytest.mark.slow
async def test_a_gateway_that_welcomes_a_box_and_sends_it_away_is_not_asked_without_end(tmp_path: Path) -> None:
    asked: list[int] = []

    async def serve(centre: FalseGateway) -> None:
        await centre.welcome()
        asked.append(1)
        await centre.stream.send_all(frames.ErrorFrame("moved", "there", to=f"127.0.0.1:{ports[0]}").encode())
        await centre.ended()

    ports: list[int] = []
    async with false_gateway(serve) as port:
        ports.append(port)
        async with box(tmp_path / "store", port) as (_, uplink):
            await until(lambda: len(asked) >= 7)
            assert uplink.shipper._backoff._next >= 8 * BACKOFF_FIRST_S


@pytest.mark.slow
async def test_a_gateway_that_sees_another_history_each_time_is_not_asked_without_end(tmp_path: Path) -> None:
    told: list[int] = []

    async def serve(centre: FalseGateway) -> None:
        _, body = await centre.reader.next_frame(pieces=False)
        if not frames.decode_hello(body).durable:
            return
        told.append(len(told) + 1 if len(told) < 6 else 1 << 40)
        await centre.stream.send_all(frames.ErrorFrame("diverged", "another history", fork=told[-1]).encode())
        await centre.ended()

    async with false_gateway(serve) as port, box(tmp_path / "store", port) as (store, uplink):
        store.put(message(1))
        await until(lambda: uplink.shipper._protocol_errors > 0)  # for an offset that this log has not
        assert uplink.shipper._backoff._next >= 8 * BACKOFF_FIRST_S
        assert [origin for _, origin in store.lineage.epochs] == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.slow
async def test_a_gateway_that_asks_and_takes_no_answers_is_not_read_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, held = FrameQueue.put, list[int]()

    def put(self: FrameQueue, frame: bytes) -> None:
        real(self, frame)
        held.append(self._held)

    monkeypatch.setattr(FrameQueue, "put", put)

    async def serve(centre: FalseGateway) -> None:
        await centre.welcome()
        await centre.stream.send_all(1000 * frames.encode_ping(FrameType.PING, 1 << 62) * 60)
        sent.set()

    sent = trio.Event()
    async with false_gateway(serve) as port, box(tmp_path / "store", port, kbit_s=1):
        await until(lambda: max(held, default=0) > MOST_HELD)
        await trio.testing.wait_all_tasks_blocked(0.2)
    assert max(held) < MOST_HELD + (1 << 10)


@pytest.mark.slow
async def test_a_gateway_that_makes_up_codes_is_counted_and_the_box_waits_a_day_at_most(tmp_path: Path) -> None:
    asked: list[int] = []

    async def serve(centre: FalseGateway) -> None:
        await centre.reader.next_frame(pieces=False)
        asked.append(1)
        fault = frames.ErrorFrame(f"code {len(asked)}", "x" * 60_000, 86_400_001 if len(asked) > 30 else 0)
        await centre.stream.send_all(fault.encode())
        await centre.ended()

    async with false_gateway(serve) as port, box(tmp_path / "store", port) as (_, uplink):
        uplink.shipper._backoff = NoBackoff()
        await until(lambda: "protocol" in uplink.statistics().alarms)
        errors = uplink.statistics().counts.errors
        assert (len(errors), errors["other"], errors["code 20"], errors["code 21"]) == (21, 11, 1, 0)
        assert "retry_ms" in uplink.statistics().alarms["protocol"]


class NoBackoff(Backoff):
    """Waits for nothing."""

    def next_s(self, *, refused: bool = True) -> float:
        return 0.0


@pytest.mark.slow
async def test_bye_is_answered_by_a_new_connection(tmp_path: Path) -> None:
    asked: list[int] = []

    async def serve(centre: FalseGateway) -> None:
        asked.append(1)
        if len(asked) == 1:
            await centre.welcome()
            await centre.stream.send_all(frames.encode_bye("connection renewed; connect again"))
            await centre.ended()
        await numbered(centre, lambda header, number: None)

    async with false_gateway(serve) as port, box(tmp_path / "store", port) as (store, uplink):
        store.put(message(1))
        await until(shipped(store, uplink))
        assert uplink.statistics().alarms == {}
    assert len(asked) >= 2


async def send_with(root: Path, port: int, express: tuple[str, ...]) -> None:
    """Open the box with these express topics, send to three topics and wait until both lanes have brought all."""
    async with box(root, port, express=express, express_max_delay_s=0.01) as (store, uplink):
        state = uplink.shipper.state
        await until(lambda: state.link.connected_since is not None)  # the switch is made at the start
        for number in range(90):
            store.put(message(number, topic=("alarm", "bulk", "door")[number % 3]))
            if number % 30 == 0:
                await trio.sleep(0.02)
        await store.wait_committed(store.end)
        await until(shipped(store, uplink))
        lane = state.ledger.receipted.pick
        await until(lambda: all(lane.covers(*span) for span in state.ledger.pick_spans(0, store.committed)))


@pytest.mark.slow
async def test_express_topics_may_change_and_end_and_each_record_is_read_once(tmp_path: Path) -> None:
    async with gateway(tmp_path / "landing") as port:
        for topics in ((), ("alarm",), ("alarm", "door"), ("door",), ()):
            await send_with(tmp_path / "store", port, topics)
    for view in ({}, {"raw": "true"}):
        parsed = parse_options({"path": str(tmp_path / "landing")} | view)
        reader = BatchReader(parsed, MessageRows(parsed))
        rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
        assert len({row["log_offset"] for row in rows}) == len(rows) == 5 * 90, view
        assert Counter(row["topic"] for row in rows) == dict.fromkeys(("alarm", "bulk", "door"), 150)
