"""Asks the running box for its metrics, at its own socket; for commands, nothing of the answering part is loaded."""

import socket
from pathlib import Path

from appliance.admin import short_path

SOCKET_NAME = "metrics.sock"
QUESTION = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def scrape(path: Path, timeout_s: float) -> tuple[bool, str]:
    """Return whether the box answered with metrics, and the text it answered with. Blocks. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream, short_path(path) as name:
        stream.settimeout(timeout_s)
        stream.connect(name)
        stream.sendall(QUESTION)
        answer = b"".join(iter(lambda: stream.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.startswith(b"HTTP/1.1 200"), body.decode(errors="replace")
