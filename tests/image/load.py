"""Sends to the box in the machine and reads everything back: what was acknowledged must be there."""

import os
import time
from dataclasses import dataclass, field

import trio

from netstack.client import Message, Producer, PullConsumer
from netstack.client.send_request import ProducerOptions
from tests.image.vm import ADDRESS

NAMESRV = f"{ADDRESS}:9876"
TOPIC = "PowerCut"
PAYLOAD = os.urandom(700).hex()


@dataclass(slots=True)
class Sent:
    """Bodies by what is known of them."""

    acknowledged: set[str] = field(default_factory=set)
    enough: trio.Event = field(default_factory=trio.Event)  # set with every twentieth acknowledgement


async def send_until(stop: trio.Event, sent: Sent, first: int) -> None:
    """Send as fast as 32 waiting senders can, until told to stop or the box is gone for good."""
    options = ProducerOptions(timeout_s=5.0, retries=0)
    async with Producer("power_cut", NAMESRV, options=options) as producer, trio.open_nursery() as nursery:
        for lane in range(32):
            nursery.start_soon(_lane, producer, stop, sent, first + lane)
        await stop.wait()
        nursery.cancel_scope.cancel()


async def _lane(producer: Producer, stop: trio.Event, sent: Sent, number: int) -> None:
    while not stop.is_set():
        body = f"{number}"
        number += 32
        try:
            await producer.send(Message(TOPIC, f"{body} {PAYLOAD}".encode()))
        except Exception:  # the power is gone, or not back yet: what matters is what was acknowledged
            await trio.sleep(0.05)
        else:
            sent.acknowledged.add(body)
            if len(sent.acknowledged) % 20 == 0:
                sent.enough.set()


async def read_all(seconds: float) -> set[str]:
    """Return what every queue of the topic holds."""
    found: set[str] = set()
    with trio.fail_after(seconds):
        async with PullConsumer("power_cut_check", NAMESRV) as consumer:
            queues = await consumer.queues(TOPIC)
            ends = {queue: await consumer.ends(queue) for queue in queues}
            await consumer.assign(queues)
            for queue in queues:
                await consumer.seek_to_begin(queue)
            while any(consumer.position(queue) < ends[queue][1] for queue in queues):
                for message in await consumer.poll(5):
                    found.add(message.body.split()[0].decode())
    return found


async def wait_answer(seconds: float) -> float:
    """Return after how many seconds the box acknowledged a message. Raises trio.TooSlowError."""
    began = time.monotonic()
    with trio.fail_after(seconds):
        while True:
            try:
                async with Producer("wait", NAMESRV, options=ProducerOptions(timeout_s=4.0, retries=0)) as producer:
                    await producer.send(Message("Ready", b"?"))
                    return time.monotonic() - began
            except Exception:  # not up yet, in whatever way: the time limit decides
                await trio.sleep(0.5)
