"""What a gRPC call costs a box in processor time, of two commits in turns: the figure that holds on a busy machine.

python tests/bench/bench_grpc_cost.py [--load sends] [--against COMMIT] [--rounds 5]

One raw client on one connection, 64 calls in flight, as a Java client's threads share one. Loads: `sends` of 1 KiB;
`receives` of 32 messages, each acknowledged by a call of its own, the figure is for one message with both. Processor
time comes from /proc.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from hpack import Encoder

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from netstack.grpc.v2 import service_pb2  # noqa: E402
from tests.appliance.grpc.asking import PATH, acking, consumer_settings, message, receiving, sending  # noqa: E402
from tests.bench.bench_cost import checked_out, settle, with_library  # noqa: E402
from tests.interop.wire import make_group, make_topic  # noqa: E402
from tests.ports import free_port  # noqa: E402

WARM_UP, COUNTED, TOGETHER, BATCH = 4_096, 16_384, 64, 32
QUEUES, TOPIC, GROUP = 8, "Cost", "CostGroup"
PREFACE, HEAD, MOST_FRAME = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 9, 16_384
DATA, HEADERS, SETTINGS, WINDOW_UPDATE = 0, 1, 4, 8
WINDOW = (1 << 31) - 1


def frame(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + number.to_bytes(4, "big") + payload


class Connection:
    """One connection: portions of calls go together, their answers are awaited together."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._encoder, self._number, self._rest, self._calls = Encoder(), -1, b"", 0
        first = frame(SETTINGS, 0, 0, b"\0\x04" + WINDOW.to_bytes(4, "big"))
        self._socket.sendall(PREFACE + first + frame(WINDOW_UPDATE, 0, 0, (WINDOW - 65_535).to_bytes(4, "big")))

    def close(self) -> None:
        self._socket.close()

    def begin(self, method: str, raw: bytes, *, end: bool = True) -> bytes:
        """Return the frames of a call."""
        self._number += 2
        self._calls += 1
        head = {":method": "POST", ":scheme": "http", ":path": PATH + method, ":authority": "127.0.0.1:8081"}
        head |= {"te": "trailers", "content-type": "application/grpc", "user-agent": "grpc-java-netty/1.50.0"}
        head |= {"x-mq-client-id": "host@1@0@abc", "x-mq-language": "JAVA", "x-mq-client-version": "5.0.8"}
        head |= {"x-mq-protocol": "v2", "x-mq-request-id": f"{self._calls:032x}"}
        head |= {"grpc-timeout": "9999999u"} if end else {}
        block = self._encoder.encode(list(head.items()), huffman=False)
        message = b"\0" + len(raw).to_bytes(4, "big") + raw
        return frame(HEADERS, 4, self._number, block) + frame(DATA, int(end), self._number, message)

    def calls(self, method: str, requests: list[bytes]) -> list[bytes]:
        """Return the bodies of all answers, those of one call in one piece."""
        first = self._number + 2
        self._socket.sendall(b"".join(self.begin(method, raw) for raw in requests))
        return self._answers(first, len(requests))

    def tell(self, method: str, raw: bytes) -> None:
        """Begin a call that stays open."""
        self._socket.sendall(self.begin(method, raw, end=False))

    def _answers(self, first: int, left: int) -> list[bytes]:
        bodies: dict[int, list[bytes]] = {}
        while left:
            if not (received := self._socket.recv(1 << 20)):
                raise ConnectionError("the box closed the connection")
            data, at = self._rest + received, 0
            while len(data) - at >= HEAD:
                end = at + HEAD + int.from_bytes(data[at : at + 3], "big")
                if end > len(data):
                    break
                kind, flags, number = data[at + 3], data[at + 4], int.from_bytes(data[at + 5 : at + HEAD], "big")
                if kind == DATA and number >= first:
                    bodies.setdefault(number, []).append(data[at + HEAD : end])
                if kind in (3, 7):
                    print("told", kind, number, data[at:end], file=sys.stderr)
                left -= kind == HEADERS and bool(flags & 1) and number >= first
                at = end
            self._rest = data[at:]
        return [b"".join(parts) for _, parts in sorted(bodies.items())]


def messages_in(body: bytes) -> Iterator[bytes]:
    """Give the messages of a call's answer."""
    at = 0
    while at < len(body):
        size = int.from_bytes(body[at + 1 : at + 5], "big")
        yield body[at + 5 : at + 5 + size]
        at += 5 + size


def send(connection: Connection, first: int, count: int) -> None:
    for at in range(first, first + count, TOGETHER):
        raws = [
            sending(message(TOPIC, bytes(1024), f"{number:034X}", tag="load", queue_id=0)).SerializeToString()
            for number in range(at, at + TOGETHER)
        ]
        for body in connection.calls("SendMessage", raws):
            assert service_pb2.SendMessageResponse.FromString(body[5:]).status.code == 20_000


def receive(connection: Connection, count: int) -> None:
    """Receive and acknowledge so many messages."""
    request = receiving(GROUP, TOPIC, batch=BATCH, invisible_s=600).SerializeToString()
    while count > 0:
        acks: list[bytes] = []
        for body in connection.calls("ReceiveMessage", [request, request]):
            parts = [service_pb2.ReceiveMessageResponse.FromString(raw) for raw in messages_in(body)]
            found = [part.message for part in parts if part.HasField("message")]
            acks += [acking(GROUP, TOPIC, each).SerializeToString() for each in found]
        if not acks:
            raise RuntimeError(f"{count} messages are missing")
        for body in connection.calls("AckMessage", acks):
            assert service_pb2.AckMessageResponse.FromString(body[5:]).status.code == 20_000
        count -= len(acks)


@contextmanager
def running(tree: Path) -> Iterator[tuple[psutil.Process, int]]:
    """Run a box of a tree; yields its process and its gRPC port."""
    broker, port = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="cost-") as folder:
        (Path(folder) / "box.toml").write_text(f"[grpc]\nport = {port}\n")
        command = ["-m", "appliance", "serve", "--data", f"{folder}/data", "--config", f"{folder}/box.toml"]
        command += ["--namesrv-port", str(free_port()), "--broker-port", str(broker)]
        environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONUNBUFFERED": "1"}
        box = subprocess.Popen(
            [sys.executable, *command],
            cwd=tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert box.stdout is not None
            if not any(line.startswith("ready") for line in box.stdout):
                raise SystemExit(f"the box of {tree} did not start")
            make_topic(f"127.0.0.1:{broker}", TOPIC, QUEUES)
            make_group(f"127.0.0.1:{broker}", GROUP)
            yield psutil.Process(box.pid), port
        finally:
            box.terminate()
            box.wait()


def cost_us(tree: Path, load: str) -> float:
    """Return the microseconds of processor time that the box of a tree takes for one message of a load."""
    with running(tree) as (process, port):
        connection = Connection(port)
        if load == "sends":
            send(connection, 0, WARM_UP)
        else:
            connection.tell("Telemetry", telemetry())
            send(connection, 0, WARM_UP + COUNTED)
            receive(connection, WARM_UP)
        settle(process)
        before = process.cpu_times()
        if load == "sends":
            send(connection, WARM_UP, COUNTED)
        else:
            receive(connection, COUNTED)
        after = process.cpu_times()
        connection.close()
    return float(after.user + after.system - before.user - before.system) / COUNTED * 1e6


def telemetry() -> bytes:
    settings = consumer_settings(GROUP, TOPIC)
    return bytes(service_pb2.TelemetryCommand(settings=settings).SerializeToString())


def with_messages(tree: Path) -> Path:
    """Give another commit's tree the generated messages of this one."""
    for each in (ROOT / "netstack/grpc/v2").glob("*_pb2.py*"):
        shutil.copy(each, tree / "netstack/grpc/v2")
    return tree


def main() -> int:
    parser = argparse.ArgumentParser(description="Processor time of a gRPC call, of two commits in turns.")
    parser.add_argument("--load", choices=("sends", "receives"), default="sends")
    parser.add_argument("--against", metavar="COMMIT", help="compare with this commit")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    trees = {"this tree": ROOT}
    if given.against:
        trees[given.against] = with_library(with_messages(checked_out(given.against)))
    costs: dict[str, list[float]] = {name: [] for name in trees}
    for _ in range(given.rounds):
        for name, tree in trees.items():
            costs[name].append(cost_us(tree, given.load))
    for name, values in costs.items():
        print(f"{name}: median {statistics.median(values):.1f} us, least {min(values):.1f} us, of {given.rounds}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
