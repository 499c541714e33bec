"""A link's connection in the hands of a thread, which waits in the kernel: megabytes pass without the loop.

OpenSSL, the kernel and CRCs let go of the interpreter's lock; it is taken some ten times for a MiB that is sent.
"""

import socket
import ssl
import time
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

import trio

RECEIVE_BYTES: Final = 256 << 10
LOOK: Final = Struct("@ll").pack(0, 200_000)  # s and µs: how soon a thread hears that its task is cancelled


class ThreadStream:
    """One end of a connection after its handshake. Methods block in a thread of trio.

    They raise OSError (ssl.SSLError among them) when it ends or stands still for `silence_s`, and trio.Cancelled.
    """

    def __init__(
        self,
        connection: socket.socket,
        session: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        *,
        silence_s: float,
    ) -> None:
        self._connection, self._session, self._incoming, self._outgoing = connection, session, incoming, outgoing
        self._silence_s, self._received = silence_s, memoryview(bytearray(RECEIVE_BYTES))
        connection.setblocking(True)  # for the other descriptors of the socket too: no task uses them meanwhile
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            connection.setsockopt(socket.SOL_SOCKET, option, LOOK)

    def __enter__(self) -> "ThreadStream":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(self, *parts: bytes) -> None:
        """Send all parts."""
        for part in parts:
            self._session.write(part)
        with memoryview(self._outgoing.read()) as view:
            at = 0
            while at < len(view):
                at += self._waited(self._connection.send, view[at:])

    def receive_into(self, view: memoryview) -> None:
        """Fill a buffer."""
        at = 0
        while at < len(view):
            try:
                count = int(self._session.read(len(view) - at, view[at:]))  # it fills the buffer
            except ssl.SSLWantReadError:
                self._fill()
                continue
            if not count:
                raise ConnectionError("the other side ended the connection")
            at += count  # at most a record of TLS, 16 KiB

    def _fill(self) -> None:
        count = self._waited(self._connection.recv_into, self._received)
        if not count:
            raise ConnectionError("the other side closed the connection")
        self._incoming.write(self._received[:count])

    def _waited(self, call: Callable[[Any], int], argument: memoryview) -> int:
        until = time.monotonic() + self._silence_s
        while True:
            try:
                return call(argument)
            except BlockingIOError:
                trio.from_thread.check_cancelled()
                if time.monotonic() > until:
                    raise TimeoutError(f"nothing moved for {self._silence_s:g} s") from None
