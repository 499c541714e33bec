"""What waits when a leader is replaced: delayed, timed and half messages, those taken by POP, locks of queues."""

import json
from pathlib import Path

import pytest
import trio

from appliance.broker.consume import queue_locks
from appliance.group.state import state_applier
from netstack.wire import fastjson
from netstack.wire.codes import RequestCode as Code
from netstack.wire.command import RemotingCommand, request
from storage_driver.log.clock import wall_ms
from tests.appliance.box import Box, ask, heartbeat, send
from tests.appliance.broker.pop_requests.requests import pop, popped
from tests.appliance.group.hand_driven import HandGroup, hand_pair
from tests.appliance.group.test_member import asked, in_the_log, led_by, pulled
from tests.appliance.test_features import HALF, end
from tests.waiting import until, until_it

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_applier, "EVERY_S", 0.05)
    monkeypatch.setattr(queue_locks, "SAVE_S", 0.05)


async def level(group: HandGroup) -> None:
    """Wait until both logs are equal."""
    stores = [driver.store for driver in group.drivers.values()]
    await until(lambda: len({mark for store in stores for mark in (store.committed, store.end)}) == 1)


async def switched(group: HandGroup, boxes: dict[str, Box]) -> Box:
    """Let b lead instead of a, once it has everything."""
    await level(group)
    group.lead("b")
    await led_by(boxes["b"])
    return boxes["b"]


async def arrives(box: Box, body: bytes) -> None:
    async def there() -> bool:
        return body in await pulled(box)

    await asked(box, heartbeat("c@1", consumers={"CG": {"T": "*"}}))
    await until_it(there)


async def test_delayed_and_timed_messages_are_delivered_by_the_next_leader(tmp_path: Path) -> None:
    async with hand_pair(tmp_path, '[broker]\ndelay_levels = "1s 3s"\n') as (group, boxes):
        await led_by(boxes["a"])
        assert (await asked(boxes["a"], send("T", b"delayed", "DELAY\x012\x02"))).code == 0
        timed = send("T", b"timed", f"TIMER_DELIVER_MS\x01{wall_ms() + 2500}\x02UNIQ_KEY\x01U\x02")
        assert (await asked(boxes["a"], timed)).code == 0
        second = await switched(group, boxes)
        assert await pulled(second) == []
        await arrives(second, b"delayed")
        await arrives(second, b"timed")
        assert sorted(await pulled(second)) == [b"delayed", b"timed"]


async def test_a_half_message_is_ended_at_the_next_leader_and_an_ended_one_stays_so(tmp_path: Path) -> None:
    async with hand_pair(tmp_path) as (group, boxes):
        await led_by(boxes["a"])
        open_one = await asked(boxes["a"], send("T", b"open", HALF))
        done = await asked(boxes["a"], send("T", b"done", HALF))
        assert (await asked(boxes["a"], end(done, 8))).code == 0
        second = await switched(group, boxes)
        assert (await asked(second, end(open_one, 8))).code == 0
        assert (await asked(second, end(done, 8))).code == 0
        await arrives(second, b"open")
        assert await pulled(second) == [b"done", b"open"]


async def test_what_was_taken_by_pop_stays_taken_and_is_acknowledged_at_the_next_leader(tmp_path: Path) -> None:
    async with hand_pair(tmp_path) as (group, boxes):
        await led_by(boxes["a"])
        for number in range(3):
            assert (await asked(boxes["a"], send("T", b"%d" % number))).code == 0
        taken = popped(await asked(boxes["a"], pop(most=2)))
        assert [each.message.body for each in taken] == [b"0", b"1"]
        assert (await asked(boxes["a"], taken[0].ack())).code == 0
        second = await switched(group, boxes)
        assert [each.message.body for each in popped(await asked(second, pop()))] == [b"2"]
        assert (await asked(second, taken[1].ack())).code == 0
        offset = ask(Code.QUERY_CONSUMER_OFFSET, consumerGroup="CG", topic="T", queueId=0)
        assert (await asked(second, offset)).ext["offset"] == "2"


def lock(client: str) -> RemotingCommand:
    queue = {"topic": "T", "brokerName": "box", "queueId": 0}
    return request(
        Code.LOCK_BATCH_MQ, {}, json.dumps({"consumerGroup": "CG", "clientId": client, "mqSet": [queue]}).encode()
    )


async def test_a_lock_of_a_queue_is_its_owners_at_the_next_leader(tmp_path: Path) -> None:
    async with hand_pair(tmp_path) as (group, boxes):
        await led_by(boxes["a"])
        assert (await asked(boxes["a"], send("T", b"x"))).code == 0
        await asked(boxes["a"], heartbeat("x@1", consumers={"CG": {"T": "*"}}))
        assert fastjson.loads((await asked(boxes["a"], lock("x@1"))).body)["lockOKMQSet"]
        await in_the_log(group, "rocketbox/queueLocks", "x@1")
        second = await switched(group, boxes)
        await asked(second, heartbeat("y@1", consumers={"CG": {"T": "*"}}))
        assert not fastjson.loads((await asked(second, lock("y@1"))).body)["lockOKMQSet"]
        assert fastjson.loads((await asked(second, lock("x@1"))).body)["lockOKMQSet"]


async def test_a_deleted_topic_has_no_messages_at_the_next_leader_either(tmp_path: Path) -> None:
    async with hand_pair(tmp_path) as (group, boxes):
        await led_by(boxes["a"])
        for queue_id in (0, 1, 1):
            assert (await asked(boxes["a"], send("T", b"old", queue_id=queue_id))).code == 0
        await asked(boxes["a"], heartbeat("c@1", consumers={"CG": {"T": "*"}}))
        assert (await asked(boxes["a"], ask(Code.DELETE_TOPIC_IN_BROKER, topic="T"))).code == 0
        second = await switched(group, boxes)
        assert (await asked(second, send("T", b"new"))).ext["queueOffset"] == "0"
        await arrives(second, b"new")
        assert await pulled(second) == [b"new"]
        assert await pulled(second, queue_id=1) == []


async def test_changes_that_follow_each_other_quickly_survive_many_switches(tmp_path: Path) -> None:
    async with hand_pair(tmp_path) as (group, boxes):
        leader, count = "a", 0
        for turn in range(6):
            await led_by(boxes[leader])
            for number in range(5):
                answer = await asked(boxes[leader], send(f"T{turn}-{number}", b"x"))
                count += answer.code == 0
            await level(group)
            leader = "b" if leader == "a" else "a"
            group.lead(leader)
        await led_by(boxes[leader])
        found = fastjson.loads((await asked(boxes[leader], ask(Code.GET_ALL_TOPIC_CONFIG))).body)["topicConfigTable"]
        assert sum(name.startswith("T") and "-" in name for name in found) == count == 30
        await trio.lowlevel.checkpoint()
