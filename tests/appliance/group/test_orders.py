"""What admin.sock may ask of a member."""

from pathlib import Path

import pytest

from appliance.admin import AdminRefused, AdminRequest
from appliance.group.driver import Divergence
from appliance.group.orders import group_actions, group_status
from storage_driver.store import open_store
from tests.appliance.group.hand_driven import HandDriver, HandGroup
from tests.storage_driver.test_store import Clock, small


def wanted(**values: object) -> AdminRequest:
    return AdminRequest(values, None)


async def test_orders_are_carried_out_or_refused_with_a_reason(tmp_path: Path) -> None:
    async with open_store(small(tmp_path), now_ms=Clock()) as store:
        group = HandGroup()
        driver = group.drivers["a"] = HandDriver(group, "a", store)
        actions = group_actions(driver)
        with pytest.raises(AdminRefused, match="3 acknowledged messages more"):
            await actions["group.promote"](wanted())
        found = await actions["group.promote"](wanted(accept_loss=True))
        assert isinstance(found, dict)
        assert (found["serves"], found["leader"], found["term"]) == (True, "a", 1)
        await actions["group.transfer"](wanted(to="b"))
        assert driver.leadership.current.leader == "b"
        for name in ("group.demote", "group.solo", "group.resync"):
            await actions[name](wanted())
        joining = await actions["group.join"](wanted(member="c=h:10912"))
        assert isinstance(joining, dict)
        assert joining["waits"] == "c=h:10912 copies the log"
        with pytest.raises(AdminRefused, match="c is not a member"):
            await actions["group.remove"](wanted(member="c"))
        await actions["group.leave"](wanted())
        driver.diverged = Divergence(1, 2, 3, "q")
        assert group_status(driver)["diverged"] == {"start": 1, "end": 2, "at_ms": 3, "quarantine": "q", "messages": 0}
        assert await actions["group.status"](wanted()) == group_status(driver)
