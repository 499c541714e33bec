"""Child processes of the demonstration: started, followed line by line, ended with the nursery that holds them."""

import errno
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import trio

STOP_S = 10


class StartFailed(Exception):
    """A child did not get ready or ended; the text has its name, what it said last, and where its log lies."""


class Child:
    """One process. Its standard output is read line by line, its standard error goes to a log file."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        self.name, self.command, self.log = name, command, log
        self._process: trio.Process | None = None
        self._said, self._heard = trio.open_memory_channel[str](1000)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled, then end it with SIGTERM; killed when that takes longer than STOP_S."""
        with self.log.open("wb") as log:
            environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
            self._process = await trio.lowlevel.open_process(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,  # a Ctrl-C is ours to pass on, in order
            )
            try:
                task_status.started()
                await self._read()
            finally:
                with trio.CancelScope(shield=True):
                    await self._end()

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        rest = b""
        async with self._said:
            async for chunk in self._process.stdout:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    await self._said.send(line.decode(errors="replace"))

    async def _end(self) -> None:
        assert self._process is not None
        self._process.terminate()
        with trio.move_on_after(STOP_S):
            await self._process.wait()
            return
        self._process.kill()
        await self._process.wait()

    async def lines(self) -> AsyncIterator[str]:
        """What it says from now on. Raises StartFailed when it ends by itself."""
        async for line in self._heard:
            yield line
        raise StartFailed(self._obituary("ended"))

    async def watch(self) -> None:
        """Let it talk, heard by nobody. Raises StartFailed when it ends by itself."""
        async for _ in self.lines():
            pass

    async def wait_line(self, beginning: str, seconds: float) -> str:
        """Return the first line with this beginning. Raises StartFailed when it does not come."""
        with trio.move_on_after(seconds):
            async for line in self.lines():
                if line.startswith(beginning):
                    return line
        raise StartFailed(self._obituary(f"was not ready within {seconds:g} s"))

    async def say(self, line: str) -> None:
        """Write one line to its standard input."""
        assert self._process is not None
        assert self._process.stdin is not None
        await self._process.stdin.send_all(line.encode() + b"\n")

    def _obituary(self, what: str) -> str:
        tail = self.log.read_text(errors="replace").splitlines()[-5:]
        return "\n".join([f"{self.name} {what}; the end of {self.log}:", *(f"  {line}" for line in tail)])


class Stopped(Exception):
    """Somebody asked for an end."""


async def stop_by_signal() -> None:
    """Raise Stopped on Ctrl-C, SIGTERM or a closed terminal: no child outlives us. What nohup ignores stays ignored."""
    asked = [s for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) is not signal.SIG_IGN]
    with trio.open_signal_receiver(*asked) as signals:
        async for _ in signals:
            raise Stopped


def taken(port: int, option: str) -> str | None:
    """Return one sentence when somebody listens on the port already, with the process where it can be seen."""
    if not 0 < port < 65536:
        return f"{option} {port}: a port is a number from 1 to 65535"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return f"Port {port} cannot be used: {error.strerror}; choose another: make run ARGS='{option} N'"
        else:
            return None
    stop = f"stop it or choose another port: make run ARGS='{option} {port + 1}'"
    return f"Port {port} is taken{_owner(port)}; {stop}"


def _owner(port: int) -> str:
    try:
        listening = [
            c for c in psutil.net_connections("tcp") if c.status == "LISTEN" and c.laddr.port == port and c.pid
        ]
        process = psutil.Process(listening[0].pid)
        return f" by process {process.pid} ({' '.join(process.cmdline())[:60]})"
    except (psutil.Error, OSError, IndexError):
        return ""
