"""What a sender is told while messages are not on enough disks."""

from appliance.group.driver import MemberProgress
from appliance.group.member_view import why_not_copied
from storage_driver.consensus.effects import MemberStatus
from storage_driver.consensus.members import Members

LEADS = MemberStatus("leader", 3, "a", True, "", False, Members(("a", "b"), ("w",)), "")
A, W = MemberProgress("a", "a:1", connected=True, synced=100), MemberProgress("w", "w:1", witness=True)
B = MemberProgress("b", "b:1", connected=True, synced=40, behind_bytes=60)


def test_the_reason_names_who_is_gone_or_behind() -> None:
    assert why_not_copied(LEADS, (A, B, W), "a") == "b is 60 bytes behind"
    assert why_not_copied(LEADS, (A, B._replace(connected=False), W), "a") == "b cannot be reached"
    assert why_not_copied(LEADS._replace(role="follower", leader="b"), (A, B, W), "a") == "b leads now"
    assert why_not_copied(LEADS._replace(role="follower", leader=""), (A, B, W), "a") == "nobody leads now"
    assert why_not_copied(LEADS._replace(trouble="the disk failed"), (A, B, W), "a") == "the disk failed"
