"""Administration headers in the words of mqadmin 4.9 and 5.3."""

from netstack.wire.headers_admin import ConsumeQueueHeader, CreateTopicHeader, DeleteGroupHeader


def test_a_topic_as_mqadmin_creates_it_is_read() -> None:
    ext = {
        "topic": "T",
        "defaultTopic": "TBW102",
        "readQueueNums": "8",
        "writeQueueNums": "8",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": "+a=b",
        "lo": "true",
    }
    assert CreateTopicHeader.from_ext(ext) == CreateTopicHeader("T", "TBW102", 8, 8, 6, "SINGLE_TAG", attributes="+a=b")


def test_both_generations_say_that_offsets_go_with_the_group() -> None:
    assert DeleteGroupHeader.from_ext({"groupName": "G", "removeOffset": "true"}).remove_offset
    assert DeleteGroupHeader.from_ext({"groupName": "G", "cleanOffset": "true"}).clean_offset


def test_the_index_of_a_queue_page_is_a_queue_offset() -> None:
    ext = {"topic": "T", "queueId": "1", "index": "9000000000", "count": "10", "consumerGroup": ""}
    assert ConsumeQueueHeader.from_ext(ext) == ConsumeQueueHeader("T", 1, 9000000000, 10)
