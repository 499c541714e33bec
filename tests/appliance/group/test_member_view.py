"""What a sender is told while messages are not on enough disks."""

from appliance.group.driver import MemberProgress
from appliance.group.member_view import what_is_lost, who_is_missed, why_not_copied
from storage_driver.consensus.core import Core
from storage_driver.consensus.effects import MemberStatus, Start, TermTable
from storage_driver.consensus.hard_state import HardState
from storage_driver.consensus.members import Members, MembersAt
from storage_driver.consensus.messages import LeaderHeartbeat
from storage_driver.consensus.rules import Rules
from storage_driver.consensus.terms import Row

LEADS = MemberStatus("leader", 3, "a", True, "", False, Members(("a", "b"), ("w",)), "")
A, W = MemberProgress("a", "a:1", connected=True, synced=100), MemberProgress("w", "w:1", witness=True)
B = MemberProgress("b", "b:1", connected=True, synced=40, behind_bytes=60)


def test_the_reason_names_who_is_gone_or_behind() -> None:
    assert why_not_copied(LEADS, (A, B, W), "a") == "b is 60 bytes behind"
    assert why_not_copied(LEADS, (A, B._replace(connected=False), W), "a") == "b cannot be reached"
    assert why_not_copied(LEADS, (A, B._replace(behind_bytes=None), W), "a") == "b has not been heard yet"
    full = B._replace(refuses="has no space: 97 % used")
    assert why_not_copied(LEADS, (A, full, W), "a") == "b has no space: 97 % used"
    assert [who_is_missed((A, each, W), "a") for each in (B, full)] == ["", "b has no space: 97 % used"]
    assert why_not_copied(LEADS._replace(role="follower", leader="b"), (A, B, W), "a") == "b leads now"
    assert why_not_copied(LEADS._replace(role="follower", leader=""), (A, B, W), "a") == "nobody leads now"
    assert why_not_copied(LEADS._replace(trouble="the disk failed"), (A, B, W), "a") == "the disk failed"


def test_who_takes_over_alone_hears_what_the_leader_had_beyond_this_disk() -> None:
    table = TermTable((Row(1, 0),), (MembersAt(-1, Members(("a", "b"))),))
    core = Core("b", Rules(elections="manual", acknowledge="one"), Start(HardState(1), table, 0, 300, 300), 0.0)
    assert "has heard no leader since it started" in what_is_lost(core, 300, 9.0, 0)
    core.step(10.0, "a", LeaderHeartbeat(2, 300, -1, 10.0))
    assert what_is_lost(core, 300, 22.0, 0).endswith("had all of it 12 s ago, when it last heard a leader")
    assert what_is_lost(core, 300, 22.0, 0, 21.0).endswith("had all of it 1 s ago, when it last led itself")
    assert what_is_lost(core, 300, 22.0, 0, 9.0).endswith("12 s ago, when it last heard a leader")
    core.step(30.0, "a", LeaderHeartbeat(2, 900, -1, 30.0))
    assert "loses 600 bytes that were acknowledged" in what_is_lost(core, 300, 32.0, 0)
    assert "loses one acknowledged message (600 bytes)" in what_is_lost(core, 300, 32.0, 1)
    assert "loses about 7 acknowledged messages (600 bytes)" in what_is_lost(core, 300, 32.0, 7)
