"""Asking for metrics at the box's socket: a good answer, another status, an answer that is cut, silence."""

import socket
import threading
from pathlib import Path

import pytest

from appliance.admin import short_path
from appliance.metrics.scrape import QUESTION, scrape


def answering(path: Path, *parts: bytes, end: bool = True) -> list[bytes]:
    """Answer one connection in these parts; return what was asked."""
    asked: list[bytes] = []
    server = socket.socket(socket.AF_UNIX)
    with short_path(path) as name:
        server.bind(name)
    server.listen(1)

    def serve() -> None:
        stream, _ = server.accept()
        asked.append(stream.recv(65536))
        for part in parts:
            stream.sendall(part)
        if end:
            stream.close()
        else:
            stream.recv(1)
            stream.close()
        server.close()

    threading.Thread(target=serve, daemon=True).start()
    return asked


@pytest.mark.parametrize(
    ("parts", "good", "text"),
    [
        ((b"HTTP/1.1 200 OK\r\nA: b\r\n", b"\r\nx 1\n", b"y 2\n"), True, "x 1\ny 2\n"),
        ((b"HTTP/1.1 403 No\r\n\r\nno token",), False, "no token"),
        ((b"HTTP/1.1 200 OK\r\n",), True, ""),
        ((b"",), False, ""),
        ((b"HTTP/1.1 200 OK\r\n\r\n\xff",), True, "\ufffd"),
    ],
)
def test_the_answer_is_its_status_and_its_body(parts: tuple[bytes, ...], good: bool, text: str, tmp_path: Path) -> None:
    asked = answering(tmp_path / "m.sock", *parts)
    assert scrape(tmp_path / "m.sock", 5) == (good, text)
    assert asked == [QUESTION]


def test_a_box_that_is_not_there_or_rests_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        scrape(tmp_path / "none.sock", 0.1)
    answering(tmp_path / "m.sock", b"HTTP/1.1 200 OK\r\n", end=False)
    with pytest.raises(TimeoutError):
        scrape(tmp_path / "m.sock", 0.05)
