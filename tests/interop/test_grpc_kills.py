"""SIGKILL under gRPC load: what was acknowledged is there, what a consumer acknowledged never comes again, and what it
left comes when its invisible time is over, not before.
"""

import random
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from netstack.grpc.testing import grpc_client
from tests.appliance.grpc.asking import Asker, Code, acking, consumer_settings, message, receiving, sending
from tests.interop.downs import Downs, check_late, summary
from tests.interop.served import GrpcBox

pytestmark = pytest.mark.slow

LIVES, SENDERS, SEED = 5, 16, 20261125
MANY_LIVES, SEEDS = 12, range(1, 21)  # of the long variant
GROUP = "Workers"
INVISIBLE_S, LEFT = 10.0, 0.2  # the least that gRPC allows; the share of messages that the consumer forgets once
EARLY_S = 0.02  # clocks of two processes are one here; a take is answered after its time began
REST_S = 60.0  # for what is left at the end


class Ledger:
    """What the box told its clients."""

    def __init__(self, seed: int) -> None:
        self.numbers = iter(range(1 << 30))
        self.sent: set[str] = set()  # ids of sends that were acknowledged
        self.done: set[str] = set()  # ids whose acknowledgement was answered
        self.again: set[str] = set()  # of those, what came once more
        self.out: dict[
            str, tuple[float, float, int]
        ] = {}  # what is left: when its receive began, when it came, attempt
        self.early: list[str] = []
        self.killed_s = 0.0
        self.downs = Downs()
        self.nothing_left = trio.Event()
        self.leaving, self.dice = True, random.Random(seed)

    def check_left(self) -> None:
        if not (self.leaving or self.out):
            self.nothing_left.set()

    def came(self, found: Any, began_s: float) -> bool:
        """Note a message that was received; tell whether it is to be acknowledged."""
        system, now_s = found.system_properties, time.monotonic()
        name = system.message_id
        if name in self.out:
            first_s, left_s, attempt = self.out.pop(name)
            if now_s < first_s + INVISIBLE_S - EARLY_S:
                self.early.append(f"{name} came {first_s + INVISIBLE_S - now_s:.3f} s before its time")
            stored_s = now_s - time.time() + system.store_timestamp.ToMilliseconds() / 1000
            if system.delivery_attempt == attempt + 1:  # else a kill took the answer that brought it meanwhile
                self.downs.came(left_s + INVISIBLE_S, stored_s)
            self.check_left()
        elif self.leaving and self.dice.random() < LEFT:
            self.out[name] = began_s, now_s, system.delivery_attempt
            return False
        return True


async def produce(client: Asker, topic: str, ledger: Ledger) -> None:
    while not client.client.closed.is_set():
        name, began_s = f"01{next(ledger.numbers):032}", time.monotonic()
        with suppress(AssertionError, ValueError):  # the box died under the call
            answer = await client.ask("SendMessage", sending(message(topic, name.encode(), name)))
            if answer.status.code == Code.OK:
                ledger.downs.sent(began_s, time.monotonic())
                ledger.sent.add(name)


async def consume(client: Asker, topic: str, ledger: Ledger) -> None:
    await client.told(await client.telemetry(consumer_settings(GROUP, topic)), 1)
    while not client.client.closed.is_set():
        with suppress(AssertionError, ValueError, IndexError):
            began_s = time.monotonic()
            _, found = await client.receive(receiving(GROUP, topic, invisible_s=int(INVISIBLE_S)))
            ledger.again |= {each.system_properties.message_id for each in found} & ledger.done
            messages = [each for each in found if ledger.came(each, began_s)]
            if messages:
                answer = await client.ask("AckMessage", acking(GROUP, topic, *messages))
                in_time = time.monotonic() < began_s + INVISIBLE_S
                if answer.status.code == Code.OK and in_time:  # later it may have had no effect
                    ledger.done |= {each.system_properties.message_id for each in messages}


async def live(box: GrpcBox, topic: str, ledger: Ledger, seconds: float) -> None:
    """Let clients work until the box is killed."""
    async with grpc_client(box.grpc_port) as stream, trio.open_nursery() as nursery:
        for _ in range(SENDERS):
            nursery.start_soon(produce, Asker(stream, "producer@1"), topic, ledger)
        nursery.start_soon(consume, Asker(stream, "consumer@1"), topic, ledger)
        await trio.sleep(seconds)
        ledger.killed_s = time.monotonic()
        await trio.to_thread.run_sync(box.kill)
        await stream.closed.wait()
        nursery.cancel_scope.cancel()


async def rest(box: GrpcBox, topic: str, ledger: Ledger) -> None:
    """Consume until what was left has come again."""
    ledger.leaving = False
    ledger.check_left()
    async with grpc_client(box.grpc_port) as stream, trio.open_nursery() as nursery:
        nursery.start_soon(consume, Asker(stream, "consumer@1"), topic, ledger)
        with trio.move_on_after(REST_S):
            await ledger.nothing_left.wait()
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


async def lives(folder: Path, count: int, seed: int) -> Ledger:
    """Kill a box so often; return what it told its clients."""
    box, dice, ledger = GrpcBox(folder / "data"), random.Random(seed), Ledger(seed)
    await trio.to_thread.run_sync(box.start)
    topic = box.topic("kills")
    try:
        for _ in range(count):
            await live(box, topic, ledger, dice.uniform(0.5, 1.5))
            await trio.to_thread.run_sync(box.start)
            ledger.downs.add(ledger.killed_s, time.monotonic())
        await rest(box, topic, ledger)
        assert ledger.sent - await all_of(box, topic, ledger.sent) == set()
    finally:
        await trio.to_thread.run_sync(box.kill)
    said = f"{count} kills, {len(ledger.sent)} sends acknowledged, {len(ledger.done)} receipts"
    print(f"{said}, {summary(ledger.downs.late_s())}; seed {seed}")
    return ledger


def check(ledger: Ledger) -> None:
    assert (ledger.again, ledger.early, ledger.out) == (set(), [], {})
    assert len(ledger.sent) > 100, "the clients did work"
    assert len(ledger.done) > 20
    assert ledger.downs.late_s(), "something was left"


async def test_kills_break_no_promise_to_grpc_clients(tmp_path: Path) -> None:
    check(await lives(tmp_path, LIVES, SEED))


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
async def test_many_kills_break_no_promise_and_what_is_left_is_visible_within_a_second(
    tmp_path: Path, seed: int
) -> None:
    ledger = await lives(tmp_path, MANY_LIVES, seed)
    check(ledger)
    check_late(ledger.downs.late_s())
