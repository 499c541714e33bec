"""Garbage on every port: the connection ends or gets a clear code, one line is logged, everybody else is served on."""

import itertools
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.box import Box, Child, Gateway, until
from tests.interop.wire import answered_code, command, frame, what_comes_back

pytestmark = pytest.mark.slow

HEARTBEAT, ROUTE = 34, 105
PORTS = ("namesrv", "broker", "gateway")
GROWTH_MB = 16  # what an allocator may keep after hundreds of connections


NOISE = random.Random(20260101).randbytes(4096)
BAD = {
    "random bytes": NOISE,
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: box\r\n\r\n",
    "a TLS hello cut short": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + NOISE[:100],
    "a length of 2 GiB": b"\x7f\xff\xff\xff\x00\x00\x00\x10" + NOISE[:64],
    "a negative length": b"\xff\xff\xff\xf0\x00\x00\x00\x10" + NOISE[:64],
    "a length of zero": b"\x00\x00\x00\x00" * 16,
    "a header longer than its frame": frame(command(ROUTE), header_length=4000),
    "an unknown kind of header": frame(command(ROUTE), kind=7),
    "a header that is no JSON": frame(b"{nope" + NOISE[:40]),
    "a binary header that lies": frame(struct.pack(">hbhiiii", 105, 0, 409, 1, 0, 1 << 30, 1 << 30), kind=1),
    "nested JSON": frame(b'{"code":105,"extFields":' + b"[" * 5000 + b"]" * 5000 + b"}"),
}


@pytest.fixture(scope="module")
def running(module_path: Path) -> Iterator[dict[str, tuple[Child, int]]]:
    """A box and a gateway, with the process and the port behind each name of PORTS."""
    gateway, box = Gateway(module_path / "landing"), Box(module_path / "data")
    gateway.start()
    box.start()
    yield {
        "namesrv": (box, box.namesrv_port),
        "broker": (box, box.broker_port),
        "gateway": (gateway, gateway.port),
    }
    assert [gateway.stop(), box.stop()] == [0, 0]


_sources = itertools.count(2)


def connect(port: int, source: str = "127.0.0.1") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), 5, (source, 0))
    made.settimeout(20)
    return made


def thrown(connection: socket.socket, sent: bytes) -> bytes:
    """Send, say that no more follows, and return what comes back; the other side may close in the middle of it."""
    try:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    return what_comes_back(connection)


def still_serves(child: Child, port: int) -> None:
    """A proper request on a fresh connection is answered; a gateway takes the connection and waits for a HELLO."""
    if isinstance(child, Box):
        with connect(port) as good:
            good.sendall(frame(command(ROUTE if port == child.namesrv_port else HEARTBEAT, topic="TBW102")))
            assert what_comes_back(good) != b""
    else:  # its gate turns away what comes too fast, for a second
        until(lambda: waits_for_more(port), seconds=60, what="the gateway admits nobody")
    assert child.running


def waits_for_more(port: int) -> bool:
    with connect(port) as good:
        good.settimeout(0.2)
        try:
            good.recv(1)
        except TimeoutError:
            return True
    return False


@pytest.mark.parametrize("name", PORTS)
@pytest.mark.parametrize("kind", BAD)
def test_bad_input_ends_its_connection_or_gets_a_code_and_nothing_else(
    running: dict[str, tuple[Child, int]], name: str, kind: str
) -> None:
    child, port = running[name]
    with connect(port) as bystander, connect(port) as bad:
        received = thrown(bad, BAD[kind])
        if kind == "an HTTP request" and isinstance(child, Box):
            assert received.startswith(b"HTTP/1.1 400 ")
        elif received and isinstance(child, Box):
            assert answered_code(received) != 0
        if isinstance(child, Box):
            bystander.sendall(frame(command(ROUTE if name == "namesrv" else HEARTBEAT, topic="TBW102")))
            assert what_comes_back(bystander) != b""
    still_serves(child, port)


@pytest.mark.parametrize("name", PORTS)
def test_a_length_of_two_gib_ends_the_connection_at_once_without_waiting_for_more(
    running: dict[str, tuple[Child, int]], name: str
) -> None:
    child, port = running[name]
    still_serves(child, port)
    source = f"127.0.7.{next(_sources)}"
    with connect(port, source) as bad:
        bad.sendall(BAD["a length of 2 GiB"])
        assert what_comes_back(bad) == b""
    lines = until(lambda: lines_about(child.log, source), seconds=60, what="no line was logged")
    assert len(lines) == 1, lines


@pytest.mark.parametrize("name", PORTS)
def test_half_a_frame_that_never_ends_is_given_up_when_its_sender_goes(
    running: dict[str, tuple[Child, int]], name: str
) -> None:
    child, port = running[name]
    whole = frame(command(ROUTE, topic="TBW102"))
    for cut in (1, 3, 4, 7, 8, len(whole) // 2, len(whole) - 1):
        with connect(port) as half:
            half.sendall(whole[:cut])
    still_serves(child, port)


@pytest.mark.parametrize("name", PORTS)
def test_hundreds_of_bad_connections_leave_no_memory_behind_and_few_lines(
    running: dict[str, tuple[Child, int]], name: str
) -> None:
    child, port = running[name]
    chance = random.Random(7)

    def attack(times: int) -> None:
        for _ in range(times):
            with connect(port) as bad:
                thrown(bad, chance.choice(list(BAD.values())))

    attack(50)
    before, logged = child.resident_mb(), len(lines_about(child.log, "127.0.0.1"))
    attack(400)
    assert child.resident_mb() - before < GROWTH_MB
    assert len(lines_about(child.log, "127.0.0.1")) - logged < 40
    still_serves(child, port)


def lines_about(log: Path, peer: str) -> list[str]:
    return [line for line in log.read_text(errors="replace").splitlines() if peer in line]
