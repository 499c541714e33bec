"""The small HTTP server: limits of a request, one answer each, and a connection that always ends."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from netstack.web.http import (
    BODY_BYTES,
    IDLE_S,
    REQUEST_S,
    TARGET_LENGTH,
    Request,
    Response,
    converse,
    host_is_known,
    plain,
)


async def echo(request: Request) -> Response:
    await trio.lowlevel.checkpoint()
    return plain(200, f"{request.method} {request.path} {dict(request.query)} {len(request.body)} {request.near}")


async def told(
    sent: bytes, respond: Callable[[Request], Awaitable[Response]] = echo, *, end: bool = True, near: bool = True
) -> list[tuple[int, dict[str, str], bytes]]:
    """Return status, headers and body of each answer to what was sent."""
    client, server = trio.testing.memory_stream_pair()
    stream: Any = server
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: converse(stream, respond, near=near))
        await client.send_all(sent)
        if end:
            await client.send_eof()
        data = b""
        while got := await client.receive_some():
            data += got
    answers = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {line.partition(": ")[0].lower(): line.partition(": ")[2] for line in lines}
        length = 0 if sent.startswith(b"HEAD") else int(headers.get("content-length", "0"))
        answers.append((int(first.split()[1]), headers, data[:length]))
        data = data[length:]
    return answers


def get(target: str, *headers: str, method: str = "GET", body: bytes = b"") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


async def test_requests_of_one_connection_are_answered_in_order() -> None:
    one, two = await told(get("/a%20b?x=1&x=2&y=%C3%BC") + get("/c", method="POST", body=b"123"), near=False)
    assert one[2] == "GET /a b {'x': '2', 'y': 'ü'} 0 False\n".encode()
    assert two[2] == b"POST /c {} 3 False\n"
    assert (one[1]["cache-control"], one[1]["x-content-type-options"]) == ("no-store", "nosniff")


async def test_a_head_has_the_length_of_the_answer_and_no_body() -> None:
    ((status, headers, body),) = await told(get("/", method="HEAD"))
    assert (status, int(headers["content-length"]) > 0, body) == (200, True, b"")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (get("/", method="POST", body=b"x" * BODY_BYTES), 200),
        (get("/", method="POST", body=b"x" * (BODY_BYTES + 1)), 413),
        (get("/" + "x" * (TARGET_LENGTH - 1)), 200),
        (get("/" + "x" * TARGET_LENGTH), 414),
        (get("/", "A: " + "x" * 40_000), 431),
        (b"GARBAGE\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),  # no Host
        (get("/", "Content-Length: -1"), 400),
        (get("/", "Content-Length: 1", "Content-Length: 2"), 400),
        (get("/", "Content-Length: 3", "Transfer-Encoding: chunked", method="POST") + b"0\r\n\r\n", 400),
        (get("/", "Transfer-Encoding: chunked", "Content-Length: 3", method="POST") + b"0\r\n\r\n", 400),
    ],
)
async def test_the_limits_of_a_request(sent: bytes, status: int) -> None:
    answers = await told(sent)
    assert [answer[0] for answer in answers] == [status]


async def test_after_a_request_that_was_refused_nothing_more_is_taken_from_it() -> None:
    two_lengths = get("/", "Transfer-Encoding: chunked", "Content-Length: 3", method="POST") + b"0\r\n\r\n"
    for refused, status in ((get("/", method="POST", body=b"x" * (BODY_BYTES + 1)), 413), (two_lengths, 400)):
        answers = await told(refused + get("/secret"))
        assert [answer[0] for answer in answers] == [status]
        assert answers[0][1]["connection"] == "close"


async def test_a_page_that_fails_costs_its_answer_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(request: Request) -> Response:
        await trio.lowlevel.checkpoint()
        if request.path == "/bad":
            raise KeyError("x")
        return plain(200, "fine")

    bad, good = await told(get("/bad") + get("/good"), fails)
    assert (bad[0], good[0]) == (500, 200)
    assert b"journalctl -u rocketbox" in bad[2]
    assert "event=page_failed path='/bad'" in caplog.text


async def test_who_says_nothing_is_left_and_who_stops_half_way_is_told(
    autojump_clock: trio.testing.MockClock,
) -> None:
    assert await told(b"", end=False) == []
    assert trio.current_time() == pytest.approx(IDLE_S, abs=2)
    began = trio.current_time()
    answers = await told(get("/", "Content-Length: 5", method="POST") + b"12", end=False)
    assert [answer[0] for answer in answers] == [408]
    assert trio.current_time() - began == pytest.approx(REQUEST_S, abs=2)


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("localhost", True), ("localhost:9877", True), ("10.1.0.7", True), ("[::1]:80", True), ("box.example", True),
        ("box.example.", True), ("evil.example", False), ("box.example.evil.com", False), ("", False), ("[::1", False),
        ("a@box.example", True), ("box.example:x", True), ("127.0.0.1.evil.com", False),
    ],
)  # fmt: skip
def test_only_addresses_and_own_names_are_this_box(host: str, known: bool) -> None:
    assert host_is_known(host, ["box.example"]) == known


def test_forms_and_cookies_are_read_and_bounded() -> None:
    headers = {"cookie": "a=1; token=x=y ;b"}
    request = Request("POST", "/", {}, headers, b"token=%C3%BC&empty=&x=1")
    assert request.form() == {"token": "ü", "x": "1"}
    assert (request.cookie("token"), request.cookie("a"), request.cookie("c")) == ("x=y", "1", "")
    assert Request("POST", "/", {}, {}, b"&".join([b"a=1"] * 21)).form() == {}


async def test_nothing_of_a_broken_request_waits_for_the_collector() -> None:
    async def respond(request: Request) -> Response:
        return await echo(request)

    gc.collect()
    gc.disable()
    try:
        assert [status for status, _, _ in await told(b"GARBAGE\r\n\r\n", respond)] == [400]
        held = weakref.ref(respond)
        del respond
        assert held() is None
    finally:
        gc.enable()


async def test_a_body_with_two_lengths_is_refused() -> None:
    sent = get("/", "Transfer-Encoding: chunked", method="POST", body=b"0\r\n\r\n")
    [(status, _, text)] = await told(sent)
    assert (status, text) == (400, b"Content-Length and Transfer-Encoding in one request\n")
