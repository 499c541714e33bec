"""Ext headers of the NameServer's requests and replies. Source: RocketMQ 4.9.8 protocol.header.namesrv."""

from typing import Annotated

from netstack.lazy import value_class
from netstack.wire.ext import ExtHeader, Int32


@value_class
class RouteHeader(ExtHeader):
    """105."""

    topic: str
    standard_json_only: Annotated[bool, "acceptStandardJsonOnly"] = False


@value_class
class RegisterBrokerHeader(ExtHeader):
    """103. `body_crc32` 0 = do not check, else of the body as sent."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: int
    compressed: bool = False
    body_crc32: Int32 = 0
    heartbeat_timeout_ms: Annotated[int | None, "heartbeatTimeoutMillis"] = None
    enable_acting_master: bool | None = None
    zone_name: Annotated[str | None, "__ZONE_NAME"] = None


@value_class
class RegisterBrokerReply(ExtHeader):
    ha_server_addr: str | None = None
    master_addr: str | None = None


@value_class
class BrokerHeader(ExtHeader):
    """104 and 322."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


@value_class
class DataVersionReply(ExtHeader):
    """To 322."""

    changed: bool


@value_class
class BrokerNameHeader(ExtHeader):
    """205 and 327."""

    broker_name: str


@value_class
class WipeWritePermReply(ExtHeader):
    """To 205."""

    wipe_topic_count: Int32


@value_class
class AddWritePermReply(ExtHeader):
    """To 327."""

    add_topic_count: Int32


@value_class
class DeleteTopicInNamesrvHeader(ExtHeader):
    """216."""

    topic: str
    cluster_name: str | None = None


@value_class
class ClusterHeader(ExtHeader):
    """224."""

    cluster: str


@value_class
class PutKvHeader(ExtHeader):
    """100."""

    namespace: str
    key: str
    value: str


@value_class
class KvHeader(ExtHeader):
    """101 and 102."""

    namespace: str
    key: str


@value_class
class KvReply(ExtHeader):
    """To 101."""

    value: str | None = None


@value_class
class NamespaceHeader(ExtHeader):
    """219."""

    namespace: str
