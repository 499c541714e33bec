"""The traffic of a soak: every kind of sending and consuming at once, clients that come and go, all in a history."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from netstack.client import (
    ClientError,
    ConsumerOptions,
    Message,
    Producer,
    ProducerOptions,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
    Verdict,
)
from tests.soak.history import History

GROUPS = {
    "sync": ("fast", "slow", "restless"),
    "batch": ("batches",),
    "delay": ("delays",),
    "transaction": ("commits",),
    "ordered": ("orderly",),
}
DELAYS_S = {1: 1.0, 2: 5.0, 3: 10.0}
BATCH, KEYS = 20, 16
WARM_UP = 70_000  # sends; see make_topics
BODY_BYTES = 600
EARLY_S = 0.05  # the clocks of two processes of one machine
FIRST = ConsumerOptions(start_from=StartFrom.FIRST)
PATIENT = ProducerOptions(timeout_s=10.0)


@dataclass(slots=True)
class Load:
    """One run's traffic; rates are messages a second."""

    namesrv: str
    history: History
    rng: random.Random
    rates: dict[str, float]
    calm: trio.Event = field(default_factory=trio.Event)  # no more sends; the slow hurry up
    latencies_ms: list[float] = field(default_factory=list)
    reconnects: int = 0

    async def run(self, restless_s: float) -> None:
        """Send and consume until cancelled; `restless_s` is how long a client that comes and goes stays."""
        for stream in GROUPS:
            self.history.attempt(stream, -1)  # of make_topics
        senders: dict[str, Callable[[Producer, int], Awaitable[None]]] = {
            "sync": self._sync,
            "batch": self._batch,
            "delay": self._delay,
            "transaction": self._transaction,
            "ordered": self._ordered,
        }
        async with trio.open_nursery() as nursery:
            for name, send in senders.items():
                per_call = BATCH if name == "batch" else 1
                nursery.start_soon(self._keep_sending, name, send, self.rates[name] / per_call, restless_s)
            nursery.start_soon(self._consume, "sync", "fast", 0.0)
            nursery.start_soon(self._consume, "sync", "slow", 0.8 * 8 / self.rates["sync"])  # eight at a time: 1.25 x
            nursery.start_soon(self._consume, "batch", "batches", 0.0)
            nursery.start_soon(self._consume, "delay", "delays", 0.0)
            nursery.start_soon(self._consume, "transaction", "commits", 0.0)
            nursery.start_soon(self._consume_in_order)
            for _ in range(2):
                nursery.start_soon(self._come_and_go, restless_s)

    # sending

    async def _keep_sending(
        self, name: str, send: Callable[[Producer, int], Awaitable[None]], rate: float, restless_s: float
    ) -> None:
        """Send at a rate, with a fresh producer every so often; a send that fails is noted and not repeated here."""
        number = 0
        while not self.calm.is_set():
            until = trio.current_time() + 3 * restless_s * self.rng.uniform(0.5, 1.5)
            async with Producer(f"PG_{name}", self.namesrv, options=PATIENT) as producer:
                due = trio.current_time()
                while trio.current_time() < until and not self.calm.is_set():
                    try:
                        await send(producer, number)
                    except ClientError:
                        self.history.fail(name)
                    number += BATCH if name == "batch" else 1
                    due = max(due + 1 / rate, trio.current_time() - 1)
                    await trio.sleep_until(due)
            self.reconnects += 1

    def _message(self, stream: str, number: int, **more: object) -> Message:
        self.history.attempt(stream, number)
        body = f"{stream} {number} {time.time():.3f} ".encode().ljust(BODY_BYTES, b".")
        return Message(f"soak_{stream}", body, keys=f"{stream}:{number}", **more)  # type: ignore[arg-type]

    async def _sync(self, producer: Producer, number: int) -> None:
        began = trio.current_time()
        await producer.send(self._message("sync", number))
        self.history.acknowledge("sync", number)
        self.latencies_ms.append((trio.current_time() - began) * 1000)

    async def _batch(self, producer: Producer, number: int) -> None:
        numbers = range(number, number + BATCH)
        await producer.send_batch([self._message("batch", each) for each in numbers])
        for each in numbers:
            self.history.acknowledge("batch", each)

    async def _delay(self, producer: Producer, number: int) -> None:
        await producer.send(self._message("delay", number, delay_level=self.rng.choice([*DELAYS_S])))
        self.history.acknowledge("delay", number)

    async def _transaction(self, producer: Producer, number: int) -> None:
        verdict = Verdict.ROLLBACK if number % 4 == 3 else Verdict.COMMIT
        if verdict is Verdict.ROLLBACK:
            self.history.take_back("transaction", number)

        async def execute(message: Message, message_id: str) -> Verdict:
            return verdict

        await producer.send_in_transaction(self._message("transaction", number), execute)
        if verdict is Verdict.COMMIT:
            self.history.acknowledge("transaction", number)

    async def _ordered(self, producer: Producer, number: int) -> None:
        key = number % KEYS
        await producer.send_ordered(self._message("ordered", number, tags=f"k{key}"), key)
        self.history.acknowledge("ordered", number)

    # consuming

    async def _consume(self, stream: str, group: str, pause_s: float) -> None:
        async def handle(message: ReceivedMessage) -> None:
            if pause_s and not self.calm.is_set():
                await trio.sleep(pause_s)
            number, sent_s = numbers_of(message)
            level = message.properties.get("DELAY") if stream == "delay" else None
            early = level is not None and time.time() - sent_s < DELAYS_S[int(level)] - EARLY_S
            self.history.deliver(stream, group, number, early=early)

        async with self._consumer(stream, group, FIRST) as consumer:
            await consumer.run(handle, concurrency=8)

    async def _consume_in_order(self) -> None:
        async def handle(message: ReceivedMessage) -> None:
            self.history.deliver_in_order("ordered", "orderly", message.tags or "", numbers_of(message)[0])

        options = ConsumerOptions(start_from=StartFrom.FIRST, orderly=True)
        async with self._consumer("ordered", "orderly", options) as consumer:
            await consumer.run(handle)

    async def _come_and_go(self, restless_s: float) -> None:
        """Join a group, consume for a while, leave: some of the time without saying so."""
        while True:
            with trio.move_on_after(self.rng.uniform(0.5, 1.5) * restless_s):
                await self._consume("sync", "restless", 0.0)
            self.reconnects += 1

    def _consumer(self, stream: str, group: str, options: ConsumerOptions) -> PushConsumer:
        return PushConsumer(f"soak_{group}", self.namesrv, topics={f"soak_{stream}": "*"}, options=options)


def numbers_of(message: ReceivedMessage) -> tuple[int, float]:
    """Return a message's number and when it was sent."""
    _, number, sent_s, _ = message.body.split(b" ", 3)
    return int(number), float(sent_s)


async def make_topics(namesrv: str) -> None:
    """Have every topic made before its consumers look for it, and the box's table of remembered sends full.

    That table alone grows for 65,536 sends, a quarter of an hour at the rates of a soak, and stays as it is then.
    """
    async with Producer("PG_soak", namesrv) as producer:
        for stream in GROUPS:
            await producer.send(Message(f"soak_{stream}", f"{stream} -1 0 ".encode(), keys="first"))
        for number in range(WARM_UP):
            await producer.submit(Message("soak_warm_up", b"x" * 100, keys=f"warm:{number}"))
        await producer.wait_sent()
