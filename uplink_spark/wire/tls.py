"""TLS 1.3 with both sides authenticated; the box's name is the SAN URI urn:rocketbox:box:<box> of its certificate."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import trio

from uplink_spark.errors import ConfigError, ProtocolError
from uplink_spark.wire.identity import ALPN, BOX_NAME

NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME
BOX_URI = "urn:rocketbox:box:"
MEMBER_URI = "urn:rocketbox:member:"  # of a box of a group: <group>:<member>
RECORD_BYTES = 16 * 1024  # of TLS: what one read of OpenSSL returns at most
RECEIVE_BYTES = 256 * 1024
NOTHING = memoryview(b"")
FEED_BYTES = 32 * 1024  # OpenSSL keeps a buffer for each connection as large as what it was ever given at once


def _context(purpose: int, folder: Path, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(purpose)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
        context.load_verify_locations(folder / "ca.crt")
    except OSError as error:
        what = error.strerror or error
        raise ConfigError(f"certificates in {folder}: {name}.crt, {name}.key, ca.crt are needed: {what}") from error
    context.set_alpn_protocols([ALPN])
    return context


def gateway_context(folder: Path) -> ssl.SSLContext:
    """Return the gateway's side. Raises ConfigError."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, folder, "gateway")
    context.num_tickets = 0  # no resumption, no tickets nobody reads
    return context


def box_context(folder: Path, *, clock_ok: bool) -> ssl.SSLContext:
    """Return the box's side; without a synchronised clock the dates of the gateway's chain are not judged."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, folder, "box")
    if not clock_ok:
        context.verify_flags |= NO_CHECK_TIME
    return context


def check_alpn(selected: str | None) -> None:
    """A failed ALPN match does not fail Python's handshake, so both sides look. Raises ProtocolError."""
    if selected != ALPN:
        raise ProtocolError(f"ALPN {selected!r}, expected {ALPN}: the peer is not an uplink of this version")


def box_of(certificate: dict[str, Any] | None) -> str | None:
    """Return the box a peer certificate names, None if it names none."""
    for kind, value in (certificate or {}).get("subjectAltName", ()):
        if kind == "URI" and str(value).startswith(BOX_URI):
            name = str(value).removeprefix(BOX_URI)
            return name if BOX_NAME.fullmatch(name) else None
    return None


def serial_of(certificate: dict[str, Any] | None) -> str:
    return str((certificate or {}).get("serialNumber", "")).lower()


class TlsStream:
    """One end of a TLS connection: what one receive of the socket brought is decrypted in one step.

    trio.SSLStream needs a step of the loop for each record of 16 KiB, a third of what the gateway spent on a piece.
    One task receives, one sends. Like it, a stream that ends without a farewell simply ends.
    """

    def __init__(
        self,
        tcp: trio.SocketStream,
        context: ssl.SSLContext,
        *,
        server_side: bool = True,
        receive_bytes: int = RECEIVE_BYTES,
    ) -> None:
        self._tcp, self._in, self._out, self._most = tcp, ssl.MemoryBIO(), ssl.MemoryBIO(), receive_bytes
        self._receive: Callable[[int], Awaitable[bytes | bytearray]] = tcp.receive_some
        self._received = NOTHING  # by the socket, not yet given to OpenSSL
        self.session = context.wrap_bio(self._in, self._out, server_side=server_side)

    async def do_handshake(self) -> None:
        """Raises trio.BrokenResourceError, its cause the reason."""
        while True:
            try:
                self.session.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            except ssl.SSLError as error:
                raise trio.BrokenResourceError("TLS handshake failed") from error
            else:
                return await self._flush()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return what has been decrypted, waiting where nothing has; nothing at the end."""
        await trio.lowlevel.checkpoint_if_cancelled()
        parts: list[bytes] = []
        waited = False
        while not self._read(parts, max_bytes or self._most) and not parts:
            waited = await self._fill() or waited
        if not waited:  # others get a turn; what was read is never lost to a cancellation
            await trio.lowlevel.cancel_shielded_checkpoint()
        return b"".join(parts)

    def _read(self, parts: list[bytes], most: int) -> bool:
        """Add the records that are whole; whether the stream has ended."""
        try:
            while most > 0:
                part = self._next_part(min(most, RECORD_BYTES))
                if part is None:
                    return False
                if not part:  # the peer said farewell
                    return True
                parts.append(part)
                most -= len(part)
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):  # or went without one
            return True
        except ssl.SSLError as error:
            raise trio.BrokenResourceError("TLS record that cannot be read") from error
        return False

    def _next_part(self, most: int) -> bytes | None:
        """Return what the next record holds, b"" at a farewell, None when more has to be received. Raises SSLError.

        OpenSSL is asked where it has something: an exception for each receive costs more than the question.
        """
        while self._in.pending or self._in.eof or self.session.pending() or self._feed():
            try:
                return self.session.read(most)
            except ssl.SSLWantReadError:
                if not self._feed():
                    break
        return None

    def _feed(self) -> bool:
        """Give OpenSSL what was received; whether there was anything."""
        if not self._received:
            return False
        self._in.write(self._received[:FEED_BYTES])
        self._received = self._received[FEED_BYTES:] or NOTHING  # an empty slice would keep the whole
        return True

    async def _fill(self) -> bool:
        """Give OpenSSL more; return whether that took a turn of the loop."""
        if self._feed():
            return False
        received = await self._receive(self._most)
        if not received:
            self._in.write_eof()
        self._received = memoryview(received)
        self._feed()
        return True

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        try:
            self.session.write(data)
        except ssl.SSLError as error:
            raise trio.BrokenResourceError("TLS connection has ended") from error
        await self._flush()

    async def aclose(self) -> None:
        await self._tcp.aclose()

    async def _flush(self) -> None:
        await self._tcp.send_all(self._out.read())
