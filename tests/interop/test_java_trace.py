"""Message trace, with the official Java client of both generations: mqadmin finds who sent and who consumed what."""

import time
from functools import partial
from typing import Any

import pytest

from tests.interop.box import Box, until
from tests.interop.client import producer, push_consumer, unique
from tests.interop.conftest import ONE_VERSION
from tests.interop.jvm import Jvm
from tests.interop.test_java_admin import mqadmin

pytestmark = pytest.mark.slow

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
IN_TIME_S = 60


def tracing(jvm: Jvm, name: str, group: str) -> Any:
    """Return a client with the trace on: up to 5.2 it says so in its constructor, later in its settings."""
    if jvm.version < "5.3":
        return jvm.new(name, group, True, TRACE_TOPIC)
    made = jvm.new(name, group)
    made.setEnableTrace(True)
    return made


@ONE_VERSION
@pytest.mark.feature("message trace: producer and consumer, mqadmin queryMsgTraceById")
def test_what_tracing_clients_did_with_a_message_is_found_by_its_id(jvm: Jvm, cluster: Box) -> None:
    topic, sender, reader = unique("traced"), unique("traced_sender"), unique("traced_reader")
    began_ms, make = int(time.time() * 1000) - 60_000, partial(tracing, jvm)

    def traced(message_id: str) -> str:
        asked = ["queryMsgTraceById", "-i", message_id, "-t", TRACE_TOPIC, "-n", cluster.namesrv]
        if jvm.version >= "5.1.1":
            asked += ["-b", str(began_ms), "-e", str(began_ms + 600_000)]
        said = mqadmin(jvm.version, asked)
        return said if sender in said and reader in said else ""

    with producer(jvm, cluster.namesrv, group=sender, make=make) as client:
        sent = client.send(jvm.message(topic, b"seen by many", tags="t", keys="k"))
        with push_consumer(jvm, cluster.namesrv, topic, group=reader, make=make) as collected:
            (got,) = collected.wait_count(1, IN_TIME_S)
            assert got.message_id == sent.getMsgId()
            # While both live: at its end a client gives its last traces half a second.
            said = until(lambda: traced(got.message_id), seconds=IN_TIME_S, what="the trace of both")
    assert "Pub" in said
    assert "Sub" in said
    assert "success" in said
