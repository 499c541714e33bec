"""SIGKILL under gRPC load: what was acknowledged is there, and what a consumer acknowledged never comes again."""

import random
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from netstack.grpc.testing import grpc_client
from tests.appliance.grpc.asking import Asker, Code, acking, consumer_settings, message, receiving, sending
from tests.interop.test_grpc import GrpcBox

pytestmark = pytest.mark.slow

LIVES, SENDERS, SEED = 5, 16, 20261125
GROUP = "Workers"


class Ledger:
    """What the box told its clients."""

    def __init__(self) -> None:
        self.numbers = iter(range(1 << 30))
        self.sent: set[str] = set()  # ids of sends that were acknowledged
        self.done: set[str] = set()  # ids whose acknowledgement was answered
        self.again: set[str] = set()  # of those, what came once more


async def produce(client: Asker, topic: str, ledger: Ledger) -> None:
    while not client.client.closed.is_set():
        name = f"01{next(ledger.numbers):032}"
        with suppress(AssertionError, ValueError):  # the box died under the call
            answer = await client.ask("SendMessage", sending(message(topic, name.encode(), name)))
            if answer.status.code == Code.OK:
                ledger.sent.add(name)


async def consume(client: Asker, topic: str, ledger: Ledger) -> None:
    await client.told(await client.telemetry(consumer_settings(GROUP, topic)), 1)
    while not client.client.closed.is_set():
        with suppress(AssertionError, ValueError, IndexError):
            _, messages = await client.receive(receiving(GROUP, topic, invisible_s=10))
            ids = {each.system_properties.message_id for each in messages}
            ledger.again |= ids & ledger.done
            if messages:
                answer = await client.ask("AckMessage", acking(GROUP, topic, *messages))
                ledger.done |= ids if answer.status.code == Code.OK else set()


async def live(box: GrpcBox, topic: str, ledger: Ledger, seconds: float) -> None:
    """Let clients work until the box is killed."""
    async with grpc_client(box.grpc_port) as stream, trio.open_nursery() as nursery:
        for _ in range(SENDERS):
            nursery.start_soon(produce, Asker(stream, "producer@1"), topic, ledger)
        nursery.start_soon(consume, Asker(stream, "consumer@1"), topic, ledger)
        await trio.sleep(seconds)
        await trio.to_thread.run_sync(box.kill)
        await stream.closed.wait()
        nursery.cancel_scope.cancel()


async def all_of(box: GrpcBox, topic: str, wanted: Iterable[str]) -> set[str]:
    """Return the ids that a new group gets, until it has those that are wanted or nothing more comes."""
    found, missing = set[str](), set(wanted)
    async with grpc_client(box.grpc_port) as stream:
        client = Asker(stream, "auditor@1")
        await client.told(await client.telemetry(consumer_settings("Audit", topic)), 1)
        while missing - found:
            status, messages = await client.receive(receiving("Audit", topic, invisible_s=60))
            if status.code != Code.OK:
                break
            found |= {each.system_properties.message_id for each in messages}
            await client.ask("AckMessage", acking("Audit", topic, *messages))
    return found


async def test_kills_lose_no_acknowledged_send_and_bring_nothing_acknowledged_again(tmp_path: Path) -> None:
    box, dice, ledger = GrpcBox(tmp_path / "data"), random.Random(SEED), Ledger()
    await trio.to_thread.run_sync(box.start)
    topic = box.topic("kills")
    try:
        for _ in range(LIVES):
            await live(box, topic, ledger, dice.uniform(0.5, 1.5))
            await trio.to_thread.run_sync(box.start)
        assert len(ledger.sent) > 100, "the clients did work"
        assert len(ledger.done) > 20
        assert ledger.sent - await all_of(box, topic, ledger.sent) == set()
        assert ledger.again == set()
    finally:
        await trio.to_thread.run_sync(box.kill)
    print(f"{LIVES} kills, {len(ledger.sent)} sends acknowledged, {len(ledger.done)} receipts, seed {SEED}")
