"""What is said of a driver's refusal."""

from appliance.group.driver import GroupRefused


def test_a_refusal_says_why_and_how_many_messages_it_would_lose() -> None:
    refused = GroupRefused("the other box has more", lost_messages=3)
    assert (str(refused), refused.lost_messages) == ("the other box has more", 3)
