"""Compressed bodies: those of the Java client, damaged ones, and kinds that this machine cannot read."""

import sys
import zlib
from typing import Any

import pytest
import trio

from netstack.client import BodyUnreadable, ConsumerOptions, Message, Producer, PushConsumer, StartFrom, compression
from netstack.client.compression import compressed, decompressed
from netstack.client.messages import ReceivedMessage
from netstack.client.send_request import EncodedRequest
from tests.netstack.client.conftest import PATIENT, known

PLAIN = b"box " * 300
# What the compressors of Java's client 5.5.0 make of PLAIN at level 5, by the kind's bits.
BY_JAVA = {
    0x100: "04224d18607073120000004f626f78200400ffffffff985020626f782000000000",
    0x200: "28b52ffd00585c000020626f78200100a9fc3b22010000",
    0x300: "785e4bcaaf50481ac5a378148fe22180010543a71c",
}
PACKAGES = {0x100: "lz4.frame", 0x200: "zstandard"}


def test_a_body_is_compressed_from_the_threshold_on_and_marked() -> None:
    small, large = b"x" * 4095, b"x" * 4096
    assert compressed(small, 4096) == (small, 0)
    body, flag = compressed(large, 4096)
    assert (flag, body[0]) == (0x301, 0x78)
    assert decompressed(body, flag) == decompressed(body, 1) == large


@pytest.mark.parametrize("kind", BY_JAVA)
def test_what_java_compressed_is_read_and_its_pieces_are_not(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind in PACKAGES:
        pytest.importorskip(PACKAGES[kind])
    body = bytes.fromhex(BY_JAVA[kind])
    assert decompressed(body, kind | 1) == PLAIN
    for damaged in (body[:-6], b"", b"\xff" + body[1:], body[:8]):
        with pytest.raises(BodyUnreadable, match=r"damaged|cut off"):
            decompressed(damaged, kind | 1)
    monkeypatch.setattr(compression, "MAX_BODY_BYTES", 1000)
    with pytest.raises(BodyUnreadable, match="would fill 1000 bytes"):
        decompressed(body, kind | 1)


@pytest.mark.parametrize(("kind", "package"), [(0x100, "lz4"), (0x200, "zstandard")])
def test_without_its_library_a_body_says_what_to_install(
    kind: int, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (package, f"{package}.frame"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BodyUnreadable, match=f"pip install {package}; `stored_body` has its"):
        decompressed(bytes.fromhex(BY_JAVA[kind]), kind | 1)


def test_a_damaged_body_and_an_unknown_kind_say_so() -> None:
    with pytest.raises(BodyUnreadable, match="cut off"):
        decompressed(zlib.compress(b"abc" * 100)[:-9], 1)
    with pytest.raises(BodyUnreadable, match="unknown kind 5"):
        decompressed(b"x", 0x501)


async def send_packed(producer: Producer, topic: str, kind: int) -> None:
    """Send what a 5.x producer sends."""
    out: EncodedRequest = producer._sender.make(Message(topic, b"x"))
    out.body, out.sys_flag = bytes.fromhex(BY_JAVA[kind]), kind | 1
    await producer._sender.send(out)


@pytest.mark.slow
async def test_a_consumer_outlives_a_body_it_cannot_read(
    own_cluster: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lz4", "lz4.frame"):
        monkeypatch.setitem(sys.modules, name, None)
    options = ConsumerOptions(start_from=StartFrom.FIRST, max_reconsume=0)
    seen: list[bytes] = []
    async with Producer(topic, own_cluster.namesrv, options=PATIENT) as producer:
        for kind in (0x100, 0x300):
            await send_packed(producer, topic, kind)
        await producer.send(Message(topic, b"plain"))
        instance = producer.instance
        async with (
            PushConsumer(topic, instance=instance, options=options, topics={topic: "*"}) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, lambda message: seen.append(message.body))
            dead = f"%DLQ%{topic}"
            await known(instance, dead)
            async with PushConsumer(f"{topic}_dead", instance=instance, options=options, topics={dead: "*"}) as letters:
                with trio.fail_after(60):
                    letter: ReceivedMessage = await letters.__anext__()
            nursery.cancel_scope.cancel()
    assert sorted(seen) == sorted([PLAIN, b"plain"])
    assert (letter.stored_body.hex(), letter.sys_flag & 0x701) == (BY_JAVA[0x100], 0x101)
