"""The topics of this broker: which exist, how many queues they have, and when a send may create one.

A change is in force at once and on disk soon after. A topic made by a send needs no sync of its own: the send's record
is durable, and at recovery a topic with records above the table's own log offset is made again.
"""

import random
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from appliance.broker.tables.creations import TOPIC, Creations
from appliance.broker.tables.saving import SavedTable, TableFile, TableVersion, load_table, number, rows_of
from netstack.errors import Refused
from netstack.wire.codes import ResponseCode
from storage_driver.log.cut_history import GROUP_TOPICS
from storage_driver.named_tuple import NamedTuple

READ, WRITE, INHERIT = 4, 2, 1
AUTO_CREATE_TOPIC: Final = "TBW102"
RETRY_PREFIX, DEAD_PREFIX = "%RETRY%", "%DLQ%"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECKED_TOO_OFTEN_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC = "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
TRACE_TOPIC, BENCHMARK_TOPIC, PROBE_TOPIC = "RMQ_SYS_TRACE_TOPIC", "BenchmarkTest", "RBX_PROBE"
SYSTEM_TOPICS: Final = frozenset(
    {AUTO_CREATE_TOPIC, SCHEDULE_TOPIC, BENCHMARK_TOPIC, HALF_TOPIC, TRACE_TOPIC, OP_TOPIC}
    | {CHECKED_TOO_OFTEN_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC}
)
NOT_FOR_CLIENTS: Final = GROUP_TOPICS | frozenset(
    (SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, CHECKED_TOO_OFTEN_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC, TIMER_TOPIC)
)
FAQ: Final = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
MAX_NAME: Final = 127
MOST_QUEUES: Final = 1024 * 16  # of a topic on one broker


def is_reserved(name: str) -> bool:
    """Return whether a topic is the system's on every box."""
    return name in SYSTEM_TOPICS or name in GROUP_TOPICS or name.startswith("rmq_sys_")


class Topic(NamedTuple):
    """One topic record; queues above a lowered count keep their messages."""

    name: str
    read_queues: int = 16
    write_queues: int = 16
    perm: int = READ | WRITE
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = {}

    @property
    def queue_count(self) -> int:
        """A send may name a queue below this."""
        return max(self.read_queues, self.write_queues)

    @property
    def by_priority(self) -> bool:
        """The number of a queue is the priority of its messages."""
        return self.attributes.get("message.type") == "PRIORITY"

    @property
    def writable(self) -> bool:
        return bool(self.perm & WRITE)

    @property
    def readable(self) -> bool:
        return bool(self.perm & READ)

    def __str__(self) -> str:
        return (
            f"TopicConfig [topicName={self.name}, readQueueNums={self.read_queues}, "
            f"writeQueueNums={self.write_queues}, perm={self.perm}, order={str(self.order).lower()}]"
        )


class TopicRules(NamedTuple):
    """What the table needs of the configuration."""

    cluster: str
    broker: str
    auto_create: bool = True
    template_queues: int = 8
    delay_levels: int = 18
    trace_topic: bool = True
    most: int = 10_000


class TopicTable(SavedTable):
    """name -> Topic, with its version; the save mark of a change is what `when_saved` waits for."""

    def __init__(
        self, file: TableFile, rules: TopicRules, *, now_ms: Callable[[], int], log_end: Callable[[], int] | None = None
    ) -> None:
        self.rules, self._file = rules, file
        self._now_ms, self._log_end = now_ms, log_end or (lambda: 0)
        self.creations: Creations | None = None  # what was made by sending alone
        self._changes: list[Callable[[str], None]] = []
        super().__init__(file, self.to_json)
        self._topics: dict[str, Topic] = {}
        self.version, self.as_of = (
            TableVersion(0, 0),
            0,
        )  # the file knows every topic with records below this log offset
        self._load()

    def _load(self) -> None:
        content = load_table(self._file, "topics")
        self.version = TableVersion.from_json(content.get("dataVersion"), self._now_ms())
        rows, as_of = content.get("topicConfigTable"), content.get("asOf")
        found = rows_of(rows, topic_from_json, "topics")
        self._topics = {name: topic for name, topic in found.items() if name == topic.name}
        is_whole = isinstance(rows, dict) and len(self._topics) == len(rows)  # else what has messages comes from queues
        self.as_of = as_of if is_whole and isinstance(as_of, int) and as_of <= self._log_end() else 0
        self._add_first_topics()

    def load_again(self) -> None:
        """Take what others wrote into the file."""
        before = self._topics
        self._load()
        for name in before.keys() | self._topics.keys():
            if before.get(name) != self._topics.get(name):
                for callback in self._changes:
                    callback(name)

    def get(self, name: str) -> Topic | None:
        """Return the topic, None when there is none."""
        return self._topics.get(name)

    def all(self) -> list[Topic]:
        """Return every topic."""
        return list(self._topics.values())

    def names(self) -> list[str]:
        """Return every topic's name."""
        return list(self._topics)

    def __len__(self) -> int:
        return len(self._topics)

    def put(self, topic: Topic) -> int:
        """Create or replace a topic and return the save mark. Raises Refused at the limit."""
        self.check_room([topic.name])
        return self._put(topic)

    def _put(self, topic: Topic) -> int:
        if self.creations is not None:
            self.creations.forget(TOPIC, topic.name)
        self._topics[topic.name] = topic
        return self._changed(topic.name)

    def check_room(self, names: Iterable[str]) -> None:
        """Raise Refused when the limit allows not all of these topics."""
        more = sum(name not in self._topics for name in set(names))
        if more and len(self._topics) + more > self.rules.most:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"{len(self._topics)} topics, limits.topics allows {self.rules.most}: raise the limit or delete some",
            )

    def delete(self, name: str) -> int:
        """Remove a topic if it is there and return the save mark."""
        if self._topics.pop(name, None) is None:
            return self._saver.mark
        return self._changed(name)

    def for_send(self, name: str, *, template: str, queues: int, unit: bool = False, by: str = "") -> Topic:
        """Return the topic of a send, made from the template when it is not there, `by` this address. Raises Refused.

        Source: RocketMQ 4.9.8 TopicConfigManager.createTopicInSendMessageMethod.
        """
        topic = self._topics.get(name)
        if topic is not None:
            return topic
        creations = self.creations
        if creations is not None and not creations.allows(by, crowded=len(self._topics) * 2 > self.rules.most):
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, {creations.refusal('topic')}")
        topic = self._from_template(name, template, queues, unit)
        if topic is None and name.startswith(RETRY_PREFIX):
            topic = self.ensure(name, queues=1)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!{FAQ}")
        if creations is not None:
            creations.made(TOPIC, name)
        return topic

    def _from_template(self, name: str, template: str, queues: int, unit: bool) -> Topic | None:
        model = self._topics.get(template)
        if model is None or not model.perm & INHERIT or (template == AUTO_CREATE_TOPIC and not self.rules.auto_create):
            return None
        count = max(min(queues, model.write_queues), 0)
        perm, sys_flag = model.perm & ~INHERIT, int(unit)
        self.put(Topic(name, count, count, perm, model.filter_type, sys_flag))
        return self._topics[name]

    def ensure(self, name: str, *, queues: int, perm: int = READ | WRITE, unit: bool = False) -> Topic:
        """Return the topic, made with these values when it is not there."""
        topic = self._topics.get(name)
        if topic is None:
            topic = Topic(name, queues, queues, perm, sys_flag=int(unit))
            self.put(topic)
        return topic

    def make_again(self, name: str, queue_id: int) -> None:
        """Make the topic of a message that rested, if it is gone: as unused, since its messages did not lie in it.

        Only where sends make topics, and while the limit has room: else the message is stored without it.
        """
        if name in self._topics or not self.rules.auto_create or name in SYSTEM_TOPICS | GROUP_TOPICS:
            return
        least = 1 if name.startswith((RETRY_PREFIX, DEAD_PREFIX)) else self.rules.template_queues
        with suppress(Refused):
            self.ensure(name, queues=max(queue_id + 1, least))
            if self.creations is not None:
                self.creations.made(TOPIC, name)

    def recover(self, seen: Mapping[str, int]) -> list[str]:
        """Make topics again whose records are newer than the saved table; `seen` maps topic to highest queue id.

        Also above the limit: it may be lower since.
        """
        made = [name for name in seen if name not in self._topics and name not in SYSTEM_TOPICS | GROUP_TOPICS]
        for name in made:
            least = 1 if name.startswith((RETRY_PREFIX, DEAD_PREFIX)) else min(4, self.rules.template_queues)
            queues = max(seen[name] + 1, least)
            self._put(Topic(name, queues, queues, READ | WRITE))
        return made

    def is_system(self, name: str) -> bool:
        """Return whether administration may not touch this topic."""
        return is_reserved(name) or name in self._own_names()

    def system_names(self) -> set[str]:
        """Return the names that 305 lists."""
        own = set(SYSTEM_TOPICS) | self._own_names()
        return own | {name for name in self._topics if name.startswith("rmq_sys_")}

    def reply_topic(self) -> str:
        return f"{self.rules.cluster}_REPLY_TOPIC"

    def on_change(self, callback: Callable[[str], None]) -> None:
        """Call back with the topic's name after each change."""
        self._changes.append(callback)

    def to_json(self) -> dict[str, object]:
        """Return what `topics.json` holds; `asOf` is the log offset below which every topic with records is known."""
        table = {name: topic_to_json(topic) for name, topic in self._topics.items()}
        return {"dataVersion": self.version.to_json(), "topicConfigTable": table, "asOf": self._log_end()}

    def _own_names(self) -> set[str]:
        return {self.rules.cluster, self.rules.broker, self.reply_topic()}

    def _changed(self, name: str) -> int:
        self.version = self.version.next(self._now_ms())
        for callback in self._changes:
            callback(name)
        return self._saver.changed()

    def _add_first_topics(self) -> None:
        rules, both = self.rules, READ | WRITE
        first = [
            (SELF_TEST_TOPIC, 1, both),
            (AUTO_CREATE_TOPIC, rules.template_queues, both | INHERIT if rules.auto_create else both),
            (BENCHMARK_TOPIC, 1024, both),
            (rules.cluster, 16, both | INHERIT),
            (rules.broker, 1, both | INHERIT),
            (OFFSET_MOVED_TOPIC, 1, both),
            (SCHEDULE_TOPIC, rules.delay_levels, both),
            (self.reply_topic(), 1, both),
            (PROBE_TOPIC, 1, both),
        ]
        first += [(TRACE_TOPIC, 1, both)] if rules.trace_topic else []
        missing = [item for item in first if item[0] not in self._topics]
        for name, queues, perm in missing:
            if name != AUTO_CREATE_TOPIC or rules.auto_create:
                self._topics[name] = Topic(name, queues, queues, perm)
        if missing:
            self.version = self.version.next(self._now_ms())
            self._saver.changed()


def check_topic_name(name: str) -> str | None:
    """Return what is wrong with a topic name, None when it is legal. Source: RocketMQ 4.9.8 TopicValidator."""
    if not name or name.isspace():
        return "The specified topic is blank."
    if not LEGAL.fullmatch(name):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(name) > MAX_NAME:
        return f"The specified topic is longer than topic max length {MAX_NAME}."
    return None


def random_queue(count: int) -> int:
    """Return a queue for a sender who leaves the choice to the broker."""
    return int(random.random() * count) if count > 0 else 0


def topic_to_json(topic: Topic) -> dict[str, object]:
    """Return a topic as `topics.json` and the registration body spell it."""
    return {
        "attributes": dict(topic.attributes),
        "order": topic.order,
        "perm": topic.perm,
        "readQueueNums": topic.read_queues,
        "topicFilterType": topic.filter_type,
        "topicName": topic.name,
        "topicSysFlag": topic.sys_flag,
        "writeQueueNums": topic.write_queues,
    }


def topic_from_json(item: Mapping[str, object]) -> Topic:
    """Return the topic of a stored or sent record; absent fields take Apache's defaults."""
    attributes = item.get("attributes")
    return Topic(
        name=str(item["topicName"]),
        read_queues=number(item, "readQueueNums", 16),
        write_queues=number(item, "writeQueueNums", 16),
        perm=number(item, "perm", 6),
        filter_type=str(item.get("topicFilterType", "SINGLE_TAG")),
        sys_flag=number(item, "topicSysFlag", 0),
        order=bool(item.get("order", False)),
        attributes=dict(attributes) if isinstance(attributes, dict) else {},
    )
