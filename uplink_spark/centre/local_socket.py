"""The gateway's local socket: a socket in the landing zone through which a stick is swept while the gateway runs.

It speaks the frames of the wire. Who may open the socket may write the landing zone, so no certificate is asked for.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import trio

log = logging.getLogger("uplink_spark.gateway")
NAME = "gateway.sock"


@contextmanager
def _address(root: Path, name: str) -> Iterator[str]:
    """A short name of the socket: the address of a local socket holds 107 bytes, the path of a zone may be longer."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)


@asynccontextmanager
async def open_door(root: Path, name: str = NAME) -> AsyncIterator[list[trio.SocketListener]]:
    """Listen in the landing zone, whose lock the caller holds: a socket found there is of a gateway that died.

    A file system without sockets (some shared ones) costs the door and nothing else: no listener.
    """
    plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o177)
    try:
        (root / name).unlink(missing_ok=True)
        with _address(root, name) as address:
            plain.bind(address)
    except OSError as error:
        plain.close()
        log.warning("no local socket for sweeps path=%s error=%s; stop the gateway to sweep", root / name, error)
        yield []
        return
    finally:
        os.umask(old)
    plain.listen(4)
    try:
        yield [trio.SocketListener(trio.socket.from_stdlib_socket(plain))]
    finally:
        plain.close()
        (root / name).unlink(missing_ok=True)


def doors(root: Path) -> list[str]:
    """Return the names of the sockets in a landing zone; one may be of a gateway that died."""
    return sorted(path.name for path in root.glob("gateway*.sock"))


async def knock(root: Path, name: str = NAME) -> trio.SocketStream | None:
    """Connect to a gateway of a landing zone, None where none runs here."""
    plain = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _address(root, name) as address:
            await plain.connect(address)
    except (FileNotFoundError, ConnectionRefusedError):
        plain.close()
        return None
    return trio.SocketStream(plain)
