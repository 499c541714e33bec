"""Three boxes as processes: who leads and is told to stop hands over first."""

from pathlib import Path

import pytest
import trio

from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.real_group import RealMember, start
from tests.waiting import until_it

pytestmark = [pytest.mark.slow, needs_openssl]
SLOW = 4.0  # nobody is elected within eight seconds after the leader was heard


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
        assert await trio.to_thread.run_sync(leader.stop) == 0
        others = [each for each in boxes if each is not leader]
        names = {(await each.status())["leader"] for each in others}
        assert names <= {each.name for each in others}
    finally:
        for each in boxes:
            if each.running:
                each.kill()
