"""POP under load while the box is killed: nothing acknowledged comes again, all else comes, nothing before its time."""

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import trio

from netstack.errors import AskTimeout, ChannelClosed
from netstack.serving.channel import Channel, open_channel
from netstack.wire.command import RemotingCommand
from storage_driver.record import StoredMessage
from tests.appliance.box import ask, messages_of, send
from tests.interop.box import Box

pytestmark = pytest.mark.slow

INVISIBLE_MS, RECEIVERS, SENDERS = 3000, 6, 2
EARLY_S = 0.02  # clocks of two processes are one here; a pop is answered after its time began


@dataclass
class Seen:
    """What was promised by answers, and what came."""

    sent: set[bytes] = field(default_factory=set)
    tried: set[bytes] = field(default_factory=set)  # to acknowledge; a kill may have taken the answer
    acknowledged: set[bytes] = field(default_factory=set)
    out_until: dict[bytes, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    stopping: bool = False

    def came(self, body: bytes, began_s: float) -> None:
        """A message was delivered by a pop that began at a time."""
        now_s = time.monotonic()
        if body in self.acknowledged:
            self.wrong.append(f"{body!r} was acknowledged and came again")
        if now_s < self.out_until.get(body, 0.0) - EARLY_S:
            self.wrong.append(f"{body!r} came {self.out_until[body] - now_s:.3f} s before its time")
        self.out_until[body] = began_s + INVISIBLE_MS / 1000


async def connected(port: int, work: Callable[[Channel], Awaitable[None]], seen: Seen) -> None:
    """Do some work again and again, over connections that a kill ends."""
    while not seen.stopping:
        try:
            async with open_channel("127.0.0.1", port) as channel:
                while not seen.stopping:
                    await work(channel)
        except (OSError, AskTimeout, ChannelClosed):
            await trio.sleep(0.05)


async def send_one(seen: Seen, numbers: list[int], channel: Channel) -> None:
    numbers[0] += 1
    body = b"%d" % numbers[0]
    if (await channel.ask(send("T", body))).code == 0:
        seen.sent.add(body)


def pop(poll_ms: int) -> RemotingCommand:
    fields = {"consumerGroup": "CG", "topic": "T", "queueId": -1, "maxMsgNums": 4, "initMode": 0}
    return ask(200050, **fields, invisibleTime=INVISIBLE_MS, pollTime=poll_ms, bornTime=1)


async def receive_some(seen: Seen, pick: random.Random, channel: Channel) -> None:
    began_s = time.monotonic()
    answer = await channel.ask(pop(200))
    if answer.code != 0:
        return
    found = [(message, _handle(message, answer)) for message in messages_of(answer)]
    for message, _ in found:
        seen.came(message.body, began_s)
    for message, handle in found:
        if pick.random() < 0.7:
            seen.tried.add(message.body)
            answer = await channel.ask(_ack(handle))
            in_time = time.monotonic() < began_s + INVISIBLE_MS / 1000
            if answer.code == 0 and in_time:  # later it may have had no effect, which is answered alike
                seen.acknowledged.add(message.body)


def _handle(message: StoredMessage, answer: RemotingCommand) -> str:
    known = message.property_map.get("POP_CK")
    if known is not None:
        return str(known)
    ext = answer.ext
    queue_id, offset = message.queue_id, message.queue_offset
    return f"{offset} {ext['popTime']} {ext['invisibleTime']} 0 0 box {queue_id} {offset}"


def _ack(handle: str) -> RemotingCommand:
    kind, _, queue_id, offset = handle.split()[4:8]
    topic = "T" if kind == "0" else "%RETRY%CG_T"
    return ask(200051, consumerGroup="CG", topic=topic, queueId=queue_id, offset=offset, extraInfo=handle)


async def run(box: Box, kills: int, seen: Seen) -> float:
    """Work while the box is killed; return how long what was left took to come."""
    pick, numbers = random.Random(5), [0]
    async with trio.open_nursery() as nursery:
        for _ in range(SENDERS):
            nursery.start_soon(connected, box.broker_port, partial(send_one, seen, numbers), seen)
        for _ in range(RECEIVERS):
            nursery.start_soon(connected, box.broker_port, partial(receive_some, seen, pick), seen)
        for _ in range(kills):
            await trio.sleep(pick.uniform(1.0, 2.5))
            await trio.to_thread.run_sync(box.kill)
            await trio.to_thread.run_sync(box.start)
        await trio.sleep(1.5)
        seen.stopping = True
    began_s = time.monotonic()
    left = seen.sent - seen.tried
    async with open_channel("127.0.0.1", box.broker_port) as channel:
        while left and time.monotonic() - began_s < INVISIBLE_MS / 1000 + 20:
            popped_s = time.monotonic()
            answer = await channel.ask(pop(500))
            for message in messages_of(answer) if answer.code == 0 else ():
                seen.came(message.body, popped_s)
                left.discard(message.body)
                await channel.ask(_ack(_handle(message, answer)))
    seen.wrong += [f"{body!r} never came" for body in left]
    return time.monotonic() - began_s


@pytest.mark.feature("POP: a box that is killed under load")
def test_kills_under_load_break_no_promise_of_pop(tmp_path: Path) -> None:
    box, seen = Box(tmp_path / "data"), Seen()
    box.start()
    try:
        took_s = trio.run(run, box, 4, seen)
    finally:
        box.stop()
    assert not seen.wrong, "\n".join(seen.wrong[:10])
    assert len(seen.acknowledged) > 100
    assert len(seen.sent) > len(seen.tried)
    assert took_s < INVISIBLE_MS / 1000 + 15  # what nobody acknowledged came, some of it several times
