"""Lines to talk over: serial ports, ptys, sockets. Each is bytes out, bytes in, and an end.

pyserial sets the line up, trio waits on the descriptor: no thread. Readable with nothing to read: the cable is out.
"""

from __future__ import annotations

import errno
import os
import socket
import termios
import tty
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import serial
import trio
from serial.tools import list_ports

from provisioning.errors import LinkLost, ProvisioningError

KNOWN_ADAPTERS = {
    (0x0403, 0x6001): "FTDI FT232R",
    (0x0403, 0x6015): "FTDI FT-X",
    (0x10C4, 0xEA60): "Silicon Labs CP210x",
    (0x1A86, 0x7523): "WCH CH340",
    (0x1A86, 0x55D4): "WCH CH9102",
    (0x067B, 0x2303): "Prolific PL2303",
    (0x0525, 0xA4A7): "Linux USB gadget",
}
READ_BYTES = 65536
LINE_ERRORS = (OSError, serial.SerialException, trio.ClosedResourceError, termios.error)


class Line(Protocol):
    """One open line. `send` and `receive` raise LinkLost when it is gone."""

    name: str
    baud: int

    async def send(self, data: bytes) -> None: ...
    async def receive(self) -> bytes: ...
    async def set_baud(self, baud: int) -> None: ...
    async def aclose(self) -> None: ...


class DescriptorLine:
    """A line over a file descriptor: a pty's end, or what pyserial has opened."""

    def __init__(
        self, handle: int, name: str, *, baud: int, port: serial.Serial | None = None, held: int | None = None
    ) -> None:
        self.name, self.baud = name, baud
        self._handle, self._port, self._held = handle, port, held
        self._closed = False
        os.set_blocking(handle, False)

    async def send(self, data: bytes) -> None:
        """Write all of it, however slow the line."""
        rest = memoryview(data)
        while rest:
            self._check()
            try:
                rest = rest[os.write(self._handle, rest) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._handle)
            except OSError as exc:
                raise LinkLost(f"{self.name}: {exc.strerror}") from exc
        await trio.lowlevel.checkpoint()

    async def receive(self) -> bytes:
        """Return what has arrived, at least one byte."""
        while True:
            self._check()
            await trio.lowlevel.wait_readable(self._handle)
            self._check()
            try:
                data = os.read(self._handle, READ_BYTES)
            except BlockingIOError:
                continue
            except OSError as exc:  # EIO: the other end of a pty is closed
                raise LinkLost(f"{self.name}: {exc.strerror}") from exc
            if not data:
                raise LinkLost(f"{self.name}: unplugged")
            return data

    async def set_baud(self, baud: int) -> None:
        """Switch the rate after everything written has left."""
        await trio.lowlevel.checkpoint()
        self.baud = baud
        if self._port is not None:
            try:
                self._port.baudrate = baud
            except LINE_ERRORS as exc:
                raise LinkLost(f"{self.name}: {exc}") from exc

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            trio.lowlevel.notify_closing(self._handle)
            if self._port is not None:
                self._port.close()
            else:
                os.close(self._handle)
            if self._held is not None:
                os.close(self._held)
        await trio.lowlevel.checkpoint()

    def _check(self) -> None:
        if self._closed:
            raise LinkLost(f"{self.name}: closed")


class StreamLine:
    """A line over TCP (`socket://host:port`): a terminal server, an emulator, a test."""

    def __init__(self, stream: trio.abc.Stream, name: str, *, baud: int = 4_000_000) -> None:
        self.name, self.baud, self._stream = name, baud, stream

    async def send(self, data: bytes) -> None:
        try:
            await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            raise LinkLost(f"{self.name}: connection lost") from exc

    async def receive(self) -> bytes:
        try:
            data = await self._stream.receive_some(READ_BYTES)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            raise LinkLost(f"{self.name}: connection lost") from exc
        if not data:
            raise LinkLost(f"{self.name}: closed by the other side")
        return bytes(data)

    async def set_baud(self, baud: int) -> None:
        self.baud = baud
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def open_line(name: str, *, baud: int = 115200) -> Line:
    """Open a serial device or `socket://host:port`. Raises ProvisioningError E101 or E103."""
    if name.startswith("socket://"):
        host, _, port = name.removeprefix("socket://").rpartition(":")
        if not port.isdecimal() or not host:
            raise ProvisioningError("E101", f"{name} is not a port: write socket://HOST:PORT", port=name)
        try:
            return StreamLine(await trio.open_tcp_stream(host, int(port)), name)
        except (OSError, ValueError) as exc:
            raise ProvisioningError("E101", f"nothing listens at {name}: {exc}", port=name) from exc
    await trio.lowlevel.checkpoint()
    return open_serial(name, baud)


def open_serial(name: str, baud: int) -> DescriptorLine:
    """Open a device without toggling DTR or RTS, for this program alone: 8N1, raw, no flow control."""
    port = serial.Serial(None, baudrate=baud, timeout=0, write_timeout=0, exclusive=True)
    port.port = name
    try:
        port.dtr = port.rts = False
        port.open()
    except LINE_ERRORS as exc:
        code = getattr(exc, "errno", None)
        if code in (errno.EBUSY, errno.EAGAIN, errno.EWOULDBLOCK) or "lock" in str(exc).lower():
            user = ", ".join(holders(name)) or "another program"
            raise ProvisioningError(
                "E103", f"{name} is in use by {user}: close it, or choose --port", port=name
            ) from exc
        if code == errno.EACCES:
            text = f"no permission to open {name}: join the group dialout, or use sudo"
            raise ProvisioningError("E101", text, port=name) from exc
        raise ProvisioningError("E101", _cannot_open(name, exc), port=name) from exc
    return DescriptorLine(port.fileno(), name, baud=baud, port=port)


def _cannot_open(name: str, error: BaseException) -> str:
    """Return why a device cannot be opened, and what there is instead."""
    code = getattr(error, "errno", None)
    if isinstance(error.__context__, termios.error):
        code = error.__context__.args[0]
    if code == errno.ENOENT:
        there = ", ".join(one.text for one in candidates()) or "no USB serial adapter: is it plugged in?"
        return f"there is no {name}; there is {there}"
    if code == errno.ENOTTY:
        return f"{name} is not a serial port"
    return f"{name} cannot be opened: {os.strerror(code) if code else error}"


def pty_pair() -> tuple[DescriptorLine, str]:
    """Return the box's end of a fresh pseudo terminal and the name the bench opens."""
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    name = os.ttyname(theirs)
    # the other end stays open here: without any opener a pty reads EIO, and a bench may come and go
    return DescriptorLine(ours, name, baud=115200, held=theirs), name


async def serve_socket(host: str = "127.0.0.1", port: int = 0) -> tuple[trio.SocketListener, str]:
    """Listen for benches over TCP, return the listener and its `socket://` name."""
    (listener,) = await trio.open_tcp_listeners(port, host=host)
    if listener.socket.family == socket.AF_INET:
        host, port = listener.socket.getsockname()
    return listener, f"socket://{host}:{port}"


@dataclass(frozen=True, slots=True)
class PortCandidate:
    """A port that may lead to a box."""

    name: str
    text: str
    known: bool


def candidates() -> list[PortCandidate]:
    """Return the USB serial ports of this machine, known adapters first."""
    found = []
    for port in list_ports.comports():
        adapter = KNOWN_ADAPTERS.get((port.vid or 0, port.pid or 0))
        if adapter or "ttyUSB" in port.device or "ttyACM" in port.device:
            detail = ", ".join(filter(None, (adapter or port.description, port.serial_number)))
            found.append(PortCandidate(port.device, f"{port.device} ({detail})", adapter is not None))
    return sorted(found, key=lambda one: (not one.known, one.name))


def holders(name: str) -> Iterator[str]:
    """Name the processes that have a device open, as far as /proc tells."""
    real = os.path.realpath(name)
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        try:
            if any(os.path.realpath(handle) == real for handle in (process / "fd").iterdir()):
                yield f"{(process / 'comm').read_text().strip()} (process {process.name})"
        except OSError:
            continue
