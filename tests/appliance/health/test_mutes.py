"""A muted condition stays muted over a restart, and no longer than it should."""

from pathlib import Path
from typing import Any

import pytest

from appliance.admin import AdminRefused, AdminRequest
from appliance.health.conditions import Condition
from appliance.health.mutes import Mutes
from storage_driver.files.disk import RealDisk
from storage_driver.files.state_file import StateFile

DEAD = Condition("dead_letters", "12 messages", "read them", "billing", 12)
HOUR_MS = 3_600_000


class Clocks:
    def __init__(self, folder: Path) -> None:
        self.now = self.up = 1000
        self.file = StateFile(RealDisk(), folder / "conditions.json")

    def mutes(self) -> Mutes:
        return Mutes(self.file, now_ms=lambda: self.now, uptime_ms=lambda: self.up)


def told(mutes: Mutes, *found: Condition) -> list[str]:
    return [one.key for one in mutes.split(found)[0]]


async def do(mutes: Mutes, verb: str, **values: Any) -> Any:
    return await mutes.actions()[f"conditions.{verb}"](AdminRequest(values, None))


async def test_a_muted_condition_is_silent_after_a_restart_until_it_gets_worse(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path)
    before = clocks.mutes()
    assert told(before, DEAD) == ["dead_letters:billing"]
    await do(before, "mute", key="dead_letters:billing")
    after = clocks.mutes()
    assert after.split([DEAD]) == ([], [DEAD])
    assert told(after, DEAD._replace(mark=13)) == ["dead_letters:billing"]


async def test_a_kind_is_muted_as_a_whole_and_told_again_when_asked(tmp_path: Path) -> None:
    mutes = Clocks(tmp_path).mutes()
    told(mutes, DEAD)
    await do(mutes, "mute", key="dead_letters")
    assert told(mutes, DEAD, DEAD._replace(subject="orders")) == []
    await do(mutes, "unmute", key="dead_letters")
    assert told(mutes, DEAD) == ["dead_letters:billing"]
    with pytest.raises(AdminRefused, match="is not muted"):
        await do(mutes, "unmute", key="dead_letters")


async def test_a_mute_ends_at_its_hour_and_three_hours_after_the_condition_is_over(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path)
    mutes = clocks.mutes()
    await do(mutes, "mute", key="dead_letters:billing", hours=2)
    clocks.now += 2 * HOUR_MS
    assert told(mutes, DEAD._replace(mark=0)) == ["dead_letters:billing"]
    await do(mutes, "mute", key="disk_filling")
    filling = Condition("disk_filling", "87%", "n")
    assert told(mutes, filling) == []
    clocks.up += 3 * HOUR_MS + 1
    mutes.split([])
    assert told(mutes, filling) == ["disk_filling"]


async def test_what_is_no_condition_or_keeps_the_box_from_serving_is_not_muted(tmp_path: Path) -> None:
    mutes = Clocks(tmp_path).mutes()
    with pytest.raises(AdminRefused, match="there is no condition 'typo'"):
        await do(mutes, "mute", key="typo")
    with pytest.raises(AdminRefused, match="cannot be muted"):
        await do(mutes, "mute", key="log_failed")


def test_a_damaged_file_mutes_nothing(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path)
    (tmp_path / "conditions.json").write_text('{"muted": {"disk_filling": "x", "dead_letters": [1, 2, 3]}}')
    assert told(clocks.mutes(), DEAD, Condition("disk_filling", "t", "n")) == ["dead_letters:billing", "disk_filling"]
