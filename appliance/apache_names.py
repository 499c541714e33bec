"""The box's settings under the names Apache's tools know (codes 26 and 319). Nothing secret is among them."""

from appliance.configuration.group_settings import BOTH, read_members
from appliance.configuration.settings import MEMBER_ROLE, SLAVE_ROLE, Config
from appliance.namesrv.apache_config import namesrv_options

MIB = 1 << 20


def broker_properties(config: Config, address: str, *, follows: bool = False) -> dict[str, object]:
    """Return what GET_BROKER_CONFIG shows; `address` is host:port as routes name it at home."""
    rules, store, limits = config.broker, config.store, config.limits
    return _place(config, address, follows=follows) | {
        "brokerPermission": rules.permission,
        "regionId": rules.region,
        "traceOn": rules.trace_on,
        "autoCreateTopicEnable": rules.auto_create_topics,
        "defaultTopicQueueNums": store.queues_default,
        "autoCreateSubscriptionGroup": rules.auto_create_groups,
        "traceTopicEnable": rules.trace_topic,
        "msgTraceTopicName": "RMQ_SYS_TRACE_TOPIC",
        "filterServerNums": 0,  # exportConfigs of 4.9 fails without this and the next
        "useTLS": config.tls.mode == "enforcing",
        "registerNameServerPeriod": config.namesrv.register_s * 1000,
        "longPollingEnable": rules.long_poll,
        "maxTransferCountOnMessageInMemory": rules.pull_messages,
        "notifyConsumerIdsChangedEnable": rules.notify_members,
        "enablePropertyFilter": rules.property_filter,
        "rejectTransactionMessage": rules.reject_transactions,
        "transactionTimeOut": rules.transaction_timeout_s * 1000,
        "transactionCheckMax": rules.transaction_checks,
        "transactionCheckInterval": rules.transaction_check_s * 1000,
        "maxMessageSize": limits.message_mib * MIB,
        "flushDiskType": "SYNC_FLUSH",
        "mapedFileSizeCommitLog": store.segment_mib * MIB,
        "mappedFileSizeCommitLog": store.segment_mib * MIB,  # the same, as brokers since 4.3 spell it
        "fileReservedTime": store.retention_h,
        "messageDelayLevel": rules.delay_levels,
        "maxDelayTime": rules.timer_days * 86_400,
        "slaveReadEnable": config.replication.slave_reads,
        "aclEnable": config.access.mode == "keys",
    }


def _place(config: Config, address: str, *, follows: bool) -> dict[str, object]:
    """Return which broker of its cluster it is, and where."""
    host, _, port = address.rpartition(":")
    is_slave, number = config.replication.role == SLAVE_ROLE, config.replication.broker_id
    role = "SLAVE" if is_slave else "ASYNC_MASTER"
    if config.replication.role == MEMBER_ROLE:  # a follower's number is its place in the list
        is_slave, number = follows, list(read_members(config.group)).index(config.group.member) + 1
        role = "SLAVE" if follows else "SYNC_MASTER" if config.group.acknowledge == BOTH else "ASYNC_MASTER"
    return {
        "brokerName": config.box.name,
        "brokerClusterName": config.box.cluster,
        "brokerId": number if is_slave else 0,
        "brokerRole": role,
        "brokerIP1": host,
        "brokerIP2": host,
        "listenPort": port,
        "namesrvAddr": ";".join(config.namesrv.register_at),
    }


def namesrv_properties(config: Config) -> dict[str, object]:
    """Return what GET_NAMESRV_CONFIG shows."""
    return namesrv_options(config)
