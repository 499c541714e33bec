"""TLS on the same port as plain text: the first byte of a connection decides.

0x16 begins a TLS greeting and can begin no frame, whose first byte is always 0. Certificate files are looked at again
every 30 s; new ones count for new connections; if they are bad the old ones stay in use. While the clock is not trusted
the dates of client certificates are not judged.
Source: RocketMQ 4.9.8 TlsSystemConfig, NettyRemotingServer.HandshakeHandler.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import trio

from netstack.errors import ProtocolError
from netstack.serving.addresses import is_loopback, plain_address
from netstack.serving.wrapped_stream import WrappedStream

GREETING = 0x16
CHECK_S = 30.0
PORTION = 16_384
NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME
REFUSES = ("ALERT_UNKNOWN_CA", "ALERT_BAD_CERTIFICATE", "ALERT_CERTIFICATE_")  # alerts of a peer, RFC 8446, 6.2
_log = logging.getLogger("netstack")


class TlsMode(StrEnum):
    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(StrEnum):
    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


_VERIFY = {ClientAuth.NONE: "CERT_NONE", ClientAuth.OPTIONAL: "CERT_OPTIONAL", ClientAuth.REQUIRE: "CERT_REQUIRED"}


class TlsConfig(NamedTuple):
    """`trust` is the CA file for client certificates; without it none can be asked for.

    `key_password` is the file that holds the password of an encrypted key.
    `trusting_self`: programs of this machine need no certificate, so that the box can always ask itself.
    """

    cert: Path
    key: Path
    mode: TlsMode = TlsMode.PERMISSIVE
    key_password: Path | None = None
    client_auth: ClientAuth = ClientAuth.NONE
    trust: Path | None = None
    handshake_s: float = 5.0
    trusting_self: bool = False

    @property
    def files(self) -> tuple[Path | None, ...]:
        """All files that are read."""
        return self.cert, self.key, self.key_password, self.trust


class TlsUnusable(Exception):
    """Certificate, key or CA cannot be used; the text names the file and the cause."""


class TlsStatistics(NamedTuple):
    mode: str
    not_after_ms: int  # when the certificate in force ends
    reloads: int
    failure: str  # why the files on disk are not in force, or empty


class Portions(WrappedStream):
    """A stream that receives little at a time: OpenSSL holds what it has not decrypted, for each of its peers."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Return what came, 16 KiB at most."""
        return await self._stream.receive_some(min(max_bytes or PORTION, PORTION))


class TlsDoor:
    """The `tls` of serve_remoting. Raises TlsUnusable when the files cannot be used at start."""

    def __init__(self, config: TlsConfig, *, clock_trusted: Callable[[], bool] = lambda: True) -> None:
        self._config, self._clock_trusted = config, clock_trusted
        self._judged = clock_trusted()
        self._context, self._seen, self._not_after_ms = _load(config, self._judged)
        self._reloads, self._failure = 0, ""

    async def secure(self, stream: trio.SocketStream) -> trio.abc.Stream:
        """Return the stream to read frames from, after the handshake. Raises ProtocolError, BrokenResourceError."""
        mode = self._config.mode
        try:
            first = await stream.socket.recv(1, socket.MSG_PEEK)
            context = self._context.itself if self._from_here(stream) else self._context.others
        except OSError as exc:
            raise trio.BrokenResourceError from exc
        if first[:1] != bytes([GREETING]):
            if first and mode is TlsMode.ENFORCING:
                raise ProtocolError("plain text, but tls.mode is enforcing")
            return stream
        if mode is TlsMode.DISABLED:
            raise ProtocolError("a TLS greeting, but tls.mode is disabled")
        secured = trio.SSLStream(Portions(stream), context, server_side=True, https_compatible=True)
        try:
            with trio.move_on_after(self._config.handshake_s):
                await secured.do_handshake()
                return secured
        finally:
            # What it does once holds it (trio 0.35): 50 KiB of OpenSSL's would wait for the collector.
            once: Any = getattr(secured, "_handshook", None)
            if hasattr(once, "_afn"):
                once._afn = trio.lowlevel.checkpoint
        raise ProtocolError(f"TLS handshake incomplete after {self._config.handshake_s:g} s")

    def _from_here(self, stream: trio.SocketStream) -> bool:
        """Tell whether a program of this machine connects. Raises OSError: it has reset the connection."""
        if not self._config.trusting_self:
            return False
        remote, local = stream.socket.getpeername()[0], stream.socket.getsockname()[0]
        return remote == local or is_loopback(plain_address(remote))

    async def run(self) -> None:
        """Take up changed files until cancelled."""
        while True:
            await trio.sleep(CHECK_S)
            await self.check()

    async def check(self) -> bool:
        """Look at the files once; True when new ones have come into force."""
        seen, judged = await trio.to_thread.run_sync(stamps_of, self._config.files), self._clock_trusted()
        if (seen, judged) == (self._seen, self._judged):
            return False
        self._seen, self._judged = seen, judged  # also when they are bad: said once, tried again when they change again
        try:
            self._context, self._seen, self._not_after_ms = await trio.to_thread.run_sync(_load, self._config, judged)
        except TlsUnusable as exc:
            self._failure = str(exc)
            _log.error(
                'event=tls_files_unusable reason="%s" next_step="fix the files; the old certificate stays in use"',
                exc,
            )
            return False
        self._failure, self._reloads = "", self._reloads + 1
        _log.info("event=tls_files_loaded not_after_ms=%d", self._not_after_ms)
        return True

    def statistics(self) -> TlsStatistics:
        return TlsStatistics(self._config.mode.value, self._not_after_ms, self._reloads, self._failure)


def handshake_failure(exc: BaseException) -> str:
    """Return why a handshake failed, for whoever looks after the certificate; empty where nothing is known."""
    reason = str(getattr(exc, "reason", None) or "")
    if isinstance(exc, ssl.SSLEOFError) or reason == "UNEXPECTED_EOF_WHILE_READING":
        return "the peer ended the TLS handshake: perhaps it does not accept this box's certificate"
    if any(word in reason for word in REFUSES):
        alert = reason.partition("ALERT_")[2].replace("_", " ").lower()
        return f"the peer does not accept this box's certificate: {alert}"
    return str(exc)


CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # of TLS 1.2: no CBC; Java 8 and later have them


def client_context(
    *, trust: Path | None = None, cert: Path | None = None, key: Path | None = None, key_password: str | None = None
) -> ssl.SSLContext:
    """Return a context for open_channel. Without `trust` any server is believed, as by RocketMQ's clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = trust is not None
    context.verify_mode = ssl.CERT_NONE if trust is None else ssl.CERT_REQUIRED
    if trust is not None:
        context.load_verify_locations(trust)
    if cert is not None:
        context.load_cert_chain(cert, key, key_password)
    return context


Stamps = tuple[tuple[int, int, int] | None, ...]


def stamps_of(paths: Iterable[Path | None]) -> Stamps:
    """Return what changes when one of the files is replaced or rewritten."""
    found: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            status = path.stat() if path else None
        except OSError:
            status = None
        found.append((status.st_ino, status.st_size, status.st_mtime_ns) if status else None)
    return tuple(found)


class _Contexts(NamedTuple):
    """For connections from other machines, and for those from this one."""

    others: ssl.SSLContext
    itself: ssl.SSLContext


def _load(config: TlsConfig, judge_dates: bool) -> tuple[_Contexts, Stamps, int]:
    """Return contexts for new connections, the stamps from before they were read, and when the certificate ends."""
    seen = stamps_of(config.files)
    context, itself = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for each in (context, itself):
        each.minimum_version = ssl.TLSVersion.TLSv1_2
        each.set_ciphers(CIPHERS)
        each.set_alpn_protocols(["h2"])  # gRPC clients insist; those of remoting offer nothing
    path: Path | None = config.cert
    try:
        not_after = not_after_ms(config.cert.read_text())
        path = config.key_password
        password = path.read_text().rstrip("\r\n") if path else ""
        path = config.key
        config.key.read_bytes()
        for each in (context, itself):
            each.load_cert_chain(config.cert, config.key, password)
        path = config.trust
        if config.client_auth is not ClientAuth.NONE:
            if path is None:
                raise TlsUnusable(f"tls.client_auth is {config.client_auth.value}, but tls.trust names no CA file")
            context.load_verify_locations(path)
            context.verify_mode = ssl.VerifyMode[_VERIFY[config.client_auth]]
            if not judge_dates:
                context.verify_flags |= NO_CHECK_TIME
    except (OSError, ValueError) as exc:  # ssl.SSLError is an OSError
        raise TlsUnusable(f"{path}: {getattr(exc, 'reason', None) or getattr(exc, 'strerror', None) or exc}") from exc
    return _Contexts(context, itself), seen, not_after


def not_after_ms(pem: str) -> int:
    """Return when the first certificate of a PEM text ends, in epoch milliseconds. Raises ValueError.

    Certificate ::= SEQ { tbs SEQ { [0] version, serial, algorithm, issuer, validity SEQ { from, until } … } … }
    Source: RFC 5280, 4.1.
    """
    begin, end = pem.find(ssl.PEM_HEADER), pem.find(ssl.PEM_FOOTER)
    if begin < 0 or end < begin:
        raise ValueError("holds no certificate in PEM form")
    der = ssl.PEM_cert_to_DER_cert(pem[begin : end + len(ssl.PEM_FOOTER)])
    at = _inside(der, _inside(der, 0))
    if der[at] == 0xA0:  # the version, absent in version 1
        at = _after(der, at)
    for _ in ("serial", "algorithm", "issuer"):
        at = _after(der, at)
    until = _after(der, _inside(der, at))
    text = der[_inside(der, until) : _after(der, until)].decode("ascii")
    from datetime import UTC, datetime  # only a box with a certificate needs it

    when = datetime.strptime(text, "%y%m%d%H%M%SZ" if der[until] == 0x17 else "%Y%m%d%H%M%SZ")
    return int(when.replace(tzinfo=UTC).timestamp() * 1000)


def _inside(der: bytes, at: int) -> int:
    """Return where the content of the element at `at` begins."""
    if at + 2 > len(der):
        raise ValueError("certificate ends inside an element")
    return at + 2 + (der[at + 1] & 0x7F if der[at + 1] & 0x80 else 0)


def _after(der: bytes, at: int) -> int:
    """Return where the next element begins."""
    inside = _inside(der, at)
    size = der[at + 1]
    if size & 0x80:
        size = int.from_bytes(der[at + 2 : inside], "big")
    if inside + size > len(der):
        raise ValueError("certificate ends inside an element")
    return inside + size
