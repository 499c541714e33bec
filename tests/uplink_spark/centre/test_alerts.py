"""Every alert rule of the centre over what a real gateway sends: nothing while all is well, each after its trouble."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest
import trio
from prometheus_client.samples import Sample

from storage_driver.log.clock import wall_ms
from tests.appliance.alerting import NEEDED, rules_of, samples, silent_then_firing
from tests.ports import free_port
from tests.uplink_spark.small_disk import ALLOWED, NO_MOUNTS, SmallDisk
from tests.waiting import until_it
from uplink_spark.centre.certs import make_ca, make_gateway
from uplink_spark.jobs.metrics import JobMetrics
from uplink_spark.testing import SOURCE, MadeRecord, gap_piece, log_piece
from uplink_spark.testing_site import gateway
from uplink_spark.wire.frames import FrameType, Hello, encode_frame
from uplink_spark.wire.link import FrameReader
from uplink_spark.zone.reader import ZoneReader

RULES = rules_of("alerts-centre.yml")
HEADER, PIECE = log_piece([MadeRecord()])
END = HEADER.end
ELSEWHERE = {"RocketboxGatewayDown", "RocketboxGatewayCertificateEnds", "RocketboxManifestLag"}  # tests of their own
pytestmark = [pytest.mark.slow, NEEDED]


def hello(box: str = "box-17", durable: int = END, epoch: int = SOURCE.epoch) -> Hello:
    return Hello(box, ((epoch, 0),), ((SOURCE.run, 0),), 0, durable, wall_ms(), 1, "test")


async def say(disk: SmallDisk, greeting: Hello, *pieces: bytes) -> list[int]:
    """Connect as a box, send pieces, wait for an answer to each; return the types of all answers."""
    async with await trio.open_tcp_stream("127.0.0.1", disk.port) as stream:
        reader = FrameReader(stream)
        await stream.send_all(greeting.encode())
        kinds = [(await reader.next_frame(pieces=False))[0]]
        for piece in pieces:
            await stream.send_all(encode_frame(FrameType.PIECE, piece))
            kinds.append((await reader.next_frame(pieces=False))[0])
        return kinds


def piece_of(box: str) -> bytes:
    return log_piece([MadeRecord()], source=replace(SOURCE, box=box))[1]


async def scraped(disk: SmallDisk) -> list[Sample]:
    return samples(await trio.to_thread.run_sync(text_of, disk.metrics[1]))


def text_of(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        return str(answer.read().decode())


async def trouble(disk: SmallDisk) -> None:
    """A declared loss, a twin, boxes of another and an older zone, bytes that wait, a zone that cannot be written."""
    loss = gap_piece(END, END + 97, {"id": [7, 1], "class": "missing", "reason": "quota_bytes"})
    assert await say(disk, hello(durable=END + 97), loss.container) == [FrameType.WELCOME, FrameType.RECEIPT]
    for epoch in (1, 2, 1, 2):
        await say(disk, replace(hello("twin"), lineage=((epoch, 0),), durable=0))
    await say(disk, replace(hello("moved"), landing=b"another landing!"))
    zone = ZoneReader(str(disk.seen)).zone.landing_id
    await say(disk, replace(hello("older"), landing=zone, receipt=(0, 10_000)))
    await say(disk, hello("late", durable=1 << 30), piece_of("late"))
    with disk.read_only():
        assert await say(disk, hello("last"), piece_of("last")) == [FrameType.WELCOME, FrameType.ERROR]
    with (disk.seen / "other").open("wb") as file:  # somebody else's
        file.write(bytes(14_000_000))

    async def filling() -> bool:
        return next(s.value for s in await scraped(disk) if s.name == "rocketbox_gateway_landing_used_ratio") > 0.8

    await until_it(filling)


Scrapes = tuple[list[Sample], list[Sample]]


@pytest.fixture(scope="module")
def scrapes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrapes]:
    """What a real gateway sends while all is well, and after each trouble has come."""
    if not ALLOWED:
        pytest.skip(NO_MOUNTS)

    async def walk() -> Scrapes:
        assert await say(disk, hello(), piece_of("box-17")) == [FrameType.WELCOME, FrameType.RECEIPT]
        before = await scraped(disk)
        await trouble(disk)
        return before, await scraped(disk)

    disk = SmallDisk(tmp_path_factory.mktemp("site") / "landing", "16m")
    try:
        yield trio.run(walk)
    finally:
        disk.end()


@pytest.mark.parametrize("alert", sorted(set(RULES) - ELSEWHERE))
def test_a_gateway_in_trouble_raises_the_alert_that_was_silent_before(
    alert: str, scrapes: Scrapes, tmp_path: Path
) -> None:
    assert silent_then_firing(tmp_path, RULES[alert], *scrapes) == ""


def test_a_gateway_that_is_gone_raises_its_alert(tmp_path: Path) -> None:
    up, down = ([Sample("up", {}, value)] for value in (1.0, 0.0))
    assert silent_then_firing(tmp_path, RULES["RocketboxGatewayDown"], up, down, job="rocketbox-gateway") == ""


def test_a_job_that_is_behind_raises_its_alert(tmp_path: Path) -> None:
    told = []
    for lag_s in (20.0, 4000.0):
        metrics = JobMetrics("bronze", lag_entries=3, lag_seconds=lag_s)
        metrics.write(str(tmp_path / "bronze.prom"))
        told.append(samples((tmp_path / "bronze.prom").read_text()))
    assert silent_then_firing(tmp_path, RULES["RocketboxManifestLag"], *told) == ""


async def test_a_certificate_that_ends_raises_its_alert(tmp_path: Path) -> None:
    certs, told = tmp_path / "certs", []
    make_ca(certs)
    for days in (60, 10):
        make_gateway(certs, "localhost", days=days)
        port = free_port()
        async with gateway(tmp_path / "landing", certs=certs, metrics=("127.0.0.1", port)):
            told.append(samples(await trio.to_thread.run_sync(text_of, port)))
    assert silent_then_firing(tmp_path, RULES["RocketboxGatewayCertificateEnds"], *told) == ""
