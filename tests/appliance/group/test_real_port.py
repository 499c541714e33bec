"""Strangers at the port of a real member: each is refused and counted, memory stays, senders go on."""

import os
from pathlib import Path

import pytest
import trio

from appliance.group.links.frames import HEAD
from appliance.group.links.link_tls import LinkTls
from appliance.group.links.message_frames import APPEND
from appliance.metrics.scrape import SOCKET_NAME, scrape
from netstack.serving.channel import open_channel
from tests.appliance.box import send
from tests.appliance.group.certificates import certificates, needs_openssl
from tests.appliance.group.real_group import RealMember, pair_of, start, wait_for
from uplink_spark.wire.tls import TlsStream

pytestmark = [pytest.mark.slow, needs_openssl]
MOST_MORE_MB = 16  # of memory, for the second wave
GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
REASONS = ("certificate", "garbage", "unknown", "undecided")


async def talk(port: int, data: bytes, *, tls: LinkTls | None = None, stay_s: float = 2.0) -> None:
    """Say something to the port, with a certificate perhaps, and wait until the other side ends it."""
    try:
        tcp = await trio.open_tcp_stream("127.0.0.1", port)
        async with tcp:
            stream: TlsStream | trio.SocketStream = tcp
            with trio.move_on_after(stay_s):
                if tls is not None:
                    stream = TlsStream(tcp, tls.dialing, server_side=False)
                    await stream.do_handshake()
                await stream.send_all(data)
                while await stream.receive_some():
                    pass
    except GONE:
        pass


async def wave(port: int, size: int) -> None:
    """Come as strangers of all kinds, some hundred at a time, and as a member that says what none does."""
    ours, theirs = certificates(), certificates("other", ("a",))
    stranger, member = LinkTls(theirs / "a", clock_ok=True), LinkTls(ours / "b", clock_ok=True)
    large = HEAD.pack(0x7FFF_FFFF, APPEND, 8) + os.urandom(100_000)
    async with trio.open_nursery() as nursery:
        for number in range(size):
            nursery.start_soon(talk, port, (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 50_000)[number % 2])
            nursery.start_soon(talk, port, b"\x7f\xff\xff\xff\xff\xff\xff\xf8" * 100)  # offsets beyond any end
            nursery.start_soon(talk, port, b"")
            nursery.start_soon(talk, port, b"\x16\x03\x01\x02\0" + os.urandom(512))
            if not number % 8:
                nursery.start_soon(lambda: talk(port, b"", tls=stranger))
                nursery.start_soon(lambda: talk(port, large, tls=member))
                await trio.sleep(0.05)


async def refused_by(member: RealMember) -> dict[str, float]:
    """Return what a member's metrics say of its port."""
    _, text = await trio.to_thread.run_sync(scrape, member.data / "run" / SOCKET_NAME, 10.0)
    lines = (line for line in text.splitlines() if line.startswith("rocketbox_replication_links_refused_total{"))
    return {line.split('"')[1]: float(line.rpartition(" ")[2]) for line in lines}


async def test_strangers_are_refused_and_counted_and_take_no_memory(tmp_path: Path) -> None:
    a, b = pair_of(tmp_path)
    try:
        await start(a, b)
        await a.ask("group.promote")
        await wait_for(a, serves=True)
        await wave(a.broker_port + 1, 64)
        before = a.resident_mb()
        await wave(a.broker_port + 1, 192)
        assert a.resident_mb() < before + MOST_MORE_MB
        counted = await refused_by(a)
        assert {reason for reason in REASONS if not counted[reason]} == set(), counted
        async with open_channel("127.0.0.1", a.broker_port) as channel:
            with trio.fail_after(60):
                while (await channel.ask(send("T", b"after"), 10)).code != 0:  # noqa: ASYNC110
                    await trio.sleep(0.1)
    finally:
        for member in (a, b):
            if member.running:
                member.kill()
