"""A whole box in this process for tests: real store, real sockets, free ports; and clients that speak raw requests."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from appliance.clock import clock_trusted
from appliance.configuration.config import HostFacts, load_config
from appliance.ports import open_ports
from appliance.serve import serve
from netstack.serving.channel import Channel, open_channel
from netstack.wire import fastjson
from netstack.wire.codes import RequestCode
from netstack.wire.command import RemotingCommand, request
from netstack.wire.message_headers import PullMessageHeader, SendMessageHeader
from storage_driver.record import StoredMessage, decode_record

FACTS = HostFacts(8 << 30, "", "test-box")
BORN_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Box:
    """Where a running box answers."""

    broker_port: int
    namesrv_port: int
    data: Path


@asynccontextmanager
async def running_box(
    data: Path,
    toml: str = "",
    name: str = "box",
    listen: str = "",
    *,
    trusted: Callable[[], bool] = clock_trusted,
    broker_port: int = 0,
) -> AsyncIterator[Box]:
    """Run a box on free ports; leaving stops it as SIGTERM does."""
    ports_toml = f"[listen]\nbroker_port = {broker_port}\nnamesrv_port = 0\n{listen}\n"
    quick = f"{ports_toml}[box]\nname = '{name}'\n[store]\nsegment_mib = 16\n"
    config = load_config(quick + toml, source="test", facts=FACTS)
    ports = await open_ports(config, {})
    async with trio.open_nursery() as nursery:
        up = trio.Event()

        run = partial(serve, config, data, ports, ready=lambda _: up.set(), clock_trusted=trusted)
        nursery.start_soon(run)
        await up.wait()
        yield Box(ports.broker_port, ports.namesrv_port, data)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def connected(box: Box, port: int | None = None, **more: object) -> AsyncIterator[Channel]:
    """Open a connection to the broker, or to another port."""
    async with open_channel("127.0.0.1", port or box.broker_port, **more) as channel:  # type: ignore[arg-type]
        yield channel


def send(
    topic: str, body: bytes = b"hello", properties: str = "", queue_id: int = 0, code: int = 310, **more: object
) -> RemotingCommand:
    """Return a send as a Java producer makes it."""
    header = SendMessageHeader("PG", topic, "TBW102", 4, queue_id, 0, BORN_MS, 0, properties, **more)  # type: ignore[arg-type]
    return request(code, header.to_ext(), body)


def pull(topic: str, queue_offset: int = 0, queue_id: int = 0, group: str = "CG", **more: object) -> RemotingCommand:
    """Return a pull with its subscription inside; `suspend_ms` lets the broker hold it."""
    suspend_ms, asked = int(str(more.pop("suspend_ms", 0))), int(str(more.pop("flags", 0)))
    flags = PullMessageHeader.SUBSCRIPTION | (PullMessageHeader.SUSPEND if suspend_ms else 0) | asked
    fields: dict[str, object] = {"commit_offset": 0, "max_count": 32, "sub_version": 0, "subscription": "*", **more}
    header = PullMessageHeader(
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        sys_flag=flags,
        suspend_ms=suspend_ms,
        **fields,  # type: ignore[arg-type]
    )
    return request(RequestCode.PULL_MESSAGE, header.to_ext())


def heartbeat(
    client_id: str,
    *,
    consumers: dict[str, dict[str, str]] | None = None,
    producers: tuple[str, ...] = (),
    version: int = 1,
) -> RemotingCommand:
    """Return a heartbeat; `consumers` maps group -> topic -> subscription text."""
    groups = [
        {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "unitMode": False,
            "subscriptionDataSet": [
                {"topic": topic, "subString": text, "subVersion": version, "tagsSet": [], "codeSet": []}
                for topic, text in topics.items()
            ],
        }
        for group, topics in (consumers or {}).items()
    ]
    body = {
        "clientID": client_id,
        "consumerDataSet": groups,
        "producerDataSet": [{"groupName": group} for group in producers],
    }
    return request(RequestCode.HEART_BEAT, {}, fastjson.dumps(body))


def ask(code: int, **ext: object) -> RemotingCommand:
    """Return a request with these ext fields."""
    return request(code, {name: str(value) for name, value in ext.items()})


def messages_of(response: RemotingCommand) -> list[StoredMessage]:
    """Return the messages in a pull's answer."""
    found, at = [], 0
    while at < len(response.body):
        found.append(decode_record(response.body, at))
        at += found[-1].size
    return found
