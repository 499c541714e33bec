"""Where messages that were not acknowledged in time come again: a topic for each group and topic. Sans I/O.

RocketMQ has two namings: `%RETRY%group_topic`, which can be read in two ways, and `%RETRY%group+topic`
(`enableRetryTopicV2`). Both are consumed; new messages go to the one that is there, else to the first.
Source: RocketMQ 5.5.0 KeyBuilder.
"""

from collections.abc import Callable
from enum import IntEnum

RETRY_PREFIX = "%RETRY%"
FIRST_POP_TIME, ORIGIN_GROUP = "1ST_POP_TIME", "ORIGIN_GROUP"


class TopicKind(IntEnum):
    """Which of its topics a message of a group came from, as handles spell it. Source: ExtraInfoUtil."""

    NORMAL = 0
    RETRY = 1
    RETRY_V2 = 2


def retry_topic(group: str, topic: str, kind: TopicKind = TopicKind.RETRY) -> str:
    """Return the retry topic of a group and topic, the topic itself for NORMAL."""
    if kind is TopicKind.NORMAL:
        return topic
    return f"{RETRY_PREFIX}{group}{'_' if kind is TopicKind.RETRY else '+'}{topic}"


def retry_topic_to_write(group: str, topic: str, exists: Callable[[str], bool]) -> str:
    """Return where a message comes again; one of a retry topic stays in it."""
    if topic.startswith(RETRY_PREFIX):
        return topic
    first, second = retry_topic(group, topic), retry_topic(group, topic, TopicKind.RETRY_V2)
    return second if exists(second) and not exists(first) else first


def first_topic(group: str, topic: str) -> str:
    """Return the topic whose messages come again in a retry topic of POP; any other topic as it is."""
    if not topic.startswith(RETRY_PREFIX):
        return topic
    for kind in (TopicKind.RETRY, TopicKind.RETRY_V2):
        before = retry_topic(group, "", kind)
        if topic.startswith(before) and len(topic) > len(before):
            return topic[len(before) :]
    return topic
