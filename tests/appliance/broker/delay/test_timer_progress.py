"""Slaves are told what is on disk of the progress of timed messages, in the bytes of 5.x."""

from pathlib import Path

import pytest

from netstack.wire.codes import RequestCode
from netstack.wire.replication import TimerCheckpoint
from storage_driver.log.clock import wall_ms
from tests.appliance.box import ask, connected, running_box, send
from tests.waiting import until_it


@pytest.mark.slow
async def test_the_checkpoint_follows_what_is_delivered(tmp_path: Path) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:

        async def checkpoint() -> TimerCheckpoint:
            return TimerCheckpoint.from_bytes((await channel.ask(ask(RequestCode.GET_TIMER_CHECK_POINT))).body)

        assert await checkpoint() == (0, 0)
        due_ms = wall_ms() + 200
        await channel.ask(send("T", properties=f"TIMER_DELIVER_MS\x01{due_ms}\x02"))

        async def told() -> bool:
            found = await checkpoint()
            return found.indexed_to == 1 and found.delivered_ms >= due_ms

        await until_it(told)
