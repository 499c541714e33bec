"""Stock administration: the admin library of both client generations, and the mqadmin command itself."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from appliance.broker.access.accounts import Account
from tests.interop import jars
from tests.interop.box import Box, Cluster, until
from tests.interop.client import producer, push_consumer, started, unique
from tests.interop.conftest import ONE_VERSION
from tests.interop.jvm import QUIET, Jvm

pytestmark = pytest.mark.slow


@contextmanager
def admin(jvm: Jvm, cluster: Cluster) -> Iterator[Any]:
    made = jvm.new("tools.admin.DefaultMQAdminExt")
    made.setAdminExtGroup(unique("admin"))
    with started(made, cluster.namesrv, {}):
        yield made


def create(jvm: Jvm, admin: Any, cluster: Box, topic: str, queues: int = 4) -> None:
    admin.createAndUpdateTopicConfig(cluster.broker, jvm.new("common.TopicConfig", topic, queues, queues, 6))


@ONE_VERSION
@pytest.mark.feature("administration: cluster, topics, statistics")
def test_topics_are_made_listed_counted_and_deleted(jvm: Jvm, cluster: Box) -> None:
    topic = unique("admin_topic")
    with admin(jvm, cluster) as tool, producer(jvm, cluster.namesrv) as client:
        info = tool.examineBrokerClusterInfo()
        (broker,) = list(info.getBrokerAddrTable())
        assert info.getBrokerAddrTable()[broker].selectBrokerAddr() == cluster.broker
        create(jvm, tool, cluster, topic, 3)
        assert topic in set(tool.fetchAllTopicList().getTopicList())
        for number in range(9):
            client.send(jvm.message(topic, str(number).encode()))
        table = tool.examineTopicStats(topic).getOffsetTable()
        assert sorted(queue.getQueueId() for queue in table) == [0, 1, 2]
        assert sum(table[queue].getMaxOffset() for queue in table) == 9
        tool.deleteTopicInBroker(jvm.cls("java.util.HashSet")(jvm.list_of([cluster.broker])), topic)
        until(lambda: topic not in set(tool.fetchAllTopicList().getTopicList()), seconds=60, what="still listed")


@pytest.mark.feature("administration: messages by key and by id")
def test_a_message_is_found_by_its_key_and_by_its_id(jvm: Jvm, cluster: Box) -> None:
    topic = unique("admin_query")
    with admin(jvm, cluster) as tool, producer(jvm, cluster.namesrv) as client:
        sent = client.send(jvm.message(topic, b"find me", keys="needle"))
        client.send(jvm.message(topic, b"not me", keys="hay"))

        def by_key() -> list[Any]:
            try:
                return list(tool.queryMessage(topic, "needle", 32, 0, int(time.time() * 1000) + 1000).getMessageList())
            except Exception:  # the index is written a moment after the message
                return []

        (found,) = until(by_key, seconds=60, what="not in the index")
        assert bytes(found.getBody()) == b"find me"
        assert bytes(tool.viewMessage(topic, sent.getOffsetMsgId()).getBody()) == b"find me"


@ONE_VERSION
@pytest.mark.feature("administration: progress of a group, reset by time of a connected consumer")
def test_progress_is_shown_and_a_reset_reaches_a_living_consumer(jvm: Jvm, cluster: Box) -> None:
    topic, group = unique("admin_reset"), unique("admin_group")
    with admin(jvm, cluster) as tool, producer(jvm, cluster.namesrv) as client:
        for number in range(8):
            client.send(jvm.message(topic, str(number).encode()))
        with push_consumer(jvm, cluster.namesrv, topic, group=group, PersistConsumerOffsetInterval=500) as collected:
            assert len(collected.wait_count(8)) == 8
            until(lambda: committed(tool, group) == 8, seconds=60, what="the group's offsets are not all committed")
            assert tool.examineConsumeStats(group).computeTotalDiff() == 0
            assert tool.examineConsumerConnectionInfo(group).getConnectionSet().size() == 1
            tool.resetOffsetByTimestamp(topic, group, 0, True)
            assert len(collected.wait_count(16, 40)) == 16


@pytest.mark.feature("administration: progress of a group, reset by time of a connected consumer", client="Java 5.5.0")
def test_a_group_that_never_consumed_gets_a_retry_policy_and_a_place_to_begin(jvm5: Jvm, cluster: Box) -> None:
    """What Apache's dashboard does for a group of which nobody is there: policy, then "reset", then "skip"."""
    topic, group, kinds = unique("admin_begin"), unique("admin_begin_group"), "remoting.protocol.subscription"
    with admin(jvm5, cluster) as tool, producer(jvm5, cluster.namesrv) as client:
        create(jvm5, tool, cluster, topic, 1)
        settings, policy = jvm5.new(f"{kinds}.SubscriptionGroupConfig"), jvm5.new(f"{kinds}.GroupRetryPolicy")
        policy.setType(jvm5.cls(f"{kinds}.GroupRetryPolicyType").EXPONENTIAL)
        policy.setExponentialRetryPolicy(jvm5.new(f"{kinds}.ExponentialRetryPolicy", 1000, 60_000, 3))
        settings.setGroupName(group)
        settings.setGroupRetryPolicy(policy)
        tool.createAndUpdateSubscriptionGroupConfig(cluster.broker, settings)
        kept = tool.examineSubscriptionGroupConfig(cluster.broker, group).getGroupRetryPolicy()
        assert [kept.getRetryPolicy().nextDelayDuration(n) for n in (0, 1, 2, 9)] == [1000, 3000, 9000, 60_000]
        for number in range(4):
            client.send(jvm5.message(topic, str(number).encode()))
        for time_ms, offset in ((0, 0), (-1, 4)):
            with pytest.raises(Exception, match="Consumer not online"):  # code 206: tools go on with the next call
                tool.resetOffsetByTimestamp(topic, group, time_ms, True)
            tool.resetOffsetByTimestampOld(group, topic, time_ms, True)
            assert tool.examineConsumeStats(group, topic).computeTotalDiff() == 4 - offset


@ONE_VERSION
@pytest.mark.feature("administration: state and stacks of a connected consumer, direct consumption")
def test_a_living_consumer_shows_its_stacks_and_consumes_what_it_is_told_to(jvm: Jvm, cluster: Box) -> None:
    topic, group = unique("admin_direct"), unique("admin_direct_group")
    with admin(jvm, cluster) as tool, producer(jvm, cluster.namesrv) as client:
        sent = client.send(jvm.message(topic, b"again please"))
        with push_consumer(jvm, cluster.namesrv, topic, group=group) as collected:
            assert len(collected.wait_count(1)) == 1
            (connection,) = list(tool.examineConsumerConnectionInfo(group).getConnectionSet())
            info = tool.getConsumerRunningInfo(group, connection.getClientId(), True)
            assert topic in {item.getTopic() for item in info.getSubscriptionSet()}
            assert "ConsumeMessageThread" in info.getJstack()
            answer = tool.consumeMessageDirectly(group, connection.getClientId(), topic, sent.getOffsetMsgId())
            assert answer.getConsumeResult().toString() == "CR_SUCCESS"
            assert len(collected.wait_count(2)) == 2


def committed(tool: Any, group: str) -> int:
    """Return how many messages of its topics the group has committed; 0 while nothing is."""
    try:
        table = tool.examineConsumeStats(group).getOffsetTable()
    except Exception:  # code 206 before the first commit
        return 0
    return sum(table[queue].getConsumerOffset() for queue in table if not queue.getTopic().startswith("%"))


@ONE_VERSION
@pytest.mark.feature("NameServer: key/value, order topics, write permission revoked and restored")
def test_the_name_servers_own_tables_are_changed_by_the_tool(jvm: Jvm, cluster: Box) -> None:
    topic = unique("admin_namesrv")
    with admin(jvm, cluster) as tool:
        create(jvm, tool, cluster, topic)
        (broker,) = list(tool.examineBrokerClusterInfo().getBrokerAddrTable())
        tool.createAndUpdateKvConfig("OWN", topic, "värde=1;2")
        assert tool.getKVConfig("OWN", topic) == "värde=1;2"
        tool.deleteKvConfig("OWN", topic)
        with pytest.raises(Exception, match="CODE: 22"):
            tool.getKVConfig("OWN", topic)
        tool.createOrUpdateOrderConf(topic, f"{broker}:2", False)
        assert tool.getKVConfig("ORDER_TOPIC_CONFIG", topic) == f"{broker}:2"
        if jvm.version < "4.9.2":
            return  # it can take the right to write from a broker, but not give it back
        assert tool.wipeWritePermOfBroker(cluster.namesrv, broker) > 0
        try:
            (row,) = tool.examineTopicRouteInfo(topic).getQueueDatas()
            assert row.getPerm() == 4
        finally:
            assert tool.addWritePermOfBroker(cluster.namesrv, broker) > 0
        (row,) = tool.examineTopicRouteInfo(topic).getQueueDatas()
        assert row.getPerm() == 6


@pytest.mark.feature("mqadmin: clusterList, topicList, updateTopic, topicStatus, brokerStatus")
@pytest.mark.parametrize("version", [pytest.param("4.9.7", marks=pytest.mark.soak), "5.5.0"])
def test_the_mqadmin_command_speaks_with_the_box(cluster: Box, version: str) -> None:
    topic = unique("mqadmin")
    asked = [
        (["updateTopic", "-b", cluster.broker, "-t", topic, "-r", "2", "-w", "2"], "success"),
        (["clusterList"], cluster.broker),
        (["topicList"], topic),
        (["topicStatus", "-t", topic], "#Max Offset"),
        (["brokerStatus", "-b", cluster.broker], "putTps"),
    ]
    for arguments, expected in asked:
        assert expected in mqadmin(version, [*arguments, "-n", cluster.namesrv]), arguments


def mqadmin(version: str, arguments: list[str], account: Account | None = None) -> str:
    """Return what the tool printed; it reads its account from conf/tools.yml."""
    try:
        path = ":".join(map(str, jars.fetch(version)))
        java = jars.java_command()
    except jars.Unavailable as error:
        pytest.skip(str(error))
    home = jars.CACHE / f"home-{version}{'-' + account.name if account else ''}"
    (home / "conf").mkdir(
        parents=True, exist_ok=True
    )  # 4.9 reads its logging from there, or talks about that all the time
    (home / "conf" / "logback_tools.xml").write_text(QUIET)
    if account is not None:
        (home / "conf" / "tools.yml").write_text(f"accessKey: {account.name}\nsecretKey: {account.secret}\n")
    options = [f"-Duser.home={home}", f"-Drocketmq.home.dir={home}", "-Xmx256m"]
    options.append("--add-opens=java.base/java.nio=ALL-UNNAMED")  # for Netty 4.0, of 4.9.0
    command = [*java, *options, "-cp", path, "org.apache.rocketmq.tools.command.MQAdminStartup", *arguments]
    # Some of its commands (consumerStatus) write folders named by the time into where they run.
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=90, check=False)
    return done.stdout + done.stderr
