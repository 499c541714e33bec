"""The parts that a member's tasks share are one set: what one of them changes the others see."""

from pathlib import Path

import pytest

from tests.appliance.group.certificates import needs_openssl
from tests.appliance.group.members import group

pytestmark = [pytest.mark.slow, needs_openssl]


async def test_orders_links_and_view_of_a_member_share_its_parts(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b") as made:
        [a] = await made.start("a")
        driver = a.driver
        assert (driver._rules.group, driver._rules.member, driver.member) == ("press", "a", "a")
        assert driver.orders._events is driver._heard._events is driver._events
        assert driver.orders._wishes is driver._heard._wishes is driver._wishes
        assert driver.view._copy is driver.orders._copy is driver._copy
