"""Hostile clients at the status page and the metrics port: HTTP that is slow, endless, odd or costly."""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio

GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
PAGES = ("/", "/now?reach=week", "/health.json", "/topic?name=Filled", "/group?name=CG", "/messages?topic=Filled")
ODD = (
    *(
        "/messages?key=x",
        "/messages?id=00",
        "/message?at=" + "F" * 32,
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
    ),
    *("/%00", "/?" + "a=b&" * 1000, "/messages?topic=Filled&time=0001-01-01T00:00%2B23:59", "//evil.example/", "*"),
    *("/messages?topic=Filled&time=9999-12-31T23:59-23:59", "/messages?id=%F0%9F%92%A9" * 20, "/topic?name=%ff%fe"),
)
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH", "PRI", "G\x7fT")
HOSTS = ("127.0.0.1", "localhost", "evil.example", "", "[::1", "127.0.0.1:99999999", "a" * 8000, "127.0.0.1\r\nHost: b")
PageAttack = Callable[[int, random.Random], Awaitable[None]]  # at a port


def head(target: str, method: str = "GET", host: str = "127.0.0.1", *more: str) -> bytes:
    """Return a request without a body, legal or not."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


async def _say(port: int, data: bytes, *, read: bool = True, stay_s: float = 2.0) -> None:
    """Send, then read until the end or the time is over."""
    with suppress(*GONE), trio.move_on_after(stay_s):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(data)
            while read and await stream.receive_some(1 << 20):
                pass
            await trio.sleep(stay_s)


async def pages_in_a_row(port: int, rng: random.Random) -> None:
    """Hundreds of pages asked for at once on one connection, and all answers read."""
    while True:
        await _say(port, b"".join(head(rng.choice((*PAGES, "/metrics"))) for _ in range(300)))


async def pages_that_nobody_reads(port: int, rng: random.Random) -> None:
    while True:
        await _say(port, head(rng.choice((*PAGES, "/metrics"))) * 400, read=False, stay_s=5.0)


async def odd_requests(port: int, rng: random.Random) -> None:
    """Methods, hosts, paths and lengths that no browser sends."""
    more: tuple[str, ...] = (
        "Range: bytes=0-," + "0-," * 2000,
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
        "Expect: 100-continue",
    )
    more += (
        "Cookie: rocketbox=" + "x" * 12_000,
        "Origin: http://evil.example",
        "Authorization: Bearer " + "y" * 12_000,
    )
    while True:
        requests = [
            head(rng.choice((*PAGES, *ODD)), rng.choice(METHODS), rng.choice(HOSTS), rng.choice(("", *more)))
            for _ in range(5)
        ]
        await _say(port, b"".join(requests) + rng.randbytes(40), stay_s=0.3)


async def heads_that_never_end(port: int, rng: random.Random) -> None:
    """A line of one byte after the other, a head of many short lines, one of a long line."""
    starts = (
        b"G",
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 3000,
        b"GET /" + b"x" * 16_000,
    )
    while True:
        with suppress(*GONE), trio.move_on_after(60):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(rng.choice(starts))
                while True:
                    await stream.send_all(rng.choice((b"a", b"\r\nb:", b":")))
                    await trio.sleep(0.05)


async def bodies_that_never_end(port: int, rng: random.Random) -> None:
    """Chunks of a byte, of nothing but their head, a length of a terabyte; more after the refusal."""
    post = head("/login", "POST", "127.0.0.1", "Transfer-Encoding: chunked")
    long = head("/login", "POST", "127.0.0.1", "Content-Length: 1099511627776")
    while True:
        with suppress(*GONE), trio.move_on_after(15):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                kind = rng.choice((b"1\r\na\r\n" * 2000, b"1;" + b"x" * 4000 + b"\r\na\r\n", bytes(65536)))
                await stream.send_all(long if kind[:1] == b"\0" else post)
                while True:
                    await stream.send_all(kind)


async def connections_opened_and_closed(port: int, rng: random.Random) -> None:
    """As many connections as fit into a second, some of them with a request."""
    while True:
        with suppress(*GONE):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                if rng.random() < 0.3:
                    await stream.send_all(head("/health.json"))


PAGE_ATTACKS: dict[str, PageAttack] = {
    each.__name__.replace("_", " "): each
    for each in (
        pages_in_a_row,
        pages_that_nobody_reads,
        odd_requests,
        heads_that_never_end,
        bodies_that_never_end,
        connections_opened_and_closed,
    )
}
