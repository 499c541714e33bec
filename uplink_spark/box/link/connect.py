"""The box's way to the gateway: name, TCP, TLS, HELLO, WELCOME, each with its deadline and its cause."""

from __future__ import annotations

import os
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import trio

from uplink_spark.config import UplinkConfig, need_certs, split_address
from uplink_spark.errors import ConfigError, ProtocolError, UplinkError, first_error
from uplink_spark.wire import frames
from uplink_spark.wire.expiry import serial_and_end
from uplink_spark.wire.frames import ErrorFrame, FrameType, Hello, Welcome
from uplink_spark.wire.link import FrameQueue, FrameReader, LinkClosed, Stream, Throttle, unexpected
from uplink_spark.wire.tls import box_context, check_alpn

CONNECT_S, WELCOME_S = 20, 10
BACKOFF_FIRST_S, BACKOFF_LAST_S = 0.1, 300.0
NETWORK_LAST_S = 60.0  # nobody said no: a link that is back is used within a minute


HINTS = {  # by OpenSSL's X509_V_ERR_..., x509_vfy.h
    9: "; is this box's clock right? check with `timedatectl`",
    10: "; renew it at the centre, or is this box's clock wrong? check with `timedatectl`",
    18: "; it is not signed by the ca.crt here: copy the centre's ca.crt",
    19: "; it is not signed by the ca.crt here: copy the centre's ca.crt",
    20: "; it is not signed by the ca.crt here: copy the centre's ca.crt",
    62: "; uplink.gateway must be a name in its certificate",
    64: "; uplink.gateway must be an address in its certificate",
}


class ConnectFailed(UplinkError):
    """No connection to the gateway; `cause` is the metrics' label, the text says what to look at."""

    def __init__(self, cause: str, text: str) -> None:
        super().__init__(text)
        self.cause = cause


class GatewayRefused(UplinkError):
    """The gateway ended the connection with an ERROR frame."""

    def __init__(self, fault: ErrorFrame) -> None:
        super().__init__(f"{fault.code}: {fault.text}")
        self.fault = fault


@dataclass(slots=True)
class GatewayConnection:
    """A greeted connection."""

    reader: FrameReader
    outbox: FrameQueue
    welcome: Welcome


class Backoff:
    """0.1 s doubling to 5 min, times 0.5 to 1.5; the first receipt resets it, a connect does not."""

    def __init__(self) -> None:
        self._next = BACKOFF_FIRST_S

    def reset(self) -> None:
        self._next = BACKOFF_FIRST_S

    def next_s(self, *, refused: bool = True) -> float:
        """Return how long to wait now; after a failure of the network, not a refusal, at most NETWORK_LAST_S."""
        wait, self._next = self._next, min(self._next * 2, BACKOFF_LAST_S)
        return (wait if refused else min(wait, NETWORK_LAST_S / 1.5)) * random.uniform(0.5, 1.5)


async def _open_tcp(host: str, port: int) -> trio.SocketStream:
    try:
        return await trio.open_tcp_stream(host, port)
    except OSError as error:
        cause = "dns" if isinstance(error, trio.socket.gaierror) else "tcp"
        what = "the name cannot be resolved" if cause == "dns" else f"cannot connect: {_reason(error)}"
        raise ConnectFailed(cause, f"{host}:{port}: {what}") from error
    except UnicodeError as error:  # a label is empty or longer than 63 letters
        raise ConnectFailed("dns", f"{host}:{port}: it is not a host name: {error}") from error


def _reason(error: OSError) -> str:
    """Return what the kernel said of the last address that was tried; trio names addresses only."""
    cause = first_error(error.__cause__ or error)
    return os.strerror(cause.errno) if isinstance(cause, OSError) and cause.errno else str(error)


async def _secure(stream: trio.SocketStream, host: str, context: ssl.SSLContext) -> Stream:
    secured = trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)
    try:
        await secured.do_handshake()
        check_alpn(secured.selected_alpn_protocol())
    except trio.BrokenResourceError as error:
        cause = error.__cause__ or error
        hint = HINTS.get(getattr(cause, "verify_code", 0), "")
        raise ConnectFailed("tls", f"{host}: TLS handshake failed: {cause}{hint}") from error
    except ProtocolError as error:
        raise ConnectFailed("tls", f"{host}: {error}") from error
    return secured


async def _context_of(certs: Path, *, clock_ok: bool) -> ssl.SSLContext:
    """Reading certificates and a key takes milliseconds, which senders of this box would wait."""
    return await trio.to_thread.run_sync(partial(box_context, certs, clock_ok=clock_ok))


def _closed_early(stream: Stream, error: BaseException, certs: Path | None) -> ConnectFailed:
    """In TLS 1.3 a box hears of its certificate's refusal only by the end of the stream, where HELLO waits."""
    if isinstance(stream, trio.SSLStream):
        guess = f"certificate not accepted? {_own_certificate(certs)}see the gateway's log"
        return ConnectFailed("refused", f"gateway closed before WELCOME: {guess} ({error})")
    return ConnectFailed("network", f"gateway closed before WELCOME: is it running, and is it a gateway? ({error})")


def _own_certificate(certs: Path | None) -> str:
    """Which certificate this box has shown, and until when it is good."""
    try:
        serial, ends_s = serial_and_end(((certs or Path()) / "box.crt").read_text())
        return f"it is serial {serial} and expires {datetime.fromtimestamp(ends_s, UTC):%Y-%m-%d %H:%M} UTC; "
    except (OSError, ValueError):
        return ""


@asynccontextmanager
async def open_stream(
    config: UplinkConfig, address: str, *, clock_ok: bool
) -> AsyncIterator[tuple[Stream, trio.SocketStream]]:
    """Open the stream to a gateway address within 20 s. Raises ConnectFailed, for certificates that are not there too:
    they may come later, and a box without its uplink continues serving.
    """
    try:
        host, port = split_address(address)
        need_certs(host, config.certs, "gateway")
        tls = await _context_of(config.certs, clock_ok=clock_ok) if config.certs is not None else None
    except ConfigError as error:
        raise ConnectFailed("config", str(error)) from error
    tcp: trio.SocketStream | None = None
    try:
        with trio.move_on_after(CONNECT_S) as late:
            tcp = await _open_tcp(host, port)
            stream: Stream = tcp
            if tls is not None:
                stream = await _secure(tcp, host, tls)
        if late.cancelled_caught or tcp is None:
            raise ConnectFailed("timeout", f"{address}: no connection within {CONNECT_S} s")
        yield stream, tcp
    finally:
        if tcp is not None:
            await trio.aclose_forcefully(tcp)


async def greet(
    stream: Stream, hello: Hello, throttle: Throttle | None, *, certs: Path | None = None
) -> GatewayConnection:
    """Send HELLO and wait for WELCOME; certs: what the stream was opened with.

    Raises GatewayRefused, ConnectFailed, ProtocolError.
    """
    outbox = FrameQueue(stream, throttle)
    reader = FrameReader(stream)
    outbox.put(hello.encode())
    try:
        with trio.move_on_after(WELCOME_S) as late:
            await outbox.flush()
            kind, body = await reader.next_frame(pieces=False)
        if late.cancelled_caught:
            raise ConnectFailed("silent", f"no WELCOME within {WELCOME_S} s")
    except (LinkClosed, trio.BrokenResourceError, OSError) as error:
        raise _closed_early(stream, error, certs) from error
    if kind == FrameType.ERROR:
        raise GatewayRefused(frames.decode_fault(body))
    if kind != FrameType.WELCOME:
        raise unexpected(kind)
    welcome = frames.decode_welcome(body)
    if welcome.version != frames.VERSION:
        raise ProtocolError(f"WELCOME with version {welcome.version}, asked for {frames.VERSION}")
    return GatewayConnection(reader, outbox, welcome)
