"""The official Java client with binary headers (`rocketmq.serialize.type=ROCKETMQ`) instead of those in JSON."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop import jars
from tests.interop.box import Box, Foreign
from tests.interop.client import Seen, producer, push_consumer, started, unique
from tests.interop.conftest import JAVA_VERSIONS
from tests.interop.jvm import Jvm

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=JAVA_VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def binary(version: str) -> Iterator[Jvm]:
    try:
        jvm = Jvm(version, ["-Drocketmq.serialize.type=ROCKETMQ"])
    except jars.Unavailable as error:
        pytest.skip(str(error))
    yield jvm
    jvm.close()


@pytest.mark.feature("binary headers: send, batch, refusals, push, retry, lite pull")
def test_a_client_with_binary_headers_sends_and_consumes(binary: Jvm, cluster: Box | Foreign) -> None:
    topic, jvm = unique("binary"), binary
    assert jvm.cls("remoting.protocol.RemotingCommand").getSerializeTypeConfigInThisServer().toString() == "ROCKETMQ"

    def fail_once(batch: list[Seen], context: Any) -> str:
        context.setDelayLevelWhenNextConsume(1)
        again = any(each.body == b"again" and not each.reconsume_times for each in batch)
        return "RECONSUME_LATER" if again else "CONSUME_SUCCESS"

    with producer(jvm, cluster.namesrv, MaxMessageSize=8 << 20, RetryTimesWhenSendFailed=0) as client:
        client.setCompressMsgBodyOverHowmuch(1 << 30)
        queue = client.send(jvm.message(topic, b"0", tags="t", keys="k", läge="über ✓ 😀")).getMessageQueue()
        client.send(jvm.message(topic, b"again"))
        client.send(jvm.list_of(jvm.message(topic, body) for body in (b"1", b"2")))
        with pytest.raises(Exception, match="CODE: 13"):
            client.send(jvm.message(topic, b"x" * (5 << 20)))
        one: dict[str, Any] = {"ConsumeMessageBatchMaxSize": 1}
        with push_consumer(jvm, cluster.namesrv, topic, answer=fail_once, **one) as collected:
            seen = collected.wait_count(5, 60)
        lite = jvm.new("client.consumer.DefaultLitePullConsumer", unique("binary_lite"))
        with started(lite, cluster.namesrv, {"AutoCommit": False}):
            lite.assign(jvm.list_of([queue]))
            lite.seek(queue, 0)
            polled = Seen.read_all(jvm, lite.poll(10_000))
    assert sorted(each.body for each in seen) == [b"0", b"1", b"2", b"again", b"again"]
    (first,) = [each for each in seen if each.body == b"0"]
    assert (first.tags, first.keys, first.properties["läge"]) == ("t", "k", "über ✓ 😀")
    assert polled[0].body in (b"0", b"1")
