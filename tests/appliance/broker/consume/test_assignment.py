"""Queues dealt out by the broker, as 5.x clients ask for them when they do not rebalance themselves."""

import json
from pathlib import Path
from typing import Any

from netstack.wire.command import RemotingCommand, request
from tests.appliance.box import connected, heartbeat, running_box, send


def query(client: str, topic: str = "T", **more: str) -> RemotingCommand:
    body = {"clientId": client, "consumerGroup": "CG", "messageModel": "CLUSTERING", "strategyName": "AVG"}
    return request(400, body=json.dumps({**body, "topic": topic, **more}).encode())


def queues(answer: RemotingCommand) -> list[int] | None:
    assert answer.code == 0, answer.remark
    found: list[dict[str, Any]] | None = json.loads(answer.body).get("messageQueueAssignments")
    if found is None:
        return None
    assert {each["mode"] for each in found} <= {"PULL"}
    assert {each["messageQueue"]["topic"] for each in found} <= {"T"}
    return [each["messageQueue"]["queueId"] for each in found]


async def test_members_share_the_queues_and_who_leaves_gives_its_part_back(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as first:
        await first.ask(send(topic="T"))
        assert queues(await first.ask(query("c@1"))) is None, "nobody is in the group"
        await first.ask(heartbeat("c@1", consumers={"CG": {"T": "*"}}))
        whole = queues(await first.ask(query("c@1")))
        assert whole is not None
        assert len(whole) > 2
        async with connected(box) as second:
            await second.ask(heartbeat("c@2", consumers={"CG": {"T": "*"}}))
            for strategy in ("AVG", "AVG_BY_CIRCLE"):
                parts = [queues(await first.ask(query(name, strategyName=strategy))) for name in ("c@1", "c@2")]
                assert sorted((parts[0] or []) + (parts[1] or [])) == whole
                assert all(parts)
            assert queues(await first.ask(query("stranger"))) == []
            everything = await first.ask(query("c@2", messageModel="BROADCASTING"))
            assert queues(everything) == whole
            await second.ask(request(35, {"clientID": "c@2", "consumerGroup": "CG"}))
        assert queues(await first.ask(query("c@1"))) == whole


async def test_what_is_not_known_changes_nothing_and_what_only_clients_know_is_refused(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        await channel.ask(heartbeat("c@1", consumers={"CG": {"T": "*"}}))
        assert queues(await channel.ask(query("c@1", topic="Unknown"))) is None
        await channel.ask(send(topic="T"))
        answer = await channel.ask(query("c@1", strategyName="MACHINE_ROOM"))
        assert (answer.code, "AVG or AVG_BY_CIRCLE" in (answer.remark or "")) == (1, True)
        assert (await channel.ask(request(400, body=b"[1"))).code == 1
