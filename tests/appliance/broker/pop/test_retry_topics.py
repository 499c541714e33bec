"""Names of retry topics, as RocketMQ's KeyBuilder makes them."""

from appliance.broker.pop.retry_topics import TopicKind, first_topic, retry_topic, retry_topic_to_write


def test_both_namings() -> None:
    assert retry_topic("G", "T") == "%RETRY%G_T"
    assert retry_topic("G", "T", TopicKind.RETRY_V2) == "%RETRY%G+T"
    assert retry_topic("G", "T", TopicKind.NORMAL) == "T"


def test_a_message_comes_again_in_the_naming_that_is_there() -> None:
    assert retry_topic_to_write("G", "T", lambda name: False) == "%RETRY%G_T"
    assert retry_topic_to_write("G", "T", lambda name: "+" in name) == "%RETRY%G+T"
    assert retry_topic_to_write("G", "T", lambda name: True) == "%RETRY%G_T"
    assert retry_topic_to_write("G", "%RETRY%G+T", lambda name: False) == "%RETRY%G+T"


def test_the_first_topic_is_found_again() -> None:
    assert first_topic("G", "%RETRY%G_T_1") == "T_1"
    assert first_topic("G", "%RETRY%G+T") == "T"
    assert first_topic("G", "%RETRY%G") == "%RETRY%G"
    assert first_topic("G", "T") == "T"
