"""`update --reboot` on a box that leads a group: what it is told, and what is waited for."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
import trio

from appliance.admin import NAME, Action, AdminRefused, AdminRequest, serve_admin
from appliance.commands.device.handing_over import ROUTE_S, hand_over

BOX = {"connected": True, "witness": False, "learner": False, "synced": 10}
A, B, C = ({**BOX, "member": name} for name in "abc")
W = {**BOX, "member": "w", "witness": True, "synced": 99}


async def told(folder: Path, actions: Mapping[str, Action]) -> tuple[list[str], list[float]]:
    """Return what is said and waited for beside a box that answers so."""
    waits: list[float] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_admin, folder / NAME, actions)
        said = await trio.to_thread.run_sync(lambda: list(hand_over(folder / NAME, wait=waits.append)))
        nursery.cancel_scope.cancel()
    return said, waits


async def _status(serves: bool, members: Sequence[object], question: AdminRequest) -> object:
    await trio.lowlevel.checkpoint()
    return {"member": "a", "serves": serves, "members": members}


async def test_the_box_that_has_most_takes_over_and_clients_have_time_to_learn_it(tmp_path: Path) -> None:
    asked: list[object] = []

    async def transfer(question: AdminRequest) -> object:
        await trio.lowlevel.checkpoint()
        asked.append(question.values["to"])
        return {}

    members = [A, {**B, "synced": 9}, C, W]
    said, waits = await told(tmp_path, {"group.status": partial(_status, True, members), "group.transfer": transfer})
    assert asked == ["c"]
    assert said == ["c leads the group now; clients ask for the route within 35 s, this box reboots after that"]
    assert waits == [ROUTE_S]


async def test_a_leader_whom_nobody_can_follow_says_so(tmp_path: Path) -> None:
    async def transfer(question: AdminRequest) -> object:
        await trio.lowlevel.checkpoint()
        raise AdminRefused("b is 9 bytes behind")

    alone = {"group.status": partial(_status, True, [A, {**B, "connected": False}, W])}
    assert await told(tmp_path, alone) == (
        ["this box leads its group and no other box is connected: sends fail until it is back"],
        [],
    )
    said, waits = await told(tmp_path, {"group.status": partial(_status, True, [A, B]), "group.transfer": transfer})
    assert (len(said), waits) == (1, [])
    assert "b did not take over (b is 9 bytes behind)" in said[0]


@pytest.mark.parametrize("actions", [{}, {"group.status": partial(_status, False, [A, B])}], ids=["alone", "follower"])
async def test_who_leads_nobody_reboots_at_once(tmp_path: Path, actions: Mapping[str, Action]) -> None:
    assert await told(tmp_path, actions) == ([], [])


def test_a_box_that_does_not_run_is_not_waited_for(tmp_path: Path) -> None:
    assert list(hand_over(tmp_path / NAME)) == []
