"""Which fields a signed change may carry: those of its code and no others.

A signature covers values in the order of their names, joined without a mark between them, and the body behind them. So
a field of an invented name takes up values of a request that was signed for something else, and so does a body. Headers
of administration alone, where stock tools send what their header names.
"""

from collections.abc import Iterable
from functools import cache

from netstack.acl import ACCESS_KEY, CHANNEL, SECURITY_TOKEN, SIGNATURE
from netstack.codes import RequestCode
from netstack.ext import ExtHeader, fields_of

SIGNING = frozenset((ACCESS_KEY, SIGNATURE, SECURITY_TOKEN, CHANNEL))
ANY_5X = frozenset(("ns", "nsd", "bname", "oway", "lo"))  # Source: RocketMQ 5.3 RpcRequestHeader, TopicRequestHeader


@cache
def _headers() -> dict[int, type[ExtHeader] | None]:
    """Return code -> header of what changes something; None for one that is all body."""
    from netstack import headers as h  # when the first signed change comes
    from netstack import headers_admin as a
    from netstack import headers_namesrv as n

    code = RequestCode
    return {
        code.UPDATE_AND_CREATE_TOPIC: a.CreateTopicHeader,
        code.UPDATE_AND_CREATE_TOPIC_LIST: None,
        code.DELETE_TOPIC_IN_BROKER: a.TopicHeader,
        code.DELETE_TOPIC_IN_NAMESRV: n.DeleteTopicInNamesrvHeader,
        code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: None,
        code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: None,
        code.DELETE_SUBSCRIPTIONGROUP: a.DeleteGroupHeader,
        code.UPDATE_AND_GET_GROUP_FORBIDDEN: a.GroupForbiddenHeader,
        code.PUT_KV_CONFIG: n.PutKvHeader,
        code.DELETE_KV_CONFIG: n.KvHeader,
        code.INVOKE_BROKER_TO_RESET_OFFSET: h.ResetOffsetHeader,
        code.CLONE_GROUP_OFFSET: a.CloneOffsetHeader,
        code.CLEAN_UNUSED_TOPIC: None,
        code.WIPE_WRITE_PERM_OF_BROKER: n.BrokerNameHeader,
        code.ADD_WRITE_PERM_OF_BROKER: n.BrokerNameHeader,
        code.UPDATE_AND_CREATE_ACL_CONFIG: a.AclAccountHeader,
        code.DELETE_ACL_CONFIG: a.DeleteAclHeader,
        code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: a.WhiteAddressesHeader,
        code.GET_BROKER_CLUSTER_ACL_CONFIG: None,
    }


_MORE: dict[int, tuple[str, ...]] = {
    RequestCode.CONSUME_MESSAGE_DIRECTLY: (
        *("consumerGroup", "clientId", "msgId", "brokerName", "topic", "topicSysFlag", "groupSysFlag"),
    ),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: ("msgId", "topic"),
}


_C = RequestCode
_WITH_BODY = frozenset(
    (
        *(_C.UPDATE_AND_CREATE_TOPIC_LIST, _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP),
        *(_C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, _C.GET_BROKER_CLUSTER_ACL_CONFIG),
    )
)


@cache
def allowed(code: int) -> frozenset[str]:
    """Return the field names of a code that changes something."""
    header = _headers().get(code)
    named = [field.wire for field in fields_of(header)] if header is not None else []
    return SIGNING | ANY_5X | frozenset(named) | frozenset(_MORE.get(code, ()))


def may_have_body(code: int) -> bool:
    """Tell whether a change says something in its body."""
    return code in _WITH_BODY


def foreign(code: int, names: Iterable[str]) -> str | None:
    """Return a field that does not belong to a change, None when all do."""
    return next((name for name in names if name not in allowed(code)), None)


def known_codes() -> set[int]:
    """Return the codes whose fields are known."""
    return {*map(int, _headers()), *map(int, _MORE)}
