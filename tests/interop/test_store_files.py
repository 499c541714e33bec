"""A store folder goes from this store to Apache's broker 4.9.7 and back: same messages, numbers, keys and times."""

import json
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from appliance.broker.delay.redelivery import put_patiently
from storage_driver.config import StoreConfig
from storage_driver.record import Message, MessageQueue, StoredMessage, decode_record, encode_host, encode_properties
from storage_driver.store import MessageStore, open_store
from tests.interop import jars
from tests.ports import apache_port

VERSION = "4.9.7"
HOST = encode_host("127.0.0.1", 10911)
SEGMENT = 8 << 20
OPEN = ["java.base/sun.nio.ch", "java.base/java.nio", "java.base/jdk.internal.ref"]
LOGBACK = '<configuration><root level="OFF"/></configuration>'

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def classes() -> str:
    """Return the class path of Apache's broker, fetched once into .cache/."""
    try:
        jars.java()
        return ":".join(map(str, jars.fetch(VERSION, "rocketmq-broker")))
    except jars.Unavailable as error:
        pytest.skip(str(error))


class Broker:
    """Apache's broker on a folder, asked over a socket."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self._socket = socket.create_connection(("127.0.0.1", port), 10)
        self._opaque = 0

    def ask(self, code: int, ext: dict[str, Any], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """Send one request, return header and body of the answer."""
        self._opaque += 1
        fields = {name: str(value) for name, value in ext.items()}
        header = json.dumps(
            {"code": code, "opaque": self._opaque, "flag": 0, "language": "JAVA", "version": 399, "extFields": fields}
        ).encode()
        self._socket.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
        (length,) = struct.unpack(">i", self._exactly(4))
        frame = self._exactly(length)
        head = struct.unpack_from(">i", frame)[0] & 0xFFFFFF
        return json.loads(frame[4 : 4 + head]), frame[4 + head :]

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            assert piece, "the broker closed the connection"
            data += piece
        return data

    def send(self, topic: str, queue_id: int, body: bytes, properties: bytes) -> None:
        """Send a message and wait for SEND_OK."""
        ext = {"producerGroup": "g", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4}
        ext |= {"queueId": queue_id, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "reconsumeTimes": 0}
        header, _ = self.ask(10, ext | {"properties": properties.decode(), "unitMode": "false", "batch": "false"}, body)
        assert header["code"] == 0, header

    def pull_all(self, topic: str, queue_id: int) -> list[StoredMessage]:
        """Read a queue from its first to its last message."""
        at, found = int(self.ask(31, {"topic": topic, "queueId": queue_id})[0]["extFields"]["offset"]), list[Any]()
        while True:
            ext = {"consumerGroup": "reader", "topic": topic, "queueId": queue_id, "queueOffset": at, "maxMsgNums": 32}
            ext |= {"sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0}
            header, body = self.ask(11, ext | {"subscription": "*", "expressionType": "TAG"})
            if header["code"] != 0:
                assert header["code"] in (19, 20), header
                return found
            found += records(body)
            at = int(header["extFields"]["nextBeginOffset"])


def records(data: bytes) -> list[StoredMessage]:
    found, at = [], 0
    while at < len(data):
        found.append(decode_record(data, at))
        at += found[-1].size
    return found


@contextmanager
def apache(classes: str, root: Path, *, kill: bool = False) -> Iterator[Broker]:
    """Run Apache's broker on a store folder; it ends by SIGTERM, or by SIGKILL."""
    home = root.parent / "apache"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    (home / "conf" / "logback_broker.xml").write_text(LOGBACK)
    port = apache_port()
    settings = {
        "brokerName": "apache",
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "storePathRootDir": root,
        "storePathCommitLog": root / "commitlog",
        "flushDiskType": "SYNC_FLUSH",
        "mappedFileSizeCommitLog": SEGMENT,
        "longPollingEnable": "false",
    }
    (home / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [*jars.java_command(), "-Xms256m", "-Xmx512m", *[f"--add-opens={name}=ALL-UNNAMED" for name in OPEN]]
    command += [f"-Duser.home={home}", "-cp", classes, "org.apache.rocketmq.broker.BrokerStartup", "-c", "broker.conf"]
    environment = os.environ | {"ROCKETMQ_HOME": str(home)}
    with (home / "out.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=home, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 240
        while b"boot success" not in (home / "out.log").read_bytes():
            assert process.poll() is None, (home / "out.log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the broker did not start within 240 s"
            time.sleep(0.1)
        yield Broker(process, port)
    finally:
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        process.wait(60)


def message(number: int) -> Message:
    properties = encode_properties(
        {"UNIQ_KEY": f"{number:032X}", "KEYS": f"key-{number} all", "TAGS": f"标签{number % 3}", "CLUSTER": "c"}
    )
    return Message("Interop", number % 4, b"%d " % number + b"\xff\x00" * 400, properties, number, 0, 123, HOST)


def topics(root: Path) -> None:
    """Write the table without which Apache serves no topic."""
    table = {"Interop": {"topicName": "Interop", "perm": 6, "readQueueNums": 4, "writeQueueNums": 4, "order": False}}
    table["Interop"] |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
    (root / "config").mkdir(parents=True, exist_ok=True)
    version = {"counter": 0, "timestamp": 1}
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table, "dataVersion": version}))


def config(root: Path) -> StoreConfig:
    return StoreConfig(root, HOST, segment_bytes=SEGMENT)


async def ours(root: Path, numbers: range) -> None:
    async with open_store(config(root), now_ms=lambda: time.time_ns() // 1_000_000) as store:
        for start in range(numbers.start, numbers.stop, 500):
            placed = [await put_patiently(store, message(i)) for i in range(start, min(start + 500, numbers.stop))]
            await store.wait_committed(placed[-1].end)
        while store.statistics().index_to < store.committed:
            await store.prove()


async def read_ours(store: MessageStore, queue_id: int) -> list[StoredMessage]:
    queue, found = MessageQueue("Interop", queue_id), []
    at = store.min_offset(queue)
    while at < store.max_offset(queue):
        got = await store.read(queue, at, max_count=64, max_bytes=1 << 20)
        found += [m for chunk in got.chunks for m in records(chunk)]
        at = got.next_offset
    return found


def facts(messages: list[StoredMessage]) -> list[tuple[Any, ...]]:
    return [(m.queue_offset, m.log_offset, m.body, m.flag, m.stored_ms, m.property_map) for m in messages]


async def test_apache_serves_what_this_store_wrote_and_the_way_back(classes: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    topics(root)
    count = 12_000  # more than one segment
    await ours(root, range(count))
    async with open_store(config(root), now_ms=lambda: 1 << 41) as store:
        before = {q: await read_ours(store, q) for q in range(4)}
    with apache(classes, root) as broker:
        for queue_id in range(4):
            theirs = broker.pull_all("Interop", queue_id)
            assert facts(theirs) == facts(before[queue_id])
            assert [m.body.split(b" ")[0] for m in theirs] == [b"%d" % i for i in range(queue_id, count, 4)]
        header, body = broker.ask(
            12, {"topic": "Interop", "key": "key-7", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 42}
        )
        assert (header["code"], [m.body.split(b" ")[0] for m in records(body)]) == (0, [b"7"])
        for i in range(count, count + 200):
            m = message(i)
            broker.send(m.topic, m.queue_id, m.body, m.properties)
    async with open_store(config(root), now_ms=lambda: time.time_ns() // 1_000_000) as store:
        for queue_id in range(4):
            after = await read_ours(store, queue_id)
            assert facts(after)[: len(before[queue_id])] == facts(before[queue_id])
            assert [m.body.split(b" ")[0] for m in after] == [b"%d" % i for i in range(queue_id, count + 200, 4)]
        assert store.verdict.quarantined == []
        placed = store.put(message(count + 200))
        assert placed.queue_offset == (count + 200) // 4
        await store.wait_committed(placed.end)


@pytest.mark.parametrize("kill", [True, pytest.param(False, marks=pytest.mark.soak)])
async def test_this_store_serves_what_apache_wrote_also_after_sigkill(classes: str, tmp_path: Path, kill: bool) -> None:
    root = tmp_path / "store"
    topics(root)
    with apache(classes, root, kill=kill) as broker:
        for i in range(2000):
            m = message(i)
            broker.send(m.topic, m.queue_id, m.body, m.properties)
        theirs = {q: broker.pull_all("Interop", q) for q in range(4)}
        first = theirs[0][0].stored_ms
    async with open_store(config(root), now_ms=lambda: time.time_ns() // 1_000_000) as store:
        assert store.verdict.quarantined == []
        for queue_id in range(4):
            assert facts(await read_ours(store, queue_id)) == facts(theirs[queue_id])
        while store.statistics().index_to < store.committed:
            await store.prove()
        found = await store.find_by_key("Interop", "key-1999", 8, 0, 1 << 62)
        assert {decode_record(raw).body.split(b" ")[0] for raw in found} == {b"1999"}
        queue = MessageQueue("Interop", 0)
        assert await store.offset_by_time(queue, first) == 0
        assert await store.offset_by_time(queue, 1 << 42) == 499
    await ours(root, range(2000, 2100))
    with apache(classes, root) as broker:
        bodies = [m.body.split(b" ")[0] for m in broker.pull_all("Interop", 1)]
        assert bodies == [b"%d" % i for i in range(1, 2100, 4)]
