"""Topics: which exist, how they are made and what outlives a restart."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.broker.tables.creations import Creations
from appliance.broker.tables.groups import Group, group_from_json, group_to_json
from appliance.broker.tables.topics import (
    Topic,
    TopicRules,
    TopicTable,
    check_topic_name,
    random_queue,
    topic_from_json,
    topic_to_json,
)
from appliance.testing import MemoryStateFile
from netstack.errors import Refused

RULES = TopicRules(cluster="C", broker="b")


def topics(file: MemoryStateFile | None = None, rules: TopicRules = RULES, log_end: int = 0) -> TopicTable:
    return TopicTable(file or MemoryStateFile(), rules, now_ms=lambda: 1000, log_end=lambda: log_end)


def test_a_fresh_broker_has_apache_s_topics() -> None:
    table = {topic.name: (topic.read_queues, topic.write_queues, topic.perm) for topic in topics().all()}
    assert table == {
        "SELF_TEST_TOPIC": (1, 1, 6),
        "TBW102": (8, 8, 7),
        "BenchmarkTest": (1024, 1024, 6),
        "C": (16, 16, 7),
        "b": (1, 1, 7),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "C_REPLY_TOPIC": (1, 1, 6),
        "RMQ_SYS_TRACE_TOPIC": (1, 1, 6),
        "RBX_PROBE": (1, 1, 6),
    }


@pytest.mark.parametrize(("asked", "queues"), [(4, 4), (8, 8), (16, 8), (0, 0), (-3, 0)])
def test_a_send_makes_a_topic_with_the_smaller_count(asked: int, queues: int) -> None:
    made = topics().for_send("T", template="TBW102", queues=asked)
    assert (made.read_queues, made.write_queues, made.perm) == (queues, queues, 6)


@pytest.mark.parametrize("template", ["missing", "BenchmarkTest", ""])
def test_a_template_that_lends_nothing_makes_no_topic(template: str) -> None:
    with pytest.raises(Refused, match="code 17"):
        topics().for_send("T", template=template, queues=4)


def test_a_leftover_template_makes_no_topic_once_creation_is_off() -> None:
    table = topics(rules=TopicRules(cluster="C", broker="b", auto_create=False))
    table.put(Topic("TBW102", 8, 8, 7))
    with pytest.raises(Refused):
        table.for_send("T", template="TBW102", queues=4)


def test_topics_beyond_the_limit_are_refused_by_the_key_to_raise() -> None:
    table = topics(rules=TopicRules(cluster="C", broker="b", most=10))
    with pytest.raises(Refused, match=r"limits\.topics allows 10"):
        table.put(Topic("one more"))


def test_topics_of_the_log_come_back_though_the_limit_is_lower_since() -> None:
    table = topics(rules=TopicRules(cluster="C", broker="b", most=10))
    assert len(table.recover({f"T{number}": 0 for number in range(20)})) == 20


async def test_the_table_comes_back_as_it_was_and_its_version_never_falls() -> None:
    file = MemoryStateFile()
    table = topics(file, log_end=77)
    table.put(Topic("T", 3, 5, 2, "MULTI_TAG", 1, True, {"+message.type": "FIFO"}))
    await table.flush()
    again = topics(file)
    assert again.get("T") == table.get("T")
    assert again.version == table.version
    assert again.version.next(5).counter == table.version.counter + 1
    assert file.content["asOf"] == 77  # type: ignore[index]


def test_a_topic_that_only_the_log_knows_is_made_again() -> None:
    table = topics()
    assert table.recover({"T": 1, "U": 9, "%RETRY%g": 0, "TBW102": 3, "C": 0}) == ["T", "U", "%RETRY%g"]
    assert [topic.queue_count for name in ("T", "U", "%RETRY%g") if (topic := table.get(name))] == [4, 10, 1]


def test_changes_are_told_and_deleting_nothing_is_none() -> None:
    table, told = topics(), list[Any]()
    table.on_change(told.append)
    table.put(Topic("T"))
    version = table.version
    table.delete("T")
    table.delete("T")
    assert told == ["T", "T"]
    assert table.version.counter == version.counter + 1


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("T", None),
        ("%RETRY%g|x-_1", None),
        ("x" * 127, None),
        ("x" * 128, "longer"),
        ("", "blank"),
        ("ü", "illegal"),
        ("a.b", "illegal"),
    ],
)
def test_names_are_checked_as_apache_does(name: str, wrong: str | None) -> None:
    found = check_topic_name(name)
    assert (found is None) == (wrong is None)
    assert wrong is None or wrong in str(found)


def test_records_as_4_9_and_5_x_write_them_are_read() -> None:
    old = {"order": False, "perm": 6, "readQueueNums": 4, "topicName": "T", "topicSysFlag": 0, "writeQueueNums": 4}
    assert topic_from_json({**old, "topicFilterType": "SINGLE_TAG"}) == Topic("T", 4, 4)
    assert topic_from_json(topic_to_json(Topic("T", 4, 4, attributes={"a": "b"}))).attributes == {"a": "b"}
    assert group_from_json({"groupName": "g", "retryMaxTimes": 3}) == Group("g", retry_max_times=3)
    assert group_from_json(group_to_json(Group("g", consume_enable=False))) == Group("g", consume_enable=False)


def test_all_of_a_list_fit_or_none_and_what_is_there_needs_no_room() -> None:
    table = topics(rules=TopicRules(cluster="C", broker="b", most=12))
    table.check_room(["A", "B", "A", "TBW102", "C"])
    with pytest.raises(Refused, match=r"limits\.topics allows 12"):
        table.check_room(["A", "B", "D"])
    table.put(Topic("A"))
    table.put(Topic("B"))
    table.put(Topic("A", 1, 1))  # known: always
    assert len(table) == 12


def test_a_topic_made_by_a_send_takes_neither_order_nor_attributes_nor_the_right_to_be_a_template() -> None:
    table = topics()
    table.put(Topic("model", 4, 4, 7, "MULTI_TAG", 3, True, {"a": "b"}))
    made = table.for_send("T", template="model", queues=9, unit=True)
    assert made == Topic("T", 4, 4, 6, "MULTI_TAG", 1)
    with pytest.raises(Refused, match="code 17"):
        table.for_send("U", template="T", queues=9)


def test_a_retry_topic_is_made_whatever_the_template_and_another_send_finds_it_as_it_is() -> None:
    table = topics(rules=TopicRules(cluster="C", broker="b", auto_create=False))
    assert table.for_send("%RETRY%g", template="", queues=9) == Topic("%RETRY%g", 1, 1)
    table.put(Topic("%RETRY%g", 3, 3))
    assert table.for_send("%RETRY%g", template="", queues=9).queue_count == 3
    with pytest.raises(Refused):
        table.for_send("%DLQ%g", template="", queues=9)


def test_recovery_leaves_a_topic_that_is_there_as_it_is_and_passes_the_limit_by_name() -> None:
    table = topics()
    table.put(Topic("T", 2, 2))
    version = table.version
    assert table.recover({"T": 9}) == []
    assert (table.get("T"), table.version) == (Topic("T", 2, 2), version)


names = st.text(st.characters(min_codepoint=1, max_codepoint=0x24F), max_size=130)


@settings(max_examples=40)
@given(names)
def test_a_legal_name_is_safe_as_a_folder_and_as_part_of_a_key(name: str) -> None:
    if check_topic_name(name) is None:
        assert 0 < len(name.encode()) == len(name) <= 127
        assert not set(name) & set("/@.#\\ \0\x01\x02\n")


rows = st.builds(
    Topic,
    st.from_regex(r"[%|a-zA-Z0-9_-]{1,127}", fullmatch=True),
    *(st.integers(0, 1 << 20), st.integers(0, 1 << 20), st.integers(0, 7)),
    st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
    st.integers(0, 3),
    st.booleans(),
    st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3),
)


@settings(max_examples=25)
@given(rows)
def test_a_topic_comes_back_from_its_record_and_its_queues_are_the_greater_count(topic: Topic) -> None:
    assert topic_from_json(topic_to_json(topic)) == topic
    assert topic.queue_count == max(topic.read_queues, topic.write_queues)
    assert (topic.readable, topic.writable) == (topic.perm & 4 == 4, topic.perm & 2 == 2)


@pytest.mark.parametrize("name", ["rmq_sys_x", "TBW102", "C", "b", "C_REPLY_TOPIC", "SCHEDULE_TOPIC_XXXX"])
def test_system_topics_are_named_as_such(name: str) -> None:
    table = topics()
    table.ensure(name, queues=1)
    assert table.is_system(name)
    assert name in table.system_names()
    assert not table.is_system("C2")


@pytest.mark.parametrize("count", [-5, 0, 1, 7])
def test_a_queue_chosen_by_the_broker_exists(count: int) -> None:
    assert all(0 <= random_queue(count) < max(count, 1) for _ in range(20))


def test_who_has_caused_enough_topics_gets_no_more_by_sending() -> None:
    table = topics()
    table.creations = Creations(MemoryStateFile(), per_hour=3, now_ms=lambda: 1000)
    for number in range(3):
        table.for_send(f"new{number}", template="TBW102", queues=4, by="10.0.0.1")
    with pytest.raises(Refused, match=r"limits\.created_per_hour") as refused:
        table.for_send("new3", template="TBW102", queues=4, by="10.0.0.1")
    assert (refused.value.code, table.get("new3")) == (17, None)
    assert table.for_send("new0", template="TBW102", queues=4, by="10.0.0.1").name == "new0", "old ones are no matter"
    assert table.for_send("new3", template="TBW102", queues=4, by="10.0.0.2").name == "new3"
    assert len(table.creations) == 4
    table.put(Topic("new0", 4, 4))
    assert len(table.creations) == 3, "asked for by name now"


ROW = topic_to_json(Topic("T", 4, 4))


@pytest.mark.parametrize(
    ("content", "as_of"),
    [
        ({"topicConfigTable": {"T": ROW}, "asOf": 500}, 500),
        ({"topicConfigTable": {"T": ROW}, "asOf": 501}, 0),  # the log ends at 500
        ({"topicConfigTable": {"T": ROW, "U": {**ROW, "topicName": "U", "perm": 1.5}}, "asOf": 500}, 0),
        ({"topicConfigTable": {"T": ROW, "U": {**ROW, "topicName": "V"}}, "asOf": 500}, 0),
        ({"topicConfigTabl5": {"T": ROW}, "asOf": 500}, 0),
        ({"topicConfigTable": [], "asOf": 500}, 0),
        ({"topicConfigTable": {"T": ROW}, "asOf": "x"}, 0),
        ({"topicConfigTable": {"T": ROW}}, 0),
        ({}, 0),
    ],
)
def test_a_table_that_is_damaged_anywhere_knows_no_log_so_its_topics_come_back_from_it(
    content: dict[str, Any], as_of: int
) -> None:
    table = topics(MemoryStateFile(content), log_end=500)
    assert table.as_of == as_of
    assert all(topic == table.get(topic.name) for topic in table.all())
