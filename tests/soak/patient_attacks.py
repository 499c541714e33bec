"""Hostile clients that say little and let the box work, keep or wait for them, one function for each kind."""

import base64
import json
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio

from netstack.wire.command import encode_command, request

GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
MIB = 1 << 20
PatientAttack = Callable[[int, random.Random], Awaitable[None]]


async def _say(port: int, data: bytes, *, stay_s: float = 2.0) -> None:
    with suppress(*GONE):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            with trio.move_on_after(stay_s):
                await stream.send_all(data)
                while await stream.receive_some(65_536):
                    pass


def _offsets(first: int, count: int) -> bytes:
    """Return commits of groups that nobody knows, on a topic of a thousand queues."""
    place = {"topic": "BenchmarkTest", "queueId": "0", "commitOffset": "1"}
    groups = (f"progress{number}" for number in range(first, first + count))
    return b"".join(encode_command(request(15, {"consumerGroup": group, **place})) for group in groups)


async def progress_without_end(port: int, rng: random.Random) -> None:
    """One topic named by the ten thousand, and all groups on a topic of a thousand queues."""
    named = request(208, {"consumerGroup": "g", "topicList": "BenchmarkTest;" * 10_000})
    while True:
        await _say(port, encode_command(named))
        await _say(port, _offsets(rng.randrange(2000), 200) + encode_command(request(317, {"isOrder": "false"})) * 20)


async def questions_that_nobody_answers(port: int, rng: random.Random) -> None:
    """Megabytes to be passed on to a consumer that says nothing."""
    group = f"mute{rng.getrandbits(20):x}"
    beat = {"clientID": group, "consumerDataSet": [{"groupName": group, "subscriptionDataSet": []}]}
    question = request(307, {"consumerGroup": group, "clientId": group, "jstackEnable": "false"}, bytes(8 * MIB))
    while True:
        with suppress(*GONE):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            async with stream:
                await stream.send_all(encode_command(request(34, {}, json.dumps(beat).encode())))
                await trio.sleep(0.1)
                for _ in range(4):
                    await _say(port, encode_command(question), stay_s=0.5)


async def acknowledgements_of_anything(port: int, rng: random.Random) -> None:
    """A million messages in a quarter of a megabyte."""
    bits = base64.b64encode(bytes([255]) * 126).decode()
    take = {"c": "CG", "t": "BenchmarkTest", "r": "0", "so": 0, "q": 0, "pt": 1, "it": 1, "b": bits}
    body = json.dumps({"brokerName": "b", "acks": [take] * 1024}, separators=(",", ":")).encode()
    while True:
        await _say(port, encode_command(request(200151, {}, body)) * 3)


async def waiting_with_long_fields(port: int, rng: random.Random) -> None:
    """Requests of 200 KB that wait, and a filter of 32 KB that each brings along."""
    long, tags = "x" * 200_000, "||".join(f"t{number}" for number in range(4500))
    pull = {"consumerGroup": "CG", "topic": "Waited", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32"}
    pull |= {"commitOffset": "0", "suspendTimeoutMillis": "20000", "subVersion": "0"}
    pop = {"consumerGroup": "CG", "topic": "Waited", "queueId": "-1", "pollTime": "20000", "bornTime": "1"}
    send = {"a": "PG", "b": "Waited", "c": "TBW102", "d": "4", "e": "3", "f": "0", "g": "1", "h": "0", "i": ""}
    kinds = (
        request(11, {**pull, "sysFlag": "14", "subscription": "*", "expressionType": long}),
        request(11, {**pull, "sysFlag": "6", "subscription": tags, "expressionType": "TAG"}),
        request(200054, {**pop, "order": "true", "attemptId": long}),
        request(200054, {**pop, "exp": tags, "expType": "TAG"}),
    )
    while True:
        await _say(port, encode_command(request(310, send, b"x")) + encode_command(rng.choice(kinds)) * 200, stay_s=3.0)


PATIENT_ATTACKS: dict[str, PatientAttack] = {
    each.__name__.replace("_", " "): each
    for each in (
        progress_without_end,
        questions_that_nobody_answers,
        acknowledgements_of_anything,
        waiting_with_long_fields,
    )
}
