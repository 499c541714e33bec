"""A witness: a member that votes and stores no messages. It loads what that takes, and nothing of a box."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from appliance.clock import clock_trusted
from appliance.configuration.group_settings import read_member
from appliance.group.copies.log_copy import LogCopy
from appliance.group.links.directory import addresses_of
from appliance.group.links.link_port import LinkPort
from appliance.group.member_files import MemberFiles
from appliance.group.member_plan import GroupPlan, make_driver
from appliance.group.witness_log import NO_LOG, WitnessLog
from storage_driver.consensus.rules import Rules
from storage_driver.errors import LogFailed
from storage_driver.files.disk import RealDisk
from storage_driver.files.state_file import StateFile
from storage_driver.log.lineage import Lineage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from appliance.group.consensus_driver import ConsensusDriver


def witness_plan(group: str, member: str, members: Sequence[str], scale: float) -> GroupPlan:
    """Return the plan of a witness; `members` as in `group.members` of the boxes."""
    return GroupPlan(group, member, addresses_of(map(read_member, members)), Rules(scale=scale))


async def run_witness(
    plan: GroupPlan,
    data: Path,
    certificates: Path,
    listeners: Sequence[trio.SocketListener],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Vote in a group until cancelled; started once its files are read. Raises as `make_driver`."""
    driver = await trio.to_thread.run_sync(_open, plan, data, certificates)
    task_status.started()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(LinkPort(driver.links).serve, listeners)
        await driver.run()


def _open(plan: GroupPlan, data: Path, certificates: Path) -> ConsensusDriver:
    disk = RealDisk()
    (data / "rocketbox").mkdir(parents=True, exist_ok=True)
    store = WitnessLog(Lineage(StateFile(disk, data / "rocketbox" / "identity.json"), lambda: 1))
    files = MemberFiles(disk, data)
    return make_driver(plan, store, LogCopy(store, _no_cut), certificates, files, clock_ok=clock_trusted(), committed=0)


def _no_cut(log_offset: int, end: int, reason: str) -> None:
    """Raises LogFailed."""
    raise LogFailed(NO_LOG)
