"""Three boxes as processes: who leads and is told to stop hands over first."""

from pathlib import Path

import pytest
import trio

from netstack.serving.channel import open_channel
from netstack.wire.codes import RequestCode
from netstack.wire.command import RemotingCommand
from tests.appliance.box import ask, heartbeat, send
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.real_group import RealMember, start
from tests.waiting import until_it

pytestmark = [pytest.mark.slow, needs_openssl]
SLOW = 4.0  # nobody is elected within eight seconds after the leader was heard


async def answered(box: RealMember, command: RemotingCommand) -> dict[str, str]:
    """Return what a box answers."""
    async with open_channel("127.0.0.1", box.broker_port) as channel:
        answer = await channel.ask(command, 60)
    assert answer.code == 0, answer.remark
    return {str(name): str(value) for name, value in (answer.ext or {}).items()}


async def test_a_leader_that_is_told_to_stop_hands_over_before_it_ends(tmp_path: Path) -> None:
    boxes = [RealMember(tmp_path / name) for name in "abc"]
    for each in boxes:
        each.configure(boxes, elections="automatic", timing=SLOW)
    try:
        await start(*boxes)
        found: list[RealMember] = []

        async def led() -> bool:
            found[:] = [each for each in boxes if await each.serves()]
            linked = [each["connected"] for each in (await found[0].status())["members"]] if found else []
            return bool(linked) and all(linked)

        await until_it(led)
        [leader] = found
        assert await answered(leader, heartbeat("c@1", consumers={"CG": {"T": "*"}})) == {}
        offset = {"consumerGroup": "CG", "topic": "T", "queueId": 0}
        assert (await answered(leader, send("T")))["queueOffset"] == "0"
        await answered(leader, ask(RequestCode.UPDATE_CONSUMER_OFFSET, **offset, commitOffset=1))
        assert await trio.to_thread.run_sync(leader.stop) == 0
        others = [each for each in boxes if each is not leader]
        leads = [each for each in others if (await each.status())["leader"] == each.name]
        assert len(leads) == 1, "who takes over leads before the other one ends"
        queried = await answered(leads[0], ask(RequestCode.QUERY_CONSUMER_OFFSET, **offset))
        assert queried["offset"] == "1", "what was committed just before the end"
    finally:
        for each in boxes:
            if each.running:
                each.kill()
