"""Every request that a box answers, one row each: who answers it, who may send it, its header, what it needs.

Permissions, grants, signed fields and the documentation are made from these rows. A code without a row is never done
over TCP. Source of codes and headers: RocketMQ 4.9.8 and 5.3 RequestCode, `common/protocol/header`.
"""

from enum import Enum

from netstack.wire.codes import RequestCode
from storage_driver.named_tuple import NamedTuple


class AccessClass(Enum):
    """The condition for sending a request."""

    DATA = "data"  # by access.mode
    READ = "read administration"
    CHANGE = "change administration"  # by access.admin
    JOIN = "registration"  # other brokers at the name server: they steer where clients send
    ACCOUNTS = "accounts"  # keys are handed out by those who have one


class Needs(Enum):
    """What the account of a signed data request must be granted; `resources.py` reads it from the request."""

    SIGNATURE = "a signature"  # or the handler knows the owner
    SEND = "PUB on the topic"
    REPLY = "PUB on the topic, a signature for a reply topic"
    RECALL = "PUB on the topic of the handle"
    PULL = "SUB on the topic and the group"
    GROUP_OF_RETRY = "SUB on the group that sends back"
    GROUP = "SUB on the group"
    TOPIC = "SUB on the topic"
    ANY_TOPIC = "SUB on topics that are not listed"
    HEARTBEAT = "SUB on each group and topic of the body"
    LEAVE = "SUB on the consumer group, if one is named"
    LOCK = "SUB on the group and the topics of the body"
    ASSIGNMENT = "SUB on the topic and the group of the body"
    EDGES = "PUB or SUB on the topic"
    POP = "SUB on the topic and the group, whatever retry topic is named"
    POP_BATCH = "SUB on the topics and the groups of the body"


class Loaded(Enum):
    """When the handler of a request is imported: requests of tools cost nothing at the start."""

    AT_START = "at start"
    WITH_QUERY = "with the first query of messages"
    WITH_TOOL = "with the first request of a tool"
    WITH_POP = "with the first request of POP"


class Server(Enum):
    """The server that answers."""

    BROKER = "broker"
    NAMESRV = "name server"
    BOTH = "broker and name server"


class RequestRow(NamedTuple):
    """One request code.

    `header`: module and class of its fields in `netstack.wire`; `fields`: more that it may carry; `body`: a change
    with a body; no other change may have one.
    """

    code: int
    server: Server
    access: AccessClass
    summary: str
    header: str = ""
    needs: Needs = Needs.SIGNATURE
    loaded: Loaded = Loaded.AT_START
    fields: tuple[str, ...] = ()
    body: bool = False


_C = RequestCode
_M, _H, _A, _N, _P = "message_headers.", "headers.", "headers_admin.", "headers_namesrv.", "headers_pop."


def _data(code: int, summary: str, header: str = "", needs: Needs = Needs.SIGNATURE) -> RequestRow:
    return RequestRow(code, Server.BROKER, AccessClass.DATA, summary, header, needs)


def _query(code: int, access: AccessClass, summary: str, header: str, needs: Needs = Needs.SIGNATURE) -> RequestRow:
    return RequestRow(code, Server.BROKER, access, summary, header, needs, Loaded.WITH_QUERY)


def _tool(code: int, access: AccessClass, summary: str, header: str = "", fields: tuple[str, ...] = ()) -> RequestRow:
    return RequestRow(code, Server.BROKER, access, summary, header, loaded=Loaded.WITH_TOOL, fields=fields)


def _list(code: int, summary: str) -> RequestRow:
    return RequestRow(code, Server.BROKER, AccessClass.CHANGE, summary, loaded=Loaded.WITH_TOOL, body=True)


def _pop(code: int, summary: str, header: str = "", needs: Needs = Needs.POP) -> RequestRow:
    return RequestRow(code, Server.BROKER, AccessClass.DATA, summary, header, needs, Loaded.WITH_POP)


def _namesrv(code: int, access: AccessClass, summary: str, header: str = "") -> RequestRow:
    return RequestRow(code, Server.NAMESRV, access, summary, header)


_DATA, _READ, _CHANGE, _JOIN = AccessClass.DATA, AccessClass.READ, AccessClass.CHANGE, AccessClass.JOIN
_PUBLISH = (
    _data(_C.SEND_MESSAGE, "store one message", _M + "SendMessageHeader", Needs.SEND),
    _data(_C.SEND_MESSAGE_V2, "store one message, short field names", _M + "SendMessageHeader", Needs.SEND),
    _data(_C.SEND_BATCH_MESSAGE, "store a batch of messages", _M + "SendMessageHeader", Needs.SEND),
    _data(_C.SEND_REPLY_MESSAGE, "send a reply to a requester", _M + "SendMessageHeader", Needs.REPLY),
    _data(_C.SEND_REPLY_MESSAGE_V2, "the same, short field names", _M + "SendMessageHeader", Needs.REPLY),
    _data(_C.END_TRANSACTION, "commit or roll back a half message", _H + "EndTransactionHeader"),
    _data(_C.RECALL_MESSAGE, "recall a timed message", _H + "RecallHeader", Needs.RECALL),
)
_CONSUME = (
    _data(_C.PULL_MESSAGE, "read messages of a queue, or wait for them", _M + "PullMessageHeader", Needs.PULL),
    _data(_C.LITE_PULL_MESSAGE, "the same for the 5.x lite pull consumer", _M + "PullMessageHeader", Needs.PULL),
    _data(_C.CONSUMER_SEND_MSG_BACK, "retry a message later", _H + "SendBackHeader", Needs.GROUP_OF_RETRY),
    _data(_C.HEART_BEAT, "name the groups and subscriptions of a client", "", Needs.HEARTBEAT),
    _data(_C.UNREGISTER_CLIENT, "leave a group", _H + "UnregisterClientHeader", Needs.LEAVE),
    _data(_C.CHECK_CLIENT_CONFIG, "check a subscription"),
    _data(_C.GET_CONSUMER_LIST_BY_GROUP, "list the members of a group", _H + "ConsumerGroupHeader", Needs.GROUP),
    _data(_C.QUERY_CONSUMER_OFFSET, "get a consumer offset", _H + "QueryConsumerOffsetHeader", Needs.PULL),
    _data(_C.UPDATE_CONSUMER_OFFSET, "store a consumer offset", _H + "UpdateConsumerOffsetHeader", Needs.PULL),
    _data(_C.LOCK_BATCH_MQ, "lock queues for orderly consumption", "", Needs.LOCK),
    _data(_C.UNLOCK_BATCH_MQ, "unlock queues", "", Needs.LOCK),
    _data(_C.SEARCH_OFFSET_BY_TIMESTAMP, "find the offset of a time", _H + "SearchOffsetHeader", Needs.EDGES),
    _data(_C.GET_MAX_OFFSET, "get the end of a queue", _H + "QueueHeader", Needs.EDGES),
    _data(_C.GET_MIN_OFFSET, "get the start of a queue", _H + "QueueHeader", Needs.EDGES),
    _data(_C.GET_EARLIEST_MSG_STORETIME, "get the time of the first message", _H + "QueueHeader", Needs.EDGES),
    _data(_C.QUERY_ASSIGNMENT, "assign queues to a 5.x member", "", Needs.ASSIGNMENT),
)
_POP = (
    _pop(_C.POP_MESSAGE, "take messages for a time, or wait for them", _P + "PopMessageHeader"),
    _pop(_C.ACK_MESSAGE, "acknowledge a message that was taken", _P + "AckMessageHeader"),
    _pop(_C.BATCH_ACK_MESSAGE, "acknowledge several", "", Needs.POP_BATCH),
    _pop(_C.CHANGE_MESSAGE_INVISIBLETIME, "take a message for longer or shorter", _P + "ChangeInvisibleTimeHeader"),
    _pop(_C.PEEK_MESSAGE, "read the next messages of a group without taking them", _P + "PeekMessageHeader"),
    _pop(_C.NOTIFICATION, "wait until there are messages to take", _P + "NotificationHeader"),
    _pop(_C.POLLING_INFO, "count the receivers that wait", _P + "PollingInfoHeader"),
    RequestRow(
        *(
            _C.SET_MESSAGE_REQUEST_MODE,
            Server.BROKER,
            AccessClass.CHANGE,
            "let a group consume a topic by POP or pulls",
        ),
        loaded=Loaded.WITH_POP,
        body=True,
    ),
    RequestRow(
        *(_C.GET_ALL_MESSAGE_REQUEST_MODE, Server.BROKER, AccessClass.READ, "list the groups that consume by POP"),
        loaded=Loaded.WITH_POP,
    ),
)
_QUERY = (
    _query(_C.QUERY_MESSAGE, _DATA, "find messages by key", _H + "QueryMessageHeader", Needs.TOPIC),
    _query(_C.VIEW_MESSAGE_BY_ID, _DATA, "get a message by its id", _H + "ViewMessageHeader", Needs.ANY_TOPIC),
    _query(_C.QUERY_CONSUME_QUEUE, _READ, "list the entries of a queue", _A + "ConsumeQueueHeader"),
)
_TOPICS = (
    _tool(_C.UPDATE_AND_CREATE_TOPIC, _CHANGE, "create or change a topic", _A + "CreateTopicHeader"),
    _list(_C.UPDATE_AND_CREATE_TOPIC_LIST, "create or change topics"),
    _tool(_C.DELETE_TOPIC_IN_BROKER, _CHANGE, "delete a topic", _A + "TopicHeader"),
    _tool(_C.CLEAN_UNUSED_TOPIC, _CHANGE, "delete queues without a topic"),
    _tool(_C.GET_ALL_TOPIC_CONFIG, _READ, "list the topics"),
    _tool(_C.GET_TOPIC_CONFIG, _READ, "show a topic", _A + "TopicHeader"),
    _tool(_C.GET_TOPIC_STATS_INFO, _READ, "show the first and the next offset of each queue", _A + "TopicHeader"),
    _tool(_C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, _READ, "list the system topics"),
)
_GROUPS = (
    _list(_C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, "create or change a group"),
    _list(_C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, "create or change groups"),
    _tool(_C.DELETE_SUBSCRIPTIONGROUP, _CHANGE, "delete a group", _A + "DeleteGroupHeader"),
    _tool(_C.UPDATE_AND_GET_GROUP_FORBIDDEN, _CHANGE, "forbid a topic to a group", _A + "GroupForbiddenHeader"),
    _tool(_C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, _READ, "list the groups"),
    _tool(_C.GET_SUBSCRIPTIONGROUP_CONFIG, _READ, "show a group", _A + "GroupHeader"),
    _tool(_C.GET_CONSUMER_CONNECTION_LIST, _READ, "list the consumers of a group", _H + "ConsumerGroupHeader"),
    _tool(_C.GET_PRODUCER_CONNECTION_LIST, _READ, "list the producers of a group", _A + "ProducerGroupHeader"),
    _tool(_C.GET_ALL_PRODUCER_INFO, _READ, "list all producers"),
    _tool(_C.QUERY_TOPIC_CONSUME_BY_WHO, _READ, "list the groups of a topic", _A + "TopicHeader"),
    _tool(_C.QUERY_TOPICS_BY_CONSUMER, _READ, "list the topics of a group", _A + "GroupHeader"),
    _tool(_C.QUERY_SUBSCRIPTION_BY_CONSUMER, _READ, "show a subscription", _A + "TopicGroupHeader"),
)
_DIRECT = ("consumerGroup", "clientId", "msgId", "brokerName", "topic", "topicSysFlag", "groupSysFlag")
_PROGRESS = (
    _tool(_C.INVOKE_BROKER_TO_RESET_OFFSET, _CHANGE, "move a group to a time or offset", _H + "ResetOffsetHeader"),
    _tool(_C.CLONE_GROUP_OFFSET, _CHANGE, "copy the offsets of a group", _A + "CloneOffsetHeader"),
    _tool(_C.CONSUME_MESSAGE_DIRECTLY, _CHANGE, "deliver a message directly", _H + "ConsumeDirectlyHeader", _DIRECT),
    RequestRow(
        *(_C.RESUME_CHECK_HALF_MESSAGE, Server.BROKER, _CHANGE, "check a half message again"),
        fields=("msgId", "topic"),
    ),
    _tool(_C.GET_CONSUME_STATS, _READ, "show the progress of a group", _A + "ConsumeStatsHeader"),
    _tool(_C.GET_BROKER_CONSUME_STATS, _READ, "show the progress of all groups", _A + "AllConsumeStatsHeader"),
    _tool(_C.QUERY_CONSUME_TIME_SPAN, _READ, "show the times of consumed messages", _A + "TopicGroupHeader"),
    _tool(_C.QUERY_CORRECTION_OFFSET, _READ, "show the offsets of other groups", _A + "CorrectionOffsetHeader"),
    _tool(_C.GET_ALL_CONSUMER_OFFSET, _READ, "list all consumer offsets"),
    _tool(_C.GET_ALL_DELAY_OFFSET, _READ, "list the offsets of the delay levels"),
    _tool(_C.GET_CONSUMER_RUNNING_INFO, _READ, "get the state of a consumer", _H + "ConsumerRunningInfoHeader"),
    _tool(_C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, _READ, "get offsets from consumers", _H + "ConsumerStatusHeader"),
)
_BROKER = (
    _tool(_C.GET_BROKER_CONFIG, _READ, "show the settings under Apache's names"),
    _tool(_C.GET_BROKER_RUNTIME_INFO, _READ, "show the runtime statistics"),
    _tool(_C.VIEW_BROKER_STATS_DATA, _READ, "show one statistic", _A + "BrokerStatsHeader"),
    _tool(_C.GET_BROKER_HA_STATUS, _READ, "show the replicas"),
    RequestRow(_C.GET_TIMER_CHECK_POINT, Server.BROKER, _READ, "tell slaves up to when timed messages are delivered"),
)
_ACCOUNTS = (
    RequestRow(
        *(_C.UPDATE_AND_CREATE_ACL_CONFIG, Server.BOTH, AccessClass.ACCOUNTS, "create or change an account"),
        _A + "AclAccountHeader",
    ),
    RequestRow(_C.DELETE_ACL_CONFIG, Server.BOTH, AccessClass.ACCOUNTS, "delete an account", _A + "DeleteAclHeader"),
    RequestRow(
        *(_C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, Server.BOTH, AccessClass.ACCOUNTS, "set the white list"),
        _A + "WhiteAddressesHeader",
    ),
    RequestRow(_C.GET_BROKER_CLUSTER_ACL_CONFIG, Server.BOTH, AccessClass.ACCOUNTS, "list the accounts", body=True),
    RequestRow(_C.GET_BROKER_CLUSTER_ACL_INFO, Server.BOTH, _READ, "show the version of the accounts"),
)
_ROUTES = (
    _namesrv(_C.GET_ROUTEINFO_BY_TOPIC, _DATA, "get the route of a topic", _N + "RouteHeader"),
    _namesrv(_C.GET_BROKER_CLUSTER_INFO, _READ, "list clusters and brokers"),
    _namesrv(_C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, _READ, "list all topics"),
    _namesrv(_C.GET_TOPICS_BY_CLUSTER, _READ, "list the topics of a cluster", _N + "ClusterHeader"),
    _namesrv(_C.GET_SYSTEM_TOPIC_LIST_FROM_NS, _READ, "list cluster and broker names as system topics"),
    _namesrv(_C.GET_UNIT_TOPIC_LIST, _READ, "list unit topics"),
    _namesrv(_C.GET_HAS_UNIT_SUB_TOPIC_LIST, _READ, "list topics with a unit subscription"),
    _namesrv(_C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, _READ, "list other topics with a unit subscription"),
    _namesrv(_C.REGISTER_BROKER, _JOIN, "register a broker", _N + "RegisterBrokerHeader"),
    _namesrv(_C.UNREGISTER_BROKER, _JOIN, "remove a broker", _N + "BrokerHeader"),
    _namesrv(_C.QUERY_DATA_VERSION, _JOIN, "compare the version of a broker's topics", _N + "BrokerHeader"),
    _namesrv(_C.WIPE_WRITE_PERM_OF_BROKER, _CHANGE, "make a broker read-only", _N + "BrokerNameHeader"),
    _namesrv(_C.ADD_WRITE_PERM_OF_BROKER, _CHANGE, "make a broker writable", _N + "BrokerNameHeader"),
    _namesrv(_C.DELETE_TOPIC_IN_NAMESRV, _CHANGE, "delete the route of a topic", _N + "DeleteTopicInNamesrvHeader"),
    _namesrv(_C.PUT_KV_CONFIG, _CHANGE, "put a key and value", _N + "PutKvHeader"),
    _namesrv(_C.DELETE_KV_CONFIG, _CHANGE, "delete a key", _N + "KvHeader"),
    _namesrv(_C.GET_KV_CONFIG, _READ, "get the value of a key", _N + "KvHeader"),
    _namesrv(_C.GET_KVLIST_BY_NAMESPACE, _READ, "list keys and values", _N + "NamespaceHeader"),
    _namesrv(_C.GET_NAMESRV_CONFIG, _READ, "show the settings of the name server"),
)
ROWS: dict[int, RequestRow] = {
    row.code: row
    for rows in (_PUBLISH, _CONSUME, _POP, _QUERY, _TOPICS, _GROUPS, _PROGRESS, _BROKER, _ACCOUNTS, _ROUTES)
    for row in rows
}


def loaded(when: Loaded) -> list[int]:
    """Return the codes whose code is imported at a moment."""
    return [row.code for row in ROWS.values() if row.loaded is when]
