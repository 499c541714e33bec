"""A box as a process: what commands and the page say of a gRPC client, and the memory that the port takes."""

import json
from pathlib import Path

import pytest
import trio

from netstack.grpc.testing import grpc_client
from netstack.serving.channel import open_channel
from tests.appliance.box import send
from tests.appliance.broker.pop_requests.requests import pop, popped
from tests.appliance.grpc.asking import Asker, Code, acking, consumer_settings, message, receiving, sending
from tests.appliance.real_box import real_box
from tests.interop.box import Box
from tests.interop.wire import make_topic
from tests.ports import free_port

pytestmark = pytest.mark.slow
ID = "01A0B1C2D3E4F5A6B7C8D9E0F1A2B3C4D5"
MOST_MB = 6.5  # the open port in use: 5.5 as pure Python, 6.2 compiled


async def work(port: int, message_id: str = ID) -> None:
    """Send a message, receive and acknowledge it, as a consumer of group G."""
    async with grpc_client(port) as stream:
        client = Asker(stream, "cell-7@1", **{"x-mq-language": "PYTHON", "x-mq-client-version": "5.1.2"})
        await client.told(await client.telemetry(consumer_settings("G", "T")), 1)
        sent = await client.ask("SendMessage", sending(message("T", message_id=message_id)))
        assert sent.status.code == Code.OK
        _, found = await client.receive(receiving("G", "T", invisible_s=60))
        assert (await client.ask("AckMessage", acking("G", "T", *found))).status.code == Code.OK


async def test_commands_and_page_know_a_client_and_a_message_of_grpc(tmp_path: Path) -> None:
    port = free_port()
    async with real_box(tmp_path, f"[grpc]\nport = {port}\n") as box, grpc_client(port) as stream:
        assert (await box.run("topics", "create", "T"))[0] == 0
        await work(port)
        client = Asker(stream, "press-1@1", **{"x-mq-language": "PYTHON", "x-mq-client-version": "5.1.2"})
        await client.told(await client.telemetry(consumer_settings("G", "T", push=True)), 1)
        code, said = await box.run("clients", "--group", "G", "--json")
        row = json.loads(said)
        assert (code, row["client"], row["language"], row["version"]) == (0, "press-1@1", "PYTHON", "5.1.2")
        code, said = await box.run("trace", ID, "--topic", "T", "--json")
        row = json.loads(said)
        assert (code, row["what"], row["message_id"], row["topic"]) == (0, "stored", ID, "T")
        code, said = await box.run("messages", "show", ID, "--topic", "T", "--json")
        assert (code, json.loads(said)["id"]) == (0, ID)
        assert f"http://localhost:{box.page_port}/" in (await box.run("page"))[1]  # which names no configuration file
        page = await box.page()
        for text in ("press-1@1", "PYTHON", "5.1.2 gRPC", "consumes as G"):
            assert text in page, text


async def work_over_remoting(port: int) -> None:
    """Send a message, pop and acknowledge it."""
    async with open_channel("127.0.0.1", port) as channel:
        assert (await channel.ask(send("T"), 10)).code == 0
        (found,) = popped(await channel.ask(pop(), 10))
        assert (await channel.ask(found.ack(), 10)).code == 0


async def memory_mb(folder: Path, port: int) -> float:
    """Return the resident memory of a box that has worked; port: of gRPC, 0 for none."""
    box = Box(folder / f"data-{port}", config=f"[grpc]\nport = {port}\n")
    await trio.to_thread.run_sync(box.start)
    try:
        await trio.to_thread.run_sync(make_topic, box.broker, "T", 1)
        await work_over_remoting(box.broker_port)
        if port:
            await work(port)
        return box.resident_mb()
    finally:
        box.kill()


async def test_the_open_port_takes_little_memory_behind_what_remoting_clients_take(tmp_path: Path) -> None:
    closed, opened = await memory_mb(tmp_path, 0), await memory_mb(tmp_path, free_port())
    print(f"{closed:.1f} MB without, {opened:.1f} with the port")
    assert opened - closed <= MOST_MB
