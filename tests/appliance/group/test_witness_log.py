"""What a witness has instead of a log takes nothing and gives nothing."""

from pathlib import Path

import pytest

from appliance.group.member_parts import MemberLog
from appliance.group.witness_log import WitnessLog
from storage_driver.errors import LogFailed
from storage_driver.files.disk import RealDisk
from storage_driver.files.state_file import StateFile
from storage_driver.log.lineage import Lineage
from storage_driver.record import Message, MessageQueue

MESSAGE = Message("T", 0, b"x", b"", 0, 0, 0, b"\x7f\x00\x00\x01\x00\x00\x2a\x9f")


async def test_a_witness_appends_nothing_and_has_nothing_to_send(tmp_path: Path) -> None:
    log: MemberLog = WitnessLog(Lineage(StateFile(RealDisk(), tmp_path / "identity.json"), lambda: 1))
    with pytest.raises(LogFailed, match="a witness has no log"):
        log.put(MESSAGE, own=True)
    with pytest.raises(LogFailed):
        log.append_raw(0, b"x")
    with pytest.raises(LogFailed):
        await log.truncate(0, "cut")
    with pytest.raises(LogFailed):
        await log.begin_at(9)
    log.commit(900)
    assert (log.read_log(0, 100), log.max_offset(MessageQueue("T", 0)), log.committed) == (b"", 0, 0)
    woken = list[object]()
    log.when_synced(900, woken.append)
    assert woken == [None]
