"""Ext headers of administration at the broker, requests and replies. Source: RocketMQ 4.9.8 and 5.3 protocol.header."""

from typing import Annotated

from netstack.lazy import value_class
from netstack.wire.ext import ExtHeader, Int32


@value_class
class CreateTopicHeader(ExtHeader):
    """17. `attributes` is `+key=value,-key` and comes from 5.x."""

    topic: str
    default_topic: str
    read_queue_count: Annotated[Int32, "readQueueNums"]
    write_queue_count: Annotated[Int32, "writeQueueNums"]
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: str | None = None
    force: bool = False


@value_class
class VersionReply(ExtHeader):
    """To 26: the DataVersion as JSON."""

    version: str


@value_class
class AclAccountHeader(ExtHeader):
    """50. Permissions are comma lists, `T=PUB,U=SUB`."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


@value_class
class DeleteAclHeader(ExtHeader):
    """51."""

    access_key: str


@value_class
class AclVersionReply(ExtHeader):
    """To 52; versions are DataVersion JSON."""

    version: str
    broker_name: str
    broker_addr: str
    cluster_name: str
    all_acl_file_version: str | None = None


@value_class
class WhiteAddressesHeader(ExtHeader):
    """53."""

    global_white_addrs: str
    acl_file_full_path: str | None = None


@value_class
class TopicHeader(ExtHeader):
    """202, 215, 300, 351."""

    topic: str


@value_class
class GroupHeader(ExtHeader):
    """343, 352."""

    group: str


@value_class
class TopicGroupHeader(ExtHeader):
    """303, 345."""

    group: str
    topic: str | None = None


@value_class
class GroupForbiddenHeader(ExtHeader):
    """353."""

    group: str
    topic: str
    readable: bool | None = None  # None: only asked


@value_class
class ProducerGroupHeader(ExtHeader):
    """204."""

    producer_group: str


@value_class
class DeleteGroupHeader(ExtHeader):
    """207. 4.9 says removeOffset, 5.x cleanOffset."""

    group_name: str
    remove_offset: bool = False
    clean_offset: bool = False


@value_class
class ConsumeStatsHeader(ExtHeader):
    """208. No topic means all with offsets; `topic_list` is separated by semicolons (5.x)."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@value_class
class CorrectionOffsetHeader(ExtHeader):
    """308. `filter_groups` is a comma list."""

    topic: str
    compare_group: str
    filter_groups: str | None = None


@value_class
class CloneOffsetHeader(ExtHeader):
    """314."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@value_class
class BrokerStatsHeader(ExtHeader):
    """315."""

    stats_name: str
    stats_key: str


@value_class
class AllConsumeStatsHeader(ExtHeader):
    """317."""

    is_order: bool = False


@value_class
class ConsumeQueueHeader(ExtHeader):
    """321."""

    topic: str
    queue_id: Int32
    queue_offset: Annotated[int, "index"]
    count: Int32
    consumer_group: str | None = None
