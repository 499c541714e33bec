"""Names in requests: topics and groups, checked as Apache's proxy does. Source: RocketMQ 5.3 GrpcValidator."""

from functools import lru_cache
from typing import Any

from appliance.broker.tables.groups import INNER_PREFIX, MOST_NAME, is_group_name
from appliance.broker.tables.topics import SYSTEM_TOPICS, check_topic_name
from appliance.grpc.outcome import Rejection
from netstack.grpc.v2.definition_pb2 import Code

MOST_KNOWN = 512  # names that were good


def topic_of(resource: Any) -> str:
    """Return the topic's name. Raises Rejection. Its namespace is not looked at, as in Apache's proxy."""
    return _checked_topic(resource.name)


@lru_cache(MOST_KNOWN)
def _checked_topic(name: str) -> str:
    wrong = check_topic_name(name)
    if wrong:
        raise Rejection(Code.ILLEGAL_TOPIC, wrong)
    if name in SYSTEM_TOPICS or name.startswith("rmq_sys_"):
        raise Rejection(Code.ILLEGAL_TOPIC, f"cannot access system topic {name}")
    return name


def group_of(resource: Any) -> str:
    """Return the group's name. Raises Rejection."""
    return _checked_group(resource.name)


@lru_cache(MOST_KNOWN)
def _checked_group(name: str) -> str:
    if not is_group_name(name):
        text = f"the consumer group {name[:MOST_NAME]!r} is not a name of 1 to {MOST_NAME} of %|a-zA-Z0-9_-"
        raise Rejection(Code.ILLEGAL_CONSUMER_GROUP, text)
    if name.startswith(INNER_PREFIX):
        raise Rejection(Code.ILLEGAL_CONSUMER_GROUP, f"cannot use system consumer group {name}")
    return name
