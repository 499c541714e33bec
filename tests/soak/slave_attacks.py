"""Hostile slaves at the port where Apache's slaves fetch the log: silence, floods, places of other logs."""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio

from netstack.wire.replication import REPORT

GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
SlaveAttack = Callable[[int, random.Random], Awaitable[None]]  # at a port


async def _say(port: int, data: bytes, *, stay_s: float, every_s: float = 0.0) -> None:
    """Send, again and again where there is an interval, and read nothing, until the other side closes or it is over."""
    with suppress(*GONE), trio.move_on_after(stay_s):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(data)
            while every_s:
                await trio.sleep(every_s)
                await stream.send_all(data)
            await stream.receive_some(1)
            await trio.sleep(stay_s)


async def slaves_that_say_nothing(port: int, rng: random.Random) -> None:
    """A connection, or one byte of a report, again and again."""
    while True:
        await _say(port, b"\0" * rng.randrange(2), stay_s=25.0)
        await trio.sleep(0.01)


async def slaves_that_drip(port: int, rng: random.Random) -> None:
    """A byte of a report now and then."""
    while True:
        await _say(port, b"\0", stay_s=60.0, every_s=2.0)
        await trio.sleep(0.01)


async def slaves_of_other_logs(port: int, rng: random.Random) -> None:
    """Log offsets beyond the end, within a record, or none at all."""
    while True:
        first = rng.choice(
            (REPORT.pack(rng.getrandbits(55)), REPORT.pack(rng.randrange(1 << 20)), b"\x16\x03\x01", b"GET /")
        )
        await _say(port, first + rng.randbytes(rng.randrange(600)), stay_s=0.5)


async def slaves_that_read_nothing(port: int, rng: random.Random) -> None:
    """The log from its first byte on, or a flood of reports, and nothing is read."""
    while True:
        await _say(port, REPORT.pack(0) * rng.choice((1, 5000)), stay_s=10.0)


async def slaves_that_come_again(port: int, rng: random.Random) -> None:
    """A connection, a report, a first read of the log, and again."""
    while True:
        await _say(port, REPORT.pack(0), stay_s=0.05)


SLAVE_ATTACKS: dict[str, SlaveAttack] = {
    each.__name__.replace("_", " "): each
    for each in (
        slaves_that_say_nothing,
        slaves_that_drip,
        slaves_of_other_logs,
        slaves_that_read_nothing,
        slaves_that_come_again,
    )
}
