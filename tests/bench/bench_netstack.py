"""Frames per second through `serve_remoting` on one core: `python tests/bench/bench_netstack.py [seconds]`.

The server has a process of its own. `held` answers as a broker does, after a simulated sync of 1 ms; the client keeps
`window` requests of 1 KiB in flight on one connection, as one Java process with that many threads. The numbers
include no store. No seed: nothing is random.
"""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable

import trio

from netstack.serving.connection import Handle
from netstack.serving.peer import Peer
from netstack.serving.server import open_listeners, serve_remoting
from netstack.wire.command import RemotingCommand, encode_command
from netstack.wire.conversation import Answer, DeferredReply, Reply
from netstack.wire.message_headers import SendMessageHeader, SendMessageReply
from tests.bench.harness import processor_s
from tests.netstack import samples

SEND_EXT = samples.SEND_EXT | {"i": "UNIQ_KEY\x017F00000100002A9F0000000000000000\x02WAIT\x01true\x02TAGS\x01TagA"}


def echo(command: RemotingCommand, peer: Peer) -> Answer:
    return Reply(command.reply(0, None, command.ext))


class Syncing:
    """Wakes what waits every millisecond, as a log that is synced."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[str | None], None]] = []

    def handle(self, command: RemotingCommand, peer: Peer) -> Answer:
        send = SendMessageHeader.from_ext(command.ext)
        reply = SendMessageReply("7F00000100002A9F0000000000000000", send.queue_id, 42)
        return DeferredReply(self._wait, 0, command.reply(0, None, reply), lambda why: command.reply(14, why))

    def _wait(self, _: int, wake: Callable[[str | None], None]) -> None:
        self._waiting.append(wake)

    async def run(self) -> None:
        while True:
            await trio.sleep(0.001)
            woken, self._waiting = self._waiting, []
            for wake in woken:
                wake(None)


async def serve(kind: str) -> None:
    syncing = Syncing()
    handle: Handle = syncing.handle if kind == "held" else echo
    listeners = await open_listeners("127.0.0.1", 0)
    print(listeners[0].socket.getsockname()[1], flush=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(syncing.run)
        nursery.start_soon(serve_remoting, listeners, handle)


async def load(port: int, window: int, seconds: float) -> float:
    """Return answers per second; frames are counted by their lengths only, to keep the client cheap."""
    frame = encode_command(RemotingCommand(310, 9, ext=SEND_EXT, body=bytes(1024)))
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    await stream.send_all(frame * window)
    answered, rest, start = 0, b"", time.perf_counter()
    while (now := time.perf_counter()) - start < seconds:
        rest += await stream.receive_some(262144)
        at, done = 0, 0
        while len(rest) - at >= 4:
            end = at + 4 + int.from_bytes(rest[at : at + 4], "big")
            if end > len(rest):
                break
            at, done = end, done + 1
        rest = rest[at:]
        answered += done
        if done:
            await stream.send_all(frame * done)
    return answered / (now - start)


def measure(kind: str, window: int, seconds: float) -> None:
    command = [sys.executable, __file__, "serve", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        port = int(server.stdout.readline())
        before = processor_s(server.pid)
        rate = trio.run(load, port, window, seconds)
        used = (processor_s(server.pid) - before) / seconds
        server.kill()
    print(f"{kind:6} window {window:4}: {rate:8.0f} frames/s, {used / rate * 1e6:6.1f} µs of CPU per frame")


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    print(f"{platform.machine()}, {os.cpu_count()} cpus, python {platform.python_version()}, trio {trio.__version__}")
    for kind in ("reply", "held"):
        for window in (1, 64, 256):
            measure(kind, window, seconds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        trio.run(serve, sys.argv[2])
    else:
        main()
