"""The box as a whole: a message goes in and comes out, over real sockets and a real store."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from appliance.configuration.config import load_config
from appliance.ports import open_ports
from appliance.serve import serve
from netstack.wire.codes import RequestCode, ResponseCode
from tests.appliance.box import FACTS, ask, connected, heartbeat, messages_of, pull, running_box, send
from tests.waiting import until
from uplink_spark.testing import landed_entries
from uplink_spark.testing_site import gateway


async def test_what_was_sent_is_pulled(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        sent = await channel.ask(send("T", b"body", "TAGS\x01A\x02KEYS\x01k1\x02WAIT\x01true\x02"))
        assert (sent.code, sent.ext["queueId"], sent.ext["queueOffset"]) == (0, "0", "0")
        assert (sent.ext["MSG_REGION"], sent.ext["TRACE_ON"]) == ("DefaultRegion", "true")
        answer = await channel.ask(pull("T"))
        (message,) = messages_of(answer)
        assert (message.topic, message.body, message.queue_offset, message.message_id) == (
            "T",
            b"body",
            0,
            sent.ext["msgId"],
        )
        properties = message.property_map
        assert "WAIT" not in properties
        assert properties.pop("UNIQ_KEY")
        assert properties == {
            "TAGS": "A",
            "KEYS": "k1",
            "CLUSTER": "DefaultCluster",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }
        assert answer.ext == {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": "1",
            "minOffset": "0",
            "maxOffset": "1",
        }


async def test_a_parked_pull_is_woken_by_the_arrival(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel, connected(box) as producer:
        await producer.ask(send("T", b"first"))
        got: list[bytes] = []

        async def wait_for_it() -> None:
            answer = await channel.ask(pull("T", 1, suspend_ms=120_000), timeout_s=120)
            got.extend(message.body for message in messages_of(answer))

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait_for_it)
                await producer.ask(heartbeat("p@1", producers=("PG",)))
                await producer.ask(send("T", b"second"))
        assert got == [b"second"]


async def test_topics_groups_and_offsets_outlive_a_restart(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        await channel.ask(send("T", queue_id=3))
        await channel.ask(heartbeat("c@1", consumers={"CG": {"T": "*"}}))
        await channel.ask(ask(15, consumerGroup="CG", topic="T", queueId=3, commitOffset=1))
    async with running_box(tmp_path) as box, connected(box) as channel:
        assert (await channel.ask(ask(14, consumerGroup="CG", topic="T", queueId=3))).ext == {"offset": "1"}
        route = await channel.ask(ask(105, topic="T"))
        assert route.code == 3  # routes are asked at the other port
        answer = await channel.ask(pull("T", queue_id=3))
        assert [message.body for message in messages_of(answer)] == [b"hello"]
    tables = json.loads((tmp_path / "store/config/subscriptionGroup.json").read_text())
    assert "CG" in tables["subscriptionGroupTable"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["namesrv", "namesrv/kvConfig.json", "namesrv/kvConfig.json.tmp"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to(path.name)])
async def test_what_stands_in_place_of_the_name_servers_table_keeps_no_box_from_starting(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    make(tmp_path / name)
    put = ask(RequestCode.PUT_KV_CONFIG, namespace="n", key="k", value="v")
    async with running_box(tmp_path) as box, connected(box, box.namesrv_port) as channel:
        assert (await channel.ask(put, timeout_s=5)).code == ResponseCode.SUCCESS
    async with running_box(tmp_path) as box, connected(box, box.namesrv_port) as channel:
        found = await channel.ask(ask(RequestCode.GET_KV_CONFIG, namespace="n", key="k"), timeout_s=5)
        assert found.ext["value"] == "v"


async def test_an_unknown_request_gets_code_3(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        answer = await channel.ask(ask(9999))
        assert (answer.code, answer.remark) == (3, " request type 9999 not supported")


async def wait_noted(data: Path, trusted: bool) -> None:
    """Start a box whose clock is or is not to be trusted; return once its store noted that for this start."""
    config = load_config("[listen]\nbroker_port = 0\nnamesrv_port = 0\n", source="test", facts=FACTS)
    ports, up = await open_ports(config, {}), trio.Event()
    async with trio.open_nursery() as nursery:
        serving = partial(serve, ready=lambda _: up.set(), clock_trusted=lambda: trusted)
        nursery.start_soon(serving, config, data, ports)
        await up.wait()
        clock = data / "store" / "rocketbox" / "clock.json"
        # Of an empty store its first round writes it.
        await until(lambda: clock.exists() and json.loads(clock.read_bytes())["epochs"][-1][3] is trusted)
        nursery.cancel_scope.cancel()


async def test_the_store_learns_whether_the_clock_can_be_trusted(tmp_path: Path) -> None:
    """Without trust nothing is deleted for its age."""
    await wait_noted(tmp_path, False)
    await wait_noted(tmp_path, True)


@pytest.mark.slow
@pytest.mark.parametrize("trusted", [True, False])
async def test_what_leaves_the_box_says_whether_its_clock_is_to_be_believed(trusted: bool, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    async with gateway(landing) as port:
        toml = f"[uplink]\ngateway = '127.0.0.1:{port}'\nmax_delay_s = 1\n"
        async with running_box(tmp_path, toml, trusted=lambda: trusted) as box, connected(box) as channel:
            assert (await channel.ask(send("T"), timeout_s=5)).code == 0
            await until(lambda: list(landing.glob("status/*/*.jsonl")) and landed_entries(landing, "box"))
    (said,) = (json.loads(line) for path in landing.glob("status/*/*.jsonl") for line in path.read_text().splitlines())
    assert said["clock_ok"] is trusted
    assert {entry.clock_ok for entry in landed_entries(landing, "box")} == {int(trusted)}
