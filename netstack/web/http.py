"""A small HTTP/1.1 server on h11 for what people and scrapers look at: short requests in, whole answers out.

Loaded when the first of them connects. A connection has a deadline for every step and carries one request at a time.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http.client import responses
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
import trio

log = logging.getLogger("netstack.web")
HEADER_BYTES, BODY_BYTES, TARGET_LENGTH = 16_384, 8_192, 4_096
REQUEST_S, IDLE_S, SEND_S = 10.0, 30.0, 20.0
RECEIVE_BYTES, MOST_FIELDS = 16_384, 20
LINGER_S, LINGER_READS = 1.0, 64
TEXT, HTML = "text/plain; charset=utf-8", "text/html; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"  # the text format of Prometheus
Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Request:
    """One request; header names are in lower case, `near` says that it came from this machine."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    near: bool = True
    peer: str = ""  # whose connection it is, for the log

    def form(self) -> dict[str, str]:
        """Return the fields of a submitted form."""
        return _fields(self.body.decode(errors="replace"))

    def cookie(self, name: str) -> str:
        """Return a cookie's value, empty when it is not there."""
        pairs = (part.strip().partition("=") for part in self.headers.get("cookie", "").split(";"))
        return next((value for key, _, value in pairs if key == name), "")


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer."""

    status: int
    body: bytes
    kind: str = TEXT
    headers: Headers = field(default=())


Respond = Callable[[Request], Awaitable[Response]]


def plain(status: int, text: str, *headers: tuple[str, str]) -> Response:
    """Return an answer of one line."""
    return Response(status, text.encode() + b"\n", TEXT, headers)


def host_is_known(host: str, names: Iterable[str]) -> bool:
    """Tell whether a Host header names this machine: an address, localhost or one of its names.

    A page elsewhere whose name was pointed at this machine (DNS rebinding) has that name here, hence is refused; an
    address in a Host header was typed, no name server can forge it.
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    if name == "localhost" or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def converse(stream: trio.SocketStream, respond: Respond, *, near: bool) -> None:
    """Answer the requests of one connection until it ends; raises nothing but cancellation."""
    conn = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_BYTES)
    try:
        while True:
            response, without_body = await _exchange(conn, stream, respond, near)
            if response is None:
                return
            await _send(conn, stream, response, without_body)
            if conn.their_state is not h11.DONE:
                await _let_read(stream)
            conn.start_next_cycle()  # LocalProtocolError where one side has said that it closes
    except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, h11.LocalProtocolError):
        return  # whoever asked has gone, or does not read
    finally:
        await trio.aclose_forcefully(stream)


async def _exchange(
    conn: h11.Connection, stream: trio.abc.Stream, respond: Respond, near: bool
) -> tuple[Response | None, bool]:
    """Return the answer to the next request, None at the end, and whether it asked for the head alone."""
    head = None
    try:
        with trio.fail_after(IDLE_S):
            head = await _next_event(conn, stream)
        if not isinstance(head, h11.Request):
            return None, False
        if _has_two_lengths(head):  # whoever passed it on may take the other: nothing more is read
            return plain(400, "Content-Length and Transfer-Encoding in one request"), False
        with trio.fail_after(REQUEST_S):
            body = await _read_body(conn, stream)
    except trio.TooSlowError:
        return (plain(408, "the request did not arrive in time") if head else None), False
    except h11.RemoteProtocolError as exc:
        exc.__traceback__ = None  # h11's frames hold it, and all that came would wait for the collector
        return plain(exc.error_status_hint, str(exc)), False
    method = head.method.decode("ascii")
    if body is None:
        return plain(413, f"a request body may have {BODY_BYTES} bytes"), False
    if len(head.target) > TARGET_LENGTH:
        return plain(414, f"an address may have {TARGET_LENGTH} characters"), False
    return await _responded(_request(head, body, near), respond), method == "HEAD"


def _has_two_lengths(head: h11.Request) -> bool:
    """Source: RFC 9112, 6.1."""
    names = [name for name, _ in head.headers]
    return b"content-length" in names and b"transfer-encoding" in names


async def _next_event(conn: h11.Connection, stream: trio.abc.Stream) -> object:
    while (event := conn.next_event()) is h11.NEED_DATA:
        if conn.they_are_waiting_for_100_continue:
            await stream.send_all(conn.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        conn.receive_data(bytes(await stream.receive_some(RECEIVE_BYTES)))
    return event


async def _read_body(conn: h11.Connection, stream: trio.abc.Stream) -> bytes | None:
    """Return the body, None when it is too large."""
    body = bytearray()
    while isinstance(event := await _next_event(conn, stream), h11.Data):
        body += event.data
        if len(body) > BODY_BYTES:
            return None
    return bytes(body)


async def _let_read(stream: trio.SocketStream) -> None:
    """Take the rest of a refused request for a moment: closing on unread bytes would reset the answer away."""
    with trio.move_on_after(LINGER_S):
        await stream.send_eof()
        for _ in range(LINGER_READS):
            if not await stream.receive_some(RECEIVE_BYTES):
                return


def _request(head: h11.Request, body: bytes, near: bool) -> Request:
    path, _, query = head.target.decode("ascii", "replace").partition("?")
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
    return Request(head.method.decode("ascii"), unquote(path), _fields(query), headers, body, near)


def _fields(text: str) -> dict[str, str]:
    """Return the fields of a query or a form, none of them where there are too many."""
    try:
        return dict(parse_qsl(text, max_num_fields=MOST_FIELDS))
    except ValueError:
        return {}


async def _responded(request: Request, respond: Respond) -> Response:
    try:
        return await respond(request)
    except Exception as exc:  # one page that fails must not take the program with it
        log.error("event=page_failed path=%r", request.path, exc_info=exc)
        return plain(500, f"{type(exc).__name__}: {exc}; the log has the place; of a box: journalctl -u rocketbox")


async def _send(conn: h11.Connection, stream: trio.abc.Stream, response: Response, without_body: bool) -> None:
    headers = [
        ("Date", formatdate(usegmt=True)),
        ("Content-Type", response.kind),
        ("Content-Length", str(len(response.body))),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        *response.headers,
    ]
    if conn.their_state not in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED):
        headers.append(("Connection", "close"))
    reason = responses.get(response.status, "").encode()
    parts = [conn.send(h11.Response(status_code=response.status, headers=headers, reason=reason)) or b""]
    if not without_body:
        parts.append(conn.send(h11.Data(data=response.body)) or b"")
    parts.append(conn.send(h11.EndOfMessage()) or b"")
    with trio.fail_after(SEND_S):
        await stream.send_all(b"".join(parts))
