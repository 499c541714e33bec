"""The official Go client and the Node client, as small programs of their own, against the box."""

from typing import Any

import pytest

from tests.interop.box import Box, Foreign
from tests.interop.client import unique
from tests.interop.programs import Program, finished
from tests.interop.wire import make_topic

pytestmark = pytest.mark.slow

GO, NODE = "Go 2.1.2", "Node ali-ons 3.12.0"


def new_topic(program: Program, cluster: Box | Foreign, what: str) -> str:
    """Return a name; the Node client cannot make a topic by sending to it, so for it the topic is there already."""
    topic = unique(f"{program.name}_{what}")
    if program.name == "node":
        if isinstance(cluster, Foreign):
            pytest.skip("INTEROP_NAMESRV names no broker on which a topic could be made")
        make_topic(cluster.broker, topic)
    return topic


def consumed(program: Program, cluster: Box | Foreign, topic: str, count: int, tags: str = "*") -> list[dict[str, Any]]:
    return program.run("consume", cluster.namesrv, topic, unique(f"{program.name}_group"), count, tags)


def check_intact(seen: list[dict[str, Any]], sender: str, count: int) -> None:
    assert sorted(int(each["properties"]["number"]) for each in seen) == list(range(count))
    for each in seen:
        number = int(each["properties"]["number"])
        assert (each["body"], each["tags"], each["keys"]) == (
            f"{sender} {number} ✓",
            f"tag{number % 3}",
            f"key-{number}",
        )
        assert each["properties"]["läge"] == "über ✓ 漢字 😀"


def send_and_consume(program: Program, cluster: Box | Foreign, how: str, count: int) -> None:
    topic = new_topic(program, cluster, how)
    program.run(how, cluster.namesrv, topic, count)
    check_intact(consumed(program, cluster, topic, count), program.name, count)


@pytest.mark.feature("sync send; push consumer; keys, tags, unicode properties, bodies", client=GO)
def test_go_sends_and_consumes(go: Program, cluster: Box | Foreign) -> None:
    send_and_consume(go, cluster, "send", 200)


@pytest.mark.feature("async send", client=GO)
def test_go_sends_without_waiting(go: Program, cluster: Box | Foreign) -> None:
    send_and_consume(go, cluster, "async", 200)


@pytest.mark.feature("one-way send", client=GO)
def test_go_sends_one_way(go: Program, cluster: Box | Foreign) -> None:
    send_and_consume(go, cluster, "oneway", 50)


@pytest.mark.feature("batch send", client=GO)
def test_go_sends_a_batch(go: Program, cluster: Box | Foreign) -> None:
    send_and_consume(go, cluster, "batch", 50)


@pytest.mark.feature("filter by tag", client=GO)
def test_go_gets_only_the_tags_it_asked_for(go: Program, cluster: Box | Foreign) -> None:
    topic = unique("go_tags")
    go.run("send", cluster.namesrv, topic, 30)
    seen = consumed(go, cluster, topic, 20, "tag0 || tag2")
    assert {each["tags"] for each in seen} == {"tag0", "tag2"}


@pytest.mark.feature("delay levels", client=GO)
def test_a_delayed_message_of_go_is_never_early(go: Program, cluster: Box | Foreign) -> None:
    delayed(go, cluster)


@pytest.mark.feature("retry: a failed message is delivered again", client=GO)
def test_a_message_that_go_failed_comes_again(go: Program, cluster: Box | Foreign) -> None:
    retried(go, cluster)


@pytest.mark.feature("transactions: commit, rollback, check-back", client=GO)
def test_go_sees_only_its_committed_transaction(go: Program, cluster: Box | Foreign) -> None:
    topic = unique("go_transaction")
    go.run("transaction", cluster.namesrv, topic)
    go.run("send", cluster.namesrv, topic, 1)
    seen = consumed(go, cluster, topic, 2)
    assert {each["body"] for each in seen} == {"commit", "go 0 ✓"}


@pytest.mark.feature("sync send; push consumer; keys, tags, unicode properties, bodies", client=NODE)
def test_node_sends_and_consumes(node: Program, cluster: Box | Foreign) -> None:
    send_and_consume(node, cluster, "send", 100)


@pytest.mark.feature("filter by tag", client=NODE)
def test_node_gets_only_the_tags_it_asked_for(node: Program, cluster: Box | Foreign) -> None:
    topic = new_topic(node, cluster, "tags")
    node.run("send", cluster.namesrv, topic, 30)
    assert {each["tags"] for each in consumed(node, cluster, topic, 20, "tag0 || tag2")} == {"tag0", "tag2"}


@pytest.mark.feature("delay levels", client=NODE)
def test_a_delayed_message_of_node_is_never_early(node: Program, cluster: Box | Foreign) -> None:
    delayed(node, cluster)


@pytest.mark.feature("retry: a failed message is delivered again", client=NODE)
def test_a_message_that_node_failed_comes_again(node: Program, cluster: Box | Foreign) -> None:
    retried(node, cluster)


@pytest.mark.feature("messages of a client in another language", client=GO)
def test_go_and_node_read_each_other(go: Program, node: Program, cluster: Box | Foreign) -> None:
    topic = unique("both")
    go.run("send", cluster.namesrv, topic, 20)
    check_intact(consumed(node, cluster, topic, 20), "go", 20)
    topic = new_topic(node, cluster, "both")
    node.run("send", cluster.namesrv, topic, 20)
    check_intact(consumed(go, cluster, topic, 20), "node", 20)


def delayed(program: Program, cluster: Box | Foreign) -> None:
    topic = new_topic(program, cluster, "delay")
    program.run("delay", cluster.namesrv, topic, 1)
    (seen,) = consumed(program, cluster, topic, 1)
    assert seen["store_ms"] - seen["born_ms"] >= 1000


def retried(program: Program, cluster: Box | Foreign) -> None:
    topic = new_topic(program, cluster, "retry")
    program.run("send", cluster.namesrv, topic, 1)
    seen = finished(program.start("retry", cluster.namesrv, topic, unique("retry_group")))
    assert [(each["body"], each["reconsume_times"]) for each in seen] == [
        (f"{program.name} 0 ✓", 0),
        (f"{program.name} 0 ✓", 1),
    ]
