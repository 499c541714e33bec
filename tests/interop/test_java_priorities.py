"""Priorities by the official Java client of 5.5: messages of a topic with `message.type=PRIORITY`, received by POP."""

import pytest

from tests.interop.box import Box
from tests.interop.jvm import Jvm
from tests.interop.test_java_admin import mqadmin
from tests.interop.test_java_pop import popper

pytestmark = pytest.mark.slow


@pytest.mark.feature("POP: messages by priority", client="Java 5.5.0")
def test_the_highest_priority_comes_first_and_a_group_may_leave_it(jvm5: Jvm, cluster: Box) -> None:
    with popper(jvm5, cluster) as (pop, client):
        of_topic = ["-t", pop.topic, "-r", "4", "-w", "4", "-a", "+message.type=PRIORITY"]
        assert "success" in mqadmin("5.5.0", ["updateTopic", "-b", pop.address, *of_topic, "-n", cluster.namesrv])

        def sent(priority: int) -> int:
            message = jvm5.message(pop.topic, b"%d" % priority)
            message.setPriority(priority)
            return int(client.send(message).getMessageQueue().getQueueId())

        assert [sent(priority) for priority in (0, 2, 1, 9, 0, 3)] == [0, 2, 1, 3, 0, 3]
        assert [pop.until_popped(most=1)[0][0].body for _ in range(6)] == ["9", "3", "2", "1", "0", "0"]
        of_group = ["-g", pop.group, "--attributes", "+priority.factor=0"]
        assert "success" in mqadmin("5.5.0", ["updateSubGroup", "-b", pop.address, *of_group, "-n", cluster.namesrv])
        for n in range(40):
            sent(n % 4)
        assert len({pop.until_popped(most=1)[0][0].body for _ in range(10)}) > 1  # all of one queue: one in 260,000
