"""Two whole boxes that change roles: what a client sees before, meanwhile and after."""

from pathlib import Path

import pytest
import trio

from appliance.group import member
from appliance.group.forwarding import BY_A_FOLLOWER
from appliance.group.leadership import LEADER, Leadership, LeadershipState
from appliance.group.state import state_applier
from netstack.errors import ChannelClosed
from netstack.serving.channel import Channel
from netstack.wire import fastjson
from netstack.wire.codes import RequestCode as Code
from netstack.wire.command import RemotingCommand
from tests.appliance.box import Box, ask, connected, heartbeat, messages_of, pull, send
from tests.appliance.group.hand_driven import HandGroup, hand_pair
from tests.waiting import until_it

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_applier, "EVERY_S", 0.05)


async def asked(box: Box, command: RemotingCommand, port: int | None = None) -> RemotingCommand:
    """Ask over a connection of its own, again while connections are dropped."""
    with trio.fail_after(20):
        while True:
            try:
                async with connected(box, port) as channel:
                    return await channel.ask(command)
            except* (ChannelClosed, OSError):
                pass
            await trio.sleep(0.02)


async def led_by(box: Box) -> None:
    """Wait until a box takes messages."""

    async def takes() -> bool:
        return (await asked(box, handed_on())).code == 0

    await until_it(takes)


def handed_on() -> RemotingCommand:
    """Return a send that a follower hands on no further."""
    found = send("PING")
    found.remark = BY_A_FOLLOWER
    return found


async def test_who_begins_to_lead_while_the_tables_are_read_reads_what_was_committed_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(member, "AGAIN_S", 0.01)
    leadership, leads = Leadership(), LeadershipState(LEADER, 2, "a", "a:1", ready=True)
    begun: list[LeadershipState] = []

    class Applier:
        """Leadership begins while it reads for the second time; the first time the disk fails."""

        async def mend(self) -> None:
            await trio.lowlevel.checkpoint()

        async def apply(self) -> frozenset[str]:
            begun.append(leadership.current)
            await trio.lowlevel.checkpoint()
            if len(begun) == 1:
                raise OSError("the disk does not answer")
            leadership.set(leads)
            return frozenset()

    assert await member.caught_up(Applier(), leadership) == leads
    assert begun == [LeadershipState(), LeadershipState(), leads]


async def pulled(box: Box, topic: str = "T", queue_id: int = 0, queue_offset: int = 0) -> list[bytes]:
    answer = await asked(box, pull(topic, queue_offset, queue_id))
    return [message.body for message in messages_of(answer)] if answer.code == 0 else []


async def route(box: Box, topic: str = "T") -> dict[str, str]:
    answer = await asked(box, ask(Code.GET_ROUTEINFO_BY_TOPIC, topic=topic), box.namesrv_port)
    found = fastjson.loads(answer.body)["brokerDatas"][0]["brokerAddrs"]
    return {str(number): str(address) for number, address in found.items()}


def address(box: Box) -> str:
    return f"127.0.0.1:{box.broker_port}"


async def test_a_follower_has_everything_and_takes_nothing(tmp_path: Path) -> None:
    async with hand_pair(tmp_path) as (_, boxes):
        first, second = boxes["a"], boxes["b"]
        await led_by(first)
        for number in range(10):
            assert (await asked(first, send("T", b"%d" % number))).code == 0
        all_there = [b"%d" % number for number in range(10)]

        async def copied() -> bool:
            return await pulled(second) == all_there

        await asked(second, heartbeat("c@1", consumers={"CG": {"T": "*"}}))
        await until_it(copied)
        answer = await asked(second, ask(Code.DELETE_TOPIC_IN_BROKER, topic="T"))
        assert answer.code == 14
        assert f"a at {address(first)} leads" in (answer.remark or "")
        assert "does not lead" in ((await asked(second, handed_on())).remark or "")
        all_there.append(b"by the follower")
        for repeated in range(2):
            commit = ask(Code.UPDATE_CONSUMER_OFFSET, consumerGroup="CG", topic="T", queueId=0, commitOffset=repeated)
            assert (await asked(second, commit)).code == 0
        assert (await asked(second, send("T", b"by the follower"))).code == 0
        await until_it(copied)
        put = ask(Code.PUT_KV_CONFIG, namespace="N", key="k", value="v")
        assert (await asked(second, put, second.namesrv_port)).code == 14
        assert await route(first) == {"0": address(first), "2": address(second)}
        assert await route(second) == {"0": address(first), "2": address(second)}


async def test_after_a_switch_the_other_has_messages_topics_offsets_and_keys(tmp_path: Path) -> None:
    async with hand_pair(tmp_path) as (group, boxes):
        first, second = boxes["a"], boxes["b"]
        await led_by(first)
        sizes = {"readQueueNums": 3, "writeQueueNums": 5, "perm": 6, "order": "false", "topicSysFlag": 0}
        kind = {"topicFilterType": "SINGLE_TAG", "defaultTopic": "TBW102"}
        created = ask(Code.UPDATE_AND_CREATE_TOPIC, topic="Made", **sizes, **kind)
        assert (await asked(first, created)).code == 0
        assert (
            await asked(first, ask(Code.PUT_KV_CONFIG, namespace="N", key="k", value="v"), first.namesrv_port)
        ).code == 0
        for number in range(20):
            assert (await asked(first, send("T", b"%d" % number))).code == 0
        await asked(first, heartbeat("c@1", consumers={"CG": {"T": "*"}}))
        await asked(first, ask(Code.UPDATE_CONSUMER_OFFSET, consumerGroup="CG", topic="T", queueId=0, commitOffset=7))
        await in_the_log(group, "config/consumerOffset", "T@CG")
        group.lead("b")
        await led_by(second)
        assert (await asked(first, handed_on())).code == 14
        assert await pulled(second) == [b"%d" % number for number in range(20)]
        offset = await asked(second, ask(Code.QUERY_CONSUMER_OFFSET, consumerGroup="CG", topic="T", queueId=0))
        assert (offset.ext or {})["offset"] == "7"
        made = fastjson.loads((await asked(second, ask(Code.GET_ALL_TOPIC_CONFIG))).body)["topicConfigTable"]["Made"]
        assert (made["readQueueNums"], made["writeQueueNums"]) == (3, 5)
        value = await asked(second, ask(Code.GET_KV_CONFIG, namespace="N", key="k"), second.namesrv_port)
        assert (value.ext or {})["value"] == "v"
        assert await route(second) == {"0": address(second), "1": address(first)}
        assert (await asked(second, send("T", b"more"))).ext["queueOffset"] == "20"

        async def back() -> bool:
            return (await pulled(first, queue_offset=20)) == [b"more"]

        await until_it(back)
        group.lead("a")
        await led_by(first)
        assert (await asked(first, send("T", b"again"))).ext["queueOffset"] == "21"


async def in_the_log(group: HandGroup, table: str, word: str) -> None:
    """Wait until each member's file of a table has a word."""

    async def there() -> bool:
        await trio.lowlevel.checkpoint()
        folder, _, name = table.partition("/")
        paths = (driver.store.config.root / folder / f"{name}.json" for driver in group.drivers.values())
        return all(path.exists() and word in path.read_text() for path in paths)

    await until_it(there)


async def test_a_connection_outlasts_a_role_and_what_is_under_way_is_answered_by_the_next(tmp_path: Path) -> None:
    async with hand_pair(tmp_path) as (group, boxes):
        await led_by(boxes["a"])
        async with connected(boxes["a"]) as channel:
            assert (await channel.ask(send("T", b"0"))).code == 0
            await channel.ask(heartbeat("c@1", consumers={"CG": {"T": "*"}}))
            await in_the_log(group, "config/subscriptionGroup", "CG")

            async def copied() -> bool:
                return await pulled(boxes["b"]) == [b"0"]

            await until_it(copied)
            async with trio.open_nursery() as nursery:
                found: list[bytes] = []
                nursery.start_soon(parked, channel, found)
                group.lead("b")
                while (answer := await channel.ask(send("T", b"1"))).code == 14:  # noqa: ASYNC110 the box has no event
                    await trio.sleep(0.01)  # in the moment between leader and follower; clients ask again
                assert (answer.code, answer.ext.get("queueOffset")) == (0, "1"), "handed on to b"
                with trio.fail_after(60):
                    while not found:  # noqa: ASYNC110 the other task has no event
                        await trio.sleep(0.01)
            assert found == [b"1"]


async def parked(channel: Channel, found: list[bytes]) -> None:
    """Pull until a message comes, as consumers do."""
    while not found:
        answer = await channel.ask(pull("T", 1, suspend_ms=15_000), 20)
        found += [message.body for message in messages_of(answer)] if answer.code == 0 else []


async def test_without_a_leader_a_box_says_so_and_is_read(tmp_path: Path) -> None:
    async with hand_pair(tmp_path) as (group, boxes):
        await led_by(boxes["a"])
        await asked(boxes["a"], send("T", b"x"))
        group.lead("")

        async def refuses() -> bool:
            answer = await asked(boxes["a"], send("T"))
            return answer.code == 14 and "has no leader" in (answer.remark or "")

        await until_it(refuses)
        await asked(boxes["a"], heartbeat("c@1", consumers={"CG": {"T": "*"}}))
        assert await pulled(boxes["a"]) == [b"x"]
        assert await route(boxes["a"]) == {"1": address(boxes["a"])}
