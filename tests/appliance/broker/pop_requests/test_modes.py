"""Request modes: set by an operator, told to members with their queues, kept over restarts."""

import json
from pathlib import Path

from netstack.serving.channel import Channel
from netstack.wire.command import request
from tests.appliance.box import connected, heartbeat, running_box, send
from tests.appliance.broker.pop_requests.requests import mode


async def assigned(channel: Channel, client: str, topic: str = "T") -> list[tuple[int, str]]:
    body = {"clientId": client, "consumerGroup": "CG", "messageModel": "CLUSTERING", "strategyName": "AVG"}
    answer = await channel.ask(request(400, {}, json.dumps({**body, "topic": topic}).encode()))
    found = json.loads(answer.body)["messageQueueAssignments"]
    return sorted((each["messageQueue"]["queueId"], each["mode"]) for each in found)


async def test_members_of_a_group_in_pop_mode_get_all_queues_over_a_restart(tmp_path: Path) -> None:
    for start in range(2):
        async with running_box(tmp_path) as box, connected(box) as channel:
            await channel.ask(send("T"))
            await channel.ask(heartbeat("c@0", consumers={"CG": {"T": "*", "%RETRY%CG": "*"}}))
            if not start:
                assert {name for _, name in await assigned(channel, "c@0")} == {"PULL"}
                assert (await channel.ask(mode("T", "CG", "POP"))).code == 0
            assert await assigned(channel, "c@0") == [(-1, "POP")]
            assert {name for _, name in await assigned(channel, "c@0", "%RETRY%CG")} <= {"PULL"}
            table = json.loads((await channel.ask(request(402, {}))).body)["messageRequestModeMap"]
            assert table["T"]["CG"]["mode"] == "POP"


async def test_members_may_share_the_queues_of_the_next_ones(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as first:
        await first.ask(send("T"))
        await first.ask(mode("T", "CG", "POP", share=1))
        async with connected(box) as second, connected(box) as third, connected(box) as fourth:
            for number, channel in enumerate((first, second, third, fourth)):
                await channel.ask(heartbeat(f"c@{number}", consumers={"CG": {"T": "*"}}))
            parts = [await assigned(first, f"c@{number}") for number in range(4)]
        counts = [sum(queue_id == each for part in parts for each, _ in part) for queue_id in range(4)]
        assert counts == [2, 2, 2, 2]
        assert {name for part in parts for _, name in part} == {"POP"}


async def test_what_has_no_mode_is_refused(tmp_path: Path) -> None:
    async with running_box(tmp_path, "[broker]\nauto_create_groups = false\n") as box, connected(box) as channel:
        await channel.ask(send("T"))
        assert (await channel.ask(mode("%RETRY%CG", "CG", "POP"))).code == 16
        assert (await channel.ask(mode("Unknown", "CG", "POP"))).code == 17
        assert (await channel.ask(mode("T", "CG", "POP"))).code == 26
        assert (await channel.ask(mode("T", "TOOLS_CONSUMER", "PUSH"))).code == 1
