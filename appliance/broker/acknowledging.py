"""When a send to a topic is answered: as the box says, or as the topic's own attribute does."""

from typing import Final

from appliance.broker.tables.topics import Topic, TopicTable
from netstack.errors import Refused
from netstack.wire.codes import ResponseCode
from storage_driver.interfaces import Marks
from storage_driver.log.marks import When

ACKNOWLEDGE: Final = "acknowledge"  # the attribute
BOTH: Final = "both"
NO_GROUP: Final = 'this box is not in a group (replication.role = "member"), it has one disk'


class SendAcknowledging:
    """Asks the group of this box, if it is in one, about topics that have a policy of their own."""

    def __init__(self, store: Marks, topics: TopicTable) -> None:
        self._store, self._topics = store, topics

    def check(self, topic: Topic) -> None:
        """Raise Refused with 14 while nothing that is sent to a topic can be answered: before it is stored."""
        policy, policies = topic.attributes.get(ACKNOWLEDGE), self._store.policies
        if policy is None:
            return
        reason = policies.why_not(policy) if policies is not None else NO_GROUP if policy == BOTH else ""
        if reason:
            text = f"service not available now: {reason}: topic {topic.name} has {ACKNOWLEDGE}={policy}"
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, text)

    def when(self, topic: Topic) -> When:
        """Return what tells of a log offset that sends to this topic may be answered up to there."""
        policy, policies = topic.attributes.get(ACKNOWLEDGE), self._store.policies
        if policy is None or policies is None:
            return self._store.when_acknowledged
        return policies.when(policy)

    def reached(self, topic: str) -> int:
        """Return the log offset up to which those who sent to a topic were answered."""
        policies, known = self._store.policies, self._topics.get(topic) if self._store.policies is not None else None
        policy = known.attributes.get(ACKNOWLEDGE) if known is not None else None
        return self._store.committed if policies is None or policy is None else policies.reached(policy)

    def topic_of(self, name: str) -> Topic:
        """Return a topic that something is stored in, or one without a policy when there is none. Raises Refused."""
        topic = self._topics.get(name) or Topic(name)
        self.check(topic)
        return topic
