"""`update --reboot` on a box that leads a group: what it is told, and what is waited for."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
import trio

from appliance.admin import NAME, Action, AdminRefused, AdminRequest, serve_admin
from appliance.commands.device.handing_over import ROUTE_S, hand_over


async def told(folder: Path, actions: Mapping[str, Action]) -> tuple[list[str], list[float]]:
    """Return what is said and waited for beside a box that answers so."""
    waits: list[float] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_admin, folder / NAME, actions)
        said = await trio.to_thread.run_sync(lambda: list(hand_over(folder / NAME, wait=waits.append)))
        nursery.cancel_scope.cancel()
    return said, waits


async def _status(serves: bool, question: AdminRequest) -> object:
    await trio.lowlevel.checkpoint()
    return {"member": "a", "serves": serves}


async def test_another_box_takes_over_and_clients_have_time_to_learn_it(tmp_path: Path) -> None:
    async def order(question: AdminRequest) -> object:
        await trio.lowlevel.checkpoint()
        return {"to": "c"}

    said, waits = await told(tmp_path, {"group.status": partial(_status, True), "group.hand_over": order})
    assert said == ["c leads the group now; clients ask for the route within 35 s, this box reboots after that"]
    assert waits == [ROUTE_S]


async def test_a_leader_whom_nobody_can_follow_says_so(tmp_path: Path) -> None:
    async def order(question: AdminRequest) -> object:
        await trio.lowlevel.checkpoint()
        raise AdminRefused("b is not connected, or does not follow yet")

    said, waits = await told(tmp_path, {"group.status": partial(_status, True), "group.hand_over": order})
    text = "b is not connected, or does not follow yet"
    assert (said, waits) == ([f"no other box of its group leads ({text}): sends may fail until one does"], [])


@pytest.mark.parametrize("actions", [{}, {"group.status": partial(_status, False)}], ids=["alone", "follower"])
async def test_who_leads_nobody_reboots_at_once(tmp_path: Path, actions: Mapping[str, Action]) -> None:
    assert await told(tmp_path, actions) == ([], [])


def test_a_box_that_does_not_run_is_not_waited_for(tmp_path: Path) -> None:
    assert list(hand_over(tmp_path / NAME)) == []
