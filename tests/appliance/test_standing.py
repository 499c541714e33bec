"""A box by itself: nothing stands in the way of its retention, its ports are its own."""

import sys
from pathlib import Path

from appliance.ports import Ports
from appliance.standing import Standing
from storage_driver.files.disk import RealDisk
from storage_driver.files.state_file import StateFile


def test_a_box_by_itself_saves_its_tables_and_needs_nobody(tmp_path: Path) -> None:
    standing, ports = Standing(StateFile(RealDisk(), tmp_path / "kv.json")), Ports([], [], [])
    assert standing.saves()
    assert not standing.follows
    assert standing.floor() == sys.maxsize
    assert standing.ports(ports) is ports
