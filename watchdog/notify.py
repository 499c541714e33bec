"""Datagrams to systemd: ready, status, alive, stopping.

Outside systemd (no $NOTIFY_SOCKET) nothing is sent; a failed send is counted, never raised. Source: sd_notify(3).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

LONGEST_STATUS = 120  # bytes, so that `systemctl status` shows it on one line
LONGEST_MESSAGE = 4096


class Notifier:
    """One service manager to talk to; `watchdog_s` is 0 when nobody waits for signs of life."""

    def __init__(self, address: str | None, *, watchdog_s: float = 0) -> None:
        self.address, self.watchdog_s = address, watchdog_s
        self.sent = self.failed = 0

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ, *, pid: int | None = None) -> Notifier:
        """Read NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID; the watchdog counts only when it is this process's."""
        ours = environ.get("WATCHDOG_PID") in (None, "", str(os.getpid() if pid is None else pid))
        usec = environ.get("WATCHDOG_USEC", "")
        return cls(
            environ.get("NOTIFY_SOCKET") or None,
            watchdog_s=int(usec) / 1e6 if ours and usec.isdecimal() else 0,
        )

    def ready(self) -> None:
        self.send("READY=1")

    def alive(self) -> None:
        self.send("WATCHDOG=1")

    def trigger(self) -> None:
        """Ask for SIGABRT at once: waiting cannot help any more."""
        self.send("WATCHDOG=trigger")

    def stopping(self) -> None:
        self.send("STOPPING=1")

    def extend(self, seconds: float) -> None:
        """Move the start or stop limit to `seconds` from now."""
        self.send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def status(self, text: str) -> None:
        """Show `text` in `systemctl status`, cut to 120 bytes at a character's edge."""
        line = text.replace("\n", " ").encode()[:LONGEST_STATUS].decode(errors="ignore")
        self.send(f"STATUS={line}")

    def send(self, *lines: str) -> None:
        """Send one datagram of KEY=value lines."""
        if not self.address:
            return
        name = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        message = "".join(f"{line}\n" for line in lines).encode()[:LONGEST_MESSAGE]
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as out:
                out.connect(name)
                out.send(message)
        except OSError:
            self.failed += 1
        else:
            self.sent += 1
