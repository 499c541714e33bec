"""POP under load while the box is killed: nothing acknowledged comes again, all else comes, nothing before its time.

What nobody acknowledges comes within a second after its time.
"""

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
from tests.interop.downs import Downs, check_late, summary

pytestmark = pytest.mark.slow

INVISIBLE_MS, RECEIVERS, SENDERS = 3000, 6, 2
KILLS, SEED = 4, 5
MANY_KILLS, SEEDS = 10, range(1, 21)  # of the long variant
SEND_S = 60.0  # what a machine that stops for a while does to a send is to be seen
EARLY_S = 0.02  # clocks of two processes are one here; a pop is answered after its time began


@dataclass
class Seen:
    """What was promised by answers, and what came."""

    sent: set[bytes] = field(default_factory=set)
    tried: set[bytes] = field(default_factory=set)  # to acknowledge; a kill may have taken the answer
    acknowledged: set[bytes] = field(default_factory=set)
    out_until: dict[bytes, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    taken: dict[bytes, tuple[int, int]] = field(default_factory=dict)  # time of the last take in ms, how often before
    downs: Downs = field(default_factory=Downs)
    stopping: bool = False

    def came(self, message: StoredMessage, handle: str, began_s: float) -> None:
        """A message was delivered by a pop that began at a time."""
        body, now_s, pop_ms, times = message.body, time.monotonic(), int(handle.split()[1]), message.reconsume_times
        taken_ms, before = self.taken.get(body, (0, times))
        if times == before + 1:  # else a kill took the answer that brought it meanwhile
            self.downs.came((taken_ms + INVISIBLE_MS) / 1000, message.stored_ms / 1000)
        self.taken[body] = pop_ms, times
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
    body, began_s = b"%d" % numbers[0], time.time()
    if (await channel.ask(send("T", body), SEND_S)).code == 0:
        seen.downs.sent(began_s, time.time())
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
    for message, handle in found:
        seen.came(message, handle, began_s)
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


async def run(box: Box, kills: int, seed: int, seen: Seen) -> float:
    """Work while the box is killed; return how long what was left took to come."""
    pick, numbers = random.Random(seed), [0]
    async with trio.open_nursery() as nursery:
        for _ in range(SENDERS):
            nursery.start_soon(connected, box.broker_port, partial(send_one, seen, numbers), seen)
        for _ in range(RECEIVERS):
            nursery.start_soon(connected, box.broker_port, partial(receive_some, seen, pick), seen)
        for _ in range(kills):
            await trio.sleep(pick.uniform(1.0, 2.5))
            killed_s = time.time()
            await trio.to_thread.run_sync(box.kill)
            await trio.to_thread.run_sync(box.start)
            seen.downs.add(killed_s, time.time())
        await trio.sleep(1.5)
        seen.stopping = True
    began_s = time.monotonic()
    left = seen.sent - seen.tried
    async with open_channel("127.0.0.1", box.broker_port) as channel:
        while left and time.monotonic() - began_s < INVISIBLE_MS / 1000 + 20:
            popped_s = time.monotonic()
            answer = await channel.ask(pop(500))
            for message in messages_of(answer) if answer.code == 0 else ():
                seen.came(message, handle := _handle(message, answer), popped_s)
                left.discard(message.body)
                await channel.ask(_ack(handle))
    seen.wrong += [f"{body!r} never came" for body in left]
    return time.monotonic() - began_s


def lives(folder: Path, kills: int, seed: int) -> Seen:
    """Kill a box so often; check what was promised and return what was seen."""
    box, seen = Box(folder / "data"), Seen()
    box.start()
    try:
        took_s = trio.run(run, box, kills, seed, seen)
    finally:
        box.stop()
    said = f"{kills} kills, {len(seen.sent)} sends acknowledged, {len(seen.acknowledged)} receipts"
    print(f"{said}, {summary(seen.downs.late_s())}; seed {seed}")
    assert not seen.wrong, "\n".join(seen.wrong[:10])
    assert len(seen.acknowledged) > 100
    assert len(seen.sent) > len(seen.tried)
    assert took_s < INVISIBLE_MS / 1000 + 15  # what nobody acknowledged came, some of it several times
    return seen


@pytest.mark.feature("POP: a box that is killed under load")
def test_kills_under_load_break_no_promise_of_pop(tmp_path: Path) -> None:
    lives(tmp_path, KILLS, SEED)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
def test_what_many_kills_leave_to_pop_comes_within_a_second_after_its_time(tmp_path: Path, seed: int) -> None:
    check_late(lives(tmp_path, MANY_KILLS, seed).downs.late_s())
