"""Members elect a leader by themselves: three boxes, two and a witness; what was acknowledged outlives each of them."""

from pathlib import Path

import pytest
import trio

from appliance.group.leadership import LEADER
from storage_driver.consensus.rules import Rules
from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.members import Group, RunningMember, group
from tests.waiting import until

pytestmark = [pytest.mark.slow, needs_openssl]
AUTOMATIC = Rules(elections="automatic", acknowledge="majority", scale=0.5)


def leader_of(made: Group) -> RunningMember | None:
    """Return the member that leads and may serve."""
    return next((each for each in made.running.values() if each.leads()), None)


async def led(made: Group) -> tuple[str, RunningMember]:
    """Wait for a leader, return its name and itself."""
    await until(lambda: leader_of(made) is not None)
    leader = leader_of(made)
    assert leader is not None
    return leader.driver.member, leader


async def put_anywhere(made: Group, body: bytes) -> None:
    """Append a message at whoever leads, until one of them has acknowledged it."""
    with trio.fail_after(60):
        while True:
            _, leader = await led(made)
            with trio.move_on_after(3):
                await leader.put_committed(body)
                return


@pytest.mark.parametrize("names", [("a", "b", "c"), ("a", "b", "w")], ids=["three boxes", "two and a witness"])
async def test_another_box_takes_over_with_everything_and_the_former_leader_follows(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    rules = AUTOMATIC._replace(copies=1 if "w" in names else 2)
    async with group(tmp_path, *names, rules=rules) as made:
        boxes = [name for name in names if name != "w"]
        if "w" in names:
            await made.start_witness("w")
        await made.start(*boxes)
        await put_anywhere(made, b"first")
        name, leader = await led(made)
        await until(lambda: all(each.synced for each in leader.driver.view.members() if each.witness))
        await until(lambda: all(each.store.synced == each.store.end for each in made.running.values()))
        await made.stop(name)
        other, survivor = await led(made)
        assert other != name
        assert await survivor.bodies() == [b"first"]
        await survivor.put_committed(b"without it")
        [back] = await made.start(name)
        await put_anywhere(made, b"second")
        await until(lambda: back.store.committed == survivor.store.committed)
        assert await back.bodies() == await survivor.bodies()
        assert back.driver.leadership.current.role != LEADER or not survivor.leads()
