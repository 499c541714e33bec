"""Two whole boxes, master and slave: the slave has everything, is read, takes no message, and goes on alone."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio

from appliance.configuration.config import load_config
from appliance.errors import ConfigError
from appliance.health.health_file import describe
from appliance.replication import following, slave, table_sync
from netstack.serving.channel import Channel
from netstack.wire import fastjson
from netstack.wire.codes import RequestCode as Code
from netstack.wire.command import RemotingCommand
from storage_driver.log.clock import wall_ms
from tests.appliance.box import FACTS, Box, ask, connected, heartbeat, messages_of, pull, running_box, send
from tests.ports import apache_port
from tests.waiting import until, until_it

pytestmark = pytest.mark.slow
MASTER = '[replication]\nrole = "master"\n'


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((following, "RETRY_S"), (slave, "LOOK_S"), (table_sync, "EVERY_S")):
        monkeypatch.setattr(module, name, 0.05)
    monkeypatch.setattr(table_sync.TableSync.__init__, "__kwdefaults__", {"every_s": 0.05})


@asynccontextmanager
async def slave_box(folder: Path, port: int) -> AsyncIterator[Box]:
    toml = f'[replication]\nrole = "slave"\nmaster = "127.0.0.1:{port}"\nbroker_id = 3\n'
    async with running_box(folder, toml, broker_port=apache_port()) as box:
        yield box


@asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[tuple[Box, Channel, Box, Channel]]:
    """A master, a slave, and a channel to each."""
    async with AsyncExitStack() as stack:
        master = await stack.enter_async_context(running_box(folder / "a", MASTER, broker_port=apache_port()))
        copy = await stack.enter_async_context(slave_box(folder / "b", master.broker_port))
        channels = [await stack.enter_async_context(connected(box)) for box in (master, copy)]
        yield master, channels[0], copy, channels[1]


async def pulled(channel: Channel, topic: str = "T") -> list[bytes]:
    answer = await channel.ask(pull(topic))
    return [message.body for message in messages_of(answer)] if answer.code == 0 else []


async def test_a_slave_has_the_messages_and_everything_beside_them(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, master, _, copy):
        await master.ask(heartbeat("c@1", consumers={"CG": {"T": "*"}}))
        for number in range(20):
            assert (await master.ask(send("T", b"%d" % number))).code == 0
        await master.ask(ask(15, consumerGroup="CG", topic="T", queueId=0, commitOffset=7))

        async def everything() -> bool:
            offset = await copy.ask(ask(14, consumerGroup="CG", topic="T", queueId=0))
            return await pulled(copy) == [b"%d" % number for number in range(20)] and offset.ext == {"offset": "7"}

        await until_it(everything)
        assert b'"CG"' in (await copy.ask(ask(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))).body


async def test_a_slave_refuses_whatever_would_store_a_message(tmp_path: Path) -> None:
    async with pair(tmp_path) as (box, master, _, copy):
        await master.ask(send("T", b"first"))
        await until_it(lambda: _is(copy, [b"first"]))
        for code in (10, 310, 320):
            answer = await copy.ask(send("T", code=code))
            assert (answer.code, f"its master 127.0.0.1:{box.broker_port} takes messages" in str(answer.remark)) == (
                *(14, True),
            )
        back = ask(Code.CONSUMER_SEND_MSG_BACK, offset=0, group="CG", delayLevel=1)
        assert (await copy.ask(back)).code == 14
        assert (await copy.ask(ask(Code.END_TRANSACTION, commitOrRollback=8))).code == 14
        await master.ask(send("T", b"second"))
        await until_it(lambda: _is(copy, [b"first", b"second"]))


async def _is(channel: Channel, expected: list[bytes]) -> bool:
    return await pulled(channel) == expected


async def test_an_offset_that_a_slave_has_not_reached_is_kept_and_waited_for(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, master, _, copy):
        await master.ask(send("T", b"first"))
        await until_it(lambda: _is(copy, [b"first"]))
        answer = await copy.ask(pull("T", 5))
        assert (answer.code, answer.ext["nextBeginOffset"]) == (19, "5")
        answer = await copy.ask(pull("T", 5, queue_id=3))
        assert (answer.code, answer.ext["nextBeginOffset"]) == (19, "5")
        got = list[RemotingCommand]()

        async def wait() -> None:
            got.append(await copy.ask(pull("T", 3, suspend_ms=30_000), timeout_s=60))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            for number in range(4):
                await master.ask(send("T", b"%d" % number))
        assert [message.body for message in messages_of(got[0])][:1] == [b"2"]


async def test_routes_of_a_slave_name_its_id_and_its_master_while_that_lives(tmp_path: Path) -> None:
    async with (
        slave_stack(tmp_path) as (stop_master, port, copy),
        connected(copy, copy.namesrv_port) as client,
        connected(copy) as broker,
    ):

        async def addresses() -> dict[str, str]:
            answer = await client.ask(ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="T"))
            found = fastjson.loads(answer.body)["brokerDatas"][0]["brokerAddrs"] if answer.code == 0 else {}
            assert isinstance(found, dict)
            return found

        own = f"127.0.0.1:{copy.broker_port}"

        async def both() -> bool:
            return await addresses() == {"0": f"127.0.0.1:{port}", "3": own}

        await until_it(both)
        await until_it(lambda: _is(broker, [b"kept"]))
        stop_master.set()

        async def alone() -> bool:
            return await addresses() == {"3": own}

        await until_it(alone)
        assert await pulled(broker) == [b"kept"]
        status = fastjson.loads((await broker.ask(ask(Code.GET_BROKER_HA_STATUS))).body)
        assert (status["master"], status["haClientRuntimeInfo"]["activated"]) == (False, False)
        assert status["haClientRuntimeInfo"]["maxOffset"] > 0
        config = (await broker.ask(ask(Code.GET_BROKER_CONFIG))).body
        assert b"brokerRole=SLAVE\n" in config
        assert b"brokerId=3\n" in config


@asynccontextmanager
async def slave_stack(folder: Path) -> AsyncIterator[tuple[trio.Event, int, Box]]:
    """A slave with a message of a master that ends when the event is set."""
    stop, port = trio.Event(), apache_port()

    async def master(*, task_status: trio.TaskStatus[None]) -> None:
        async with running_box(folder / "a", MASTER, broker_port=port) as box, connected(box) as channel:
            await channel.ask(send("T", b"kept"))
            task_status.started()
            await stop.wait()

    async with trio.open_nursery() as nursery:
        await nursery.start(master)
        async with slave_box(folder / "b", port) as copy:
            yield stop, port, copy
        nursery.cancel_scope.cancel()


async def test_a_slave_that_is_started_alone_goes_on_as_the_broker(tmp_path: Path) -> None:
    async with slave_stack(tmp_path) as (stop, _, copy), connected(copy) as channel:
        await until_it(lambda: _is(channel, [b"kept"]))
        stop.set()
    async with running_box(tmp_path / "b", MASTER, broker_port=apache_port()) as box, connected(box) as channel:
        sent = await channel.ask(send("T", b"next"))
        assert (sent.code, sent.ext["queueOffset"]) == (0, "1")
        assert await pulled(channel) == [b"kept", b"next"]


async def test_delayed_and_timed_messages_come_once_from_the_slave_that_became_the_broker(tmp_path: Path) -> None:
    stop, port, now_ms = trio.Event(), apache_port(), wall_ms()
    due_ms, levels = now_ms + 12_000, '[broker]\ndelay_levels = "1s 12s"\n'

    async def master(*, task_status: trio.TaskStatus[None]) -> None:
        async with running_box(tmp_path / "a", MASTER + levels, broker_port=port) as box, connected(box) as channel:
            await channel.ask(send("T", b"past", f"TIMER_DELIVER_MS\x01{now_ms + 1}\x02"))
            await channel.ask(send("T", b"timed soon", f"TIMER_DELIVER_MS\x01{now_ms + 1500}\x02"))
            await channel.ask(send("T", b"delayed soon", "DELAY\x011\x02"))
            await channel.ask(send("T", b"timed", f"TIMER_DELIVER_MS\x01{due_ms}\x02"))
            await channel.ask(send("T", b"delayed", "DELAY\x012\x02"))
            task_status.started()
            await stop.wait()

    soon, late = {b"past", b"timed soon", b"delayed soon"}, {b"timed", b"delayed"}
    timers, toml = (
        tmp_path / "b/store/rocketbox/timers",
        f'[replication]\nrole = "slave"\nmaster = "127.0.0.1:{port}"\n',
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(master)
        async with AsyncExitStack() as stack:
            box = await stack.enter_async_context(running_box(tmp_path / "b", toml + levels, broker_port=apache_port()))
            channel = await stack.enter_async_context(connected(box))

            async def delivered() -> bool:
                return set(await pulled(channel)) >= soon

            await until_it(delivered)
            await until(lambda: _emitted_ms(timers) >= now_ms + 1500)
            stop.set()
        nursery.cancel_scope.cancel()
    assert wall_ms() < due_ms, "this machine is too slow for the test"
    async with (
        running_box(tmp_path / "b", MASTER + levels, broker_port=apache_port()) as box,
        connected(box) as channel,
    ):

        async def all_of_them() -> bool:
            return set(await pulled(channel)) >= soon | late

        await until_it(all_of_them)
        assert sorted(await pulled(channel)) == sorted(soon | late)


def _emitted_ms(path: Path) -> int:
    """Return up to when the slave takes timed messages for delivered."""
    file = path.with_name(f"{path.name}.json")
    return int(json.loads(file.read_text())["emittedMs"]) if file.exists() else 0


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({"connected": True, "behind_bytes": 0}, "Master    connected to m:1, has everything"),
        ({"connected": True, "behind_bytes": 3000}, "Master    connected to m:1, 3 KiB behind"),
        ({"connected": True, "behind_bytes": None}, "Master    connected to m:1, not asked yet"),
        ({"lost": "refused"}, "Master    not connected to m:1 (refused)"),
        (
            {"lost": "refused", "behind_bytes": 3000},
            "Master    not connected to m:1 (refused), 3 KiB behind when it was asked last",
        ),
        (
            {"lost": "refused", "behind_bytes": 0},
            "Master    not connected to m:1 (refused), had everything when it was asked last",
        ),
        ({"differs": "another log", "lost": "x"}, "Master    not connected to m:1 (another log)"),
    ],
)
def test_people_read_one_line(said: dict[str, object], line: str) -> None:
    empty = {"connected": False, "behind_bytes": None, "differs": "", "lost": "", "tables": ""}
    assert line in describe({"replication": {"role": "slave", "master": "m:1", **empty, **said}}).splitlines()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[replication]\nrole = "slave"\n', "replication.master"),
        ('[replication]\nmaster = "m:1"\n', "replication.master"),
        ('[replication]\nrole = "slave"\nmaster = "m:1"\n[uplink]\ngateway = "g:1"\n', "uplink.gateway"),
    ],
)
def test_settings_that_do_not_fit_are_told(text: str, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(text, source="test", facts=FACTS)
    assert [problem.key for problem in refused.value.problems] == [key]
