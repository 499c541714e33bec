"""Prometheus text on both sides: names, labels, escapes, and a scrape over HTTP."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from storage_driver.log.clock import wall_ms
from tests.ports import free_port
from uplink_spark.centre.fleet import boxes
from uplink_spark.centre.gateway import open_landers, run_gateway
from uplink_spark.centre.metric_families import exposition, read_families
from uplink_spark.centre.metrics import known_names, serve_metrics
from uplink_spark.config import GatewayConfig
from uplink_spark.jobs.metrics import JobMetrics
from uplink_spark.testing import SOURCE, MadeRecord, gap_piece, log_piece
from uplink_spark.testing_site import box, gateway, message, shipped, until
from uplink_spark.wire.frames import FrameType, Hello, decode_receipt, encode_frame
from uplink_spark.wire.link import FrameReader
from uplink_spark.zone.reader import ZoneReader

DOCS = Path(__file__).parents[3] / "docs"
GET = b"GET /metrics HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n"
LINE = re.compile(r'[a-z_]+(\{[a-z]+="([^"\\]|\\.)*"(,[a-z]+="([^"\\]|\\.)*")*\})? -?[0-9.e+-]+|# (HELP|TYPE) .*')


async def scraped(listener: trio.SocketListener, *parts: bytes) -> str:
    stream = await trio.testing.open_stream_to_socket_listener(listener)
    for part in parts or [GET]:
        await stream.send_all(part)
        await trio.testing.wait_all_tasks_blocked(0.01)  # what was sent has been taken
    return b"".join([part async for part in stream]).decode()


async def test_a_scrape_whose_request_comes_in_parts_is_answered(tmp_path: Path) -> None:
    with open_landers(GatewayConfig(str(tmp_path), ("127.0.0.1", 0)), lambda: 1_700_000_000_000) as (_, hub):
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_metrics, hub, listeners, frozenset())
            for parts in (
                (GET[:1], GET[1:]),
                (GET[:15], GET[15:-3], GET[-3:]),
                (GET.replace(b"/metrics", b"/"),),
            ):
                assert (await scraped(listeners[0], *parts)).startswith("HTTP/1.1 200 OK")
            assert (await scraped(listeners[0], b"POST", GET[3:])).startswith("HTTP/1.1 405 ")
            assert (await scraped(listeners[0], GET.replace(b"metrics", b"health"))).startswith("HTTP/1.1 404 ")
            nursery.cancel_scope.cancel()


async def test_a_page_elsewhere_whose_name_was_pointed_here_reads_no_metrics(tmp_path: Path) -> None:
    config = GatewayConfig(
        str(tmp_path), ("127.0.0.1", 0), advertise="gw-1.example.org:10940", metrics_names=("metrics.example.org",)
    )
    with open_landers(config, lambda: 1_700_000_000_000) as (_, hub):
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_metrics, hub, listeners, known_names(config))
            for name, status in (
                (b"gateway:10941", 200),
                (b"gw-1.example.org", 200),
                (b"Metrics.example.org:10941", 200),
                (b"10.1.0.1:10941", 200),
                (b"[fd00::1]:10941", 200),
                (b"evil.example.com", 421),
                (b"evil.example.com:10941", 421),
            ):
                answer = await scraped(listeners[0], GET.replace(b"Host: gateway", b"Host: " + name))
                assert answer.startswith(f"HTTP/1.1 {status} "), name
            nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_the_gateway_is_scraped_over_http(tmp_path: Path) -> None:
    async with gateway(tmp_path) as port, box(tmp_path / "store", port) as (store, uplink):
        store.put(message(1))
        await until(shipped(store, uplink))
    with open_landers(GatewayConfig(str(tmp_path), ("127.0.0.1", 0)), lambda: 1_700_000_000_000) as (_, hub):
        assert 'rocketbox_gateway_box_landed_end_bytes{box="box-17"}' in exposition(read_families(hub)).decode()
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_metrics, hub, listeners, frozenset())
            answer = await scraped(listeners[0])
            hub.records.retire("box-17")
            assert "box-17" not in await scraped(listeners[0])  # nobody is to be woken for it any more
            nursery.cancel_scope.cancel()
    (facts,) = boxes(ZoneReader(str(tmp_path)))
    assert facts.state(facts.landed_ms) == "retired"
    head, _, body = answer.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK")
    assert len([name for name in body.splitlines() if name.startswith("rocketbox_gateway_fsync_seconds_bucket")]) == 11
    assert all(LINE.fullmatch(line) for line in body.splitlines()), body


@pytest.mark.slow
async def test_the_gateway_counts_pieces_gaps_syncs_and_what_is_left(tmp_path: Path) -> None:
    gap = gap_piece(0, 97, {"id": [7, 1], "class": "missing", "reason": "operator"})
    good = log_piece([MadeRecord(), MadeRecord(queue_offset=1)])[1]
    hello = Hello("box-17", ((SOURCE.epoch, 0),), ((7, 0),), 0, 1 << 40, 1_700_000_000_000, 1, "test")
    answers: list[int] = []
    config = GatewayConfig(str(tmp_path), ("127.0.0.1", 0), linger_ms=10, metrics=("127.0.0.1", free_port()))
    async with trio.open_nursery() as nursery:
        run = partial(run_gateway, config, now_ms=wall_ms)
        _, port = await nursery.start(lambda task_status: run(task_status=task_status))
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            reader = FrameReader(stream)
            await stream.send_all(hello.encode())
            pieces = (gap.container, good, good, b"no piece")
            await stream.send_all(b"".join(encode_frame(FrameType.PIECE, piece) for piece in pieces))
            while sum(answers) < len(pieces):
                kind, body = await reader.next_frame(pieces=False)
                if kind in (FrameType.RECEIPT, FrameType.REFUSED):
                    answers.append(len(decode_receipt(body).rows) if kind == FrameType.RECEIPT else 1)
        assert config.metrics is not None
        async with await trio.open_tcp_stream(*config.metrics) as scrape:
            await scrape.send_all(GET)
            text = b"".join([part async for part in scrape]).decode()
        nursery.cancel_scope.cancel()
    for line in (
        'gaps_total{class="missing"} 1',
        'pieces_total{kind="gap",result="landed"} 1',
        'pieces_total{kind="log",result="landed"} 1',
        'pieces_total{kind="log",result="dup"} 1',
        'pieces_total{kind="unread",result="refused"} 1',
    ):
        assert f"rocketbox_gateway_{line}" in text, text
    facts = {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if line.startswith("rocketbox_")}
    assert facts["rocketbox_gateway_landing_free_bytes"] > 0
    ruled = set(re.findall(r"rocketbox_(?:gateway|spark)_\w+", (DOCS / "alerts-centre.yml").read_text()))
    assert {"rocketbox_gateway_twins_total", "rocketbox_spark_manifest_lag_seconds"} <= ruled
    certified = {"rocketbox_gateway_certificate_expiry_seconds"}  # of a gateway with certificates
    told = set(re.findall(r"^(\w+)", text + JobMetrics("bronze").text(), re.MULTILINE))
    assert ruled - told <= certified  # no rule waits for a name that nobody says
    assert facts["rocketbox_gateway_fsync_seconds_count"] >= 2  # pack and entries of one commit


TOLD = (
    "boxes_connected", "handshakes_total", "raw_bytes_total", "wire_bytes_total", "dup_bytes_total", "pieces_total",
    "refused_total", "commit_seconds", "fsync_seconds", "box_landed_end_bytes", "box_last_seen_seconds",
    "box_clock_skew_seconds", "box_pending_bytes", "gaps_total", "twins_total", "divergence_total",
    "landing_free_bytes", "zone_doubts_total",
)  # fmt: skip


@pytest.mark.slow
async def test_each_figure_of_the_gateway_is_that_of_what_happened(tmp_path: Path) -> None:
    header, good = log_piece([MadeRecord(), MadeRecord(queue_offset=1)])
    year_ms, metrics = 365 * 86_400_000, free_port()
    hello = Hello("box-17", ((SOURCE.epoch, 0),), ((7, 0),), 0, 10 * header.end, wall_ms() + 10 * year_ms, 1, "test")
    async with gateway(tmp_path, metrics=("127.0.0.1", metrics)) as port:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stranger:
            await stranger.send_all(b"GET / HTTP/1.1\r\n\r\n")
            assert await stranger.receive_some() == b""
        async with await trio.open_tcp_stream("127.0.0.1", port) as other:
            await other.send_all(replace(hello, versions=(8, 9)).encode())
            assert [await FrameReader(other).next_frame(pieces=False)][0][0] == FrameType.ERROR
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            reader = FrameReader(stream)
            await stream.send_all(hello.encode() + encode_frame(FrameType.PIECE, good))
            kinds = [(await reader.next_frame(pieces=False))[0] for _ in range(2)]
            assert kinds == [FrameType.WELCOME, FrameType.RECEIPT]
            await stream.send_all(encode_frame(FrameType.PIECE, good))
            await reader.next_frame(pieces=False)
            async with await trio.open_tcp_stream("127.0.0.1", port) as twin:
                await twin.send_all(replace(hello, runs=((8, 0),)).encode())
                assert (await FrameReader(twin).next_frame(pieces=False))[0] == FrameType.ERROR
            async with await trio.open_tcp_stream("127.0.0.1", metrics) as scrape:
                await scrape.send_all(GET)
                text = b"".join([part async for part in scrape]).decode()
    lines = [line for line in text.splitlines() if line.startswith("rocketbox_gateway_")]
    for name in TOLD:
        assert any(line.startswith(f"rocketbox_gateway_{name}") for line in lines), name
    facts = {line.split()[0].removeprefix("rocketbox_gateway_"): float(line.split()[1]) for line in lines}
    box_17 = '{box="box-17"}'
    assert facts["boxes_connected"] == facts["divergence_total"] == 1
    assert facts['refused_total{code="version"}'] == facts['refused_total{code="diverged"}'] == 1
    assert (facts["raw_bytes_total"], facts["wire_bytes_total"]) == (2 * header.end, 2 * len(good))
    assert (facts["dup_bytes_total"], facts["commit_seconds_count"]) == (header.end, 1)
    assert facts["box_landed_end_bytes" + box_17] == header.end
    assert facts["box_pending_bytes" + box_17] == 9 * header.end
    assert abs(facts["box_clock_skew_seconds" + box_17] - 10 * year_ms / 1000) < 300  # and nothing else minds
    assert 0 <= facts["box_last_seen_seconds" + box_17] < 300
    assert {name.split('"')[1]: value for name, value in facts.items() if name.startswith("handshakes")} == {
        "protocol": 1, "version": 1, "welcome": 1, "diverged": 1
    }  # fmt: skip


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool: sudo make system-packages")
@pytest.mark.parametrize(
    ("verb", "path"),
    [("check", DOCS / "alerts-centre.yml"), ("test", Path(__file__).parents[1] / "alerts_centre_test.yml")],
)
def test_promtool_accepts_the_rules_of_the_centre_and_they_fire_when_they_should(verb: str, path: Path) -> None:
    said = subprocess.run(["promtool", verb, "rules", str(path)], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
